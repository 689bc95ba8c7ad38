"""FLOPs against torch's own counter while the real classes run, exactly."""

from __future__ import annotations

import pytest

from linkscale.workload import from_config
from linkscale.workload.counts import attention_flops_per_token, matmul_flops_per_token
from tests.workload.classes import real_flops
from tests.workload.families import TOKENS, case_id, cases


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
