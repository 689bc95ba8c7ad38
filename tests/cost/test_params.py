"""What one tensor-parallel rank holds, against sizes that are known for Megatron-LM."""

from __future__ import annotations

import numpy as np
import pytest

from linkscale.cost.layer import Slice, ops_cost
from linkscale.cost.params import local_columns, local_params, local_vocab
from linkscale.plan.strategy import Choices
from linkscale.workload import decoder, load_architecture
from linkscale.workload.counts import op_params
from linkscale.workload.ops import Attention, Gemm
from tests.cost.test_activations import UNIT

CUTS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])


def layer_op(model: str, kind: type[Gemm] | type[Attention]) -> Gemm | Attention:
    return next(op for op in decoder(load_architecture(model)).groups[0].ops if isinstance(op, kind))


def test_megatron_pads_gpt2s_vocabulary_as_is_known() -> None:
    """50,304 rows on one GPU, 51,200 in all on 8 (Narayanan et al. 2021)."""
    held = local_vocab(50257, CUTS, "megatron") * CUTS
    assert (held[0], held[3]) == (50304.0, 51200.0)
    # Elsewhere the last rank may hold less, and all wait for the others.
    assert list(local_vocab(50257, CUTS, "fsdp2")[:4]) == [50257.0, 25129.0, 12565.0, 6283.0]


def test_ranks_beyond_the_key_value_heads_repeat_them() -> None:
    """Llama 3.1 70B: 64 query heads of 128 and 8 key-value heads; from 8 ranks on, each holds one of the latter."""
    qkv = layer_op("llama-3.1-70b", Gemm)
    assert list(local_columns(qkv, CUTS, "megatron")) == [
        128.0 * (64 / tp + 2 * max(1.0, 8 / tp)) for tp in (1, 2, 4, 8, 16, 32)
    ]


@pytest.mark.parametrize("tp", [8.0, 16.0])
def test_repeated_heads_are_kept_too(tp: float) -> None:
    attention = layer_op("llama-3.1-70b", Attention)
    part = Slice(np.array([tp]), np.ones(1), np.full(1, 1024.0), 1024.0, Choices(attention="unfused"))
    scores = 2 * 64 / tp * 1024**2
    kept = float(np.sum(ops_cost([attention], part, UNIT).saved_bytes))
    assert kept - scores == 2 * 1024 * 128 * (64 / tp + 2)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt2", "falcon-40b", "gpt-neox-20b"])
def test_one_rank_of_one_holds_the_whole_layer(model: str) -> None:
    ops = decoder(load_architecture(model)).groups[0].ops
    assert local_params(ops, np.ones(1), "megatron")[0] == sum(op_params(op) for op in ops)


def test_ranks_hold_their_part_of_matrices_and_all_of_norms() -> None:
    ops = decoder(load_architecture("gpt-neox-20b")).groups[0].ops
    # Two norms with bias (4 h), and the biases of the two row-parallel products (2 h), are whole.
    whole = 6 * 6144
    split = sum(op_params(op) for op in ops) - whole
    assert list(local_params(ops, CUTS[:4], "megatron")) == [whole + split / tp for tp in (1, 2, 4, 8)]
