"""FLOPs against torch's own counter while the real classes run, exactly."""

from __future__ import annotations

import pytest

from linkscale.workload import from_config
from linkscale.workload.counts import attention_flops_per_token, matmul_flops_per_token
from linkscale.workload.layers import decoder
from linkscale.workload.ops import Conv1d, Index, Scan
from tests.workload import sparse_families
from tests.workload.classes import real_flops
from tests.workload.families import TOKENS, case_id, cases
from tests.workload.sparse_families import sparse_cases, sparse_id


def counted(data, tokens):
    """Return forward FLOPs with every window open: the counter sees whole score matrices, masks or not."""
    arch = from_config({**data, "sliding_window": None}, "shrunken")
    return tokens * (matmul_flops_per_token(arch) + attention_flops_per_token(arch, tokens))


@pytest.mark.parametrize("case", cases(), ids=case_id)
def test_forward_of_every_family(case):
    _, data = case
    assert counted(data, TOKENS) == real_flops(data, TOKENS)


@pytest.mark.parametrize("case", [c for c in cases() if c[0] in ("llama", "gpt2", "falcon")], ids=case_id)
def test_training_is_three_times_forward(case):
    _, data = case
    assert 3 * counted(data, TOKENS) == real_flops(data, TOKENS, backward=True)


@pytest.mark.parametrize("case", sparse_cases(), ids=sparse_id)
def test_forward_of_every_sparse_family(case):
    _, data = case
    data, tokens = comparable(data), sparse_families.TOKENS
    arch = from_config(data, "shrunken")
    ours = tokens * (matmul_flops_per_token(arch) + attention_flops_per_token(arch, tokens))
    known = sum(group.count * difference(op, tokens) for group in decoder(arch).groups for op in group.ops)
    assert ours + known == real_flops(data, tokens)


def comparable(data):
    """Return what the reference code computes without waste: it runs all of Llama 4's experts, and Mamba by heads."""
    if data["model_type"] == "llama4_text":
        return {**data, "num_experts_per_tok": data["num_local_experts"]}
    if data["model_type"] == "nemotron_h":
        return {**data, "n_groups": data["mamba_num_heads"]}
    if "mamba_n_groups" in data:
        return {**data, "mamba_n_groups": data["mamba_n_heads"]}
    return data


def difference(op, tokens):
    """Return what torch counts more (or, below zero, less) than we do, by operation."""
    match op:
        case Scan(kind="delta"):  # it knows no FLOPs of triangular systems
            return -2 * op.system() * tokens
        case Scan(kind="ssd"):  # the reference carries states over chunks by a product of all with all
            return 2 * op.heads * op.key_dim * op.value_dim * (tokens // op.chunk + 1) ** 2
        case Conv1d():  # padded on both sides, then cut
            return 2 * op.channels * op.kernel * (op.kernel - 1)
        case Index(compressed=ratio) if ratio > 1:  # heads are weighed element by element
            return -2 * op.heads * tokens * tokens // ratio
        case _:
            return 0


@pytest.mark.parametrize("case", [c for c in sparse_cases() if c[0] in ("mixtral", "deepseek_v3")], ids=sparse_id)
def test_training_of_experts_is_three_times_forward(case):
    _, data = case
    arch, tokens = from_config(data, "shrunken"), sparse_families.TOKENS
    ours = tokens * (matmul_flops_per_token(arch) + attention_flops_per_token(arch, tokens))
    assert 3 * ours == real_flops(data, tokens, backward=True)
