"""The architecture of a published run: its columns, and what follows from the model's family."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from linkscale.base.errors import InputError
from linkscale.readers.runs import RunRecord
from linkscale.workload.architecture import Architecture

Ask = Callable[[str], Any]
"""Gives the product default of a field of the run in hand."""


def run_architecture(record: RunRecord, ask: Ask) -> Architecture:
    """Return the model of a run that states layers, width and heads; raise InputError for one that does not."""
    if not (record.layers and record.hidden and record.heads):
        raise InputError(f"the source states no layers, width and heads of {record.model!r}")
    gated = bool(record.gated_mlp)
    bias = bool(ask("bias"))
    positions = ask("positions")
    head_dim = record.hidden // record.heads
    # One object per shape, so that runs of the same model are estimated together.
    return _shape(
        name=record.model or f"{record.layers}x{record.hidden}", model_type="published run",
        vocab=int(record.vocab or ask("vocab")),
        hidden=record.hidden, layers=record.layers, heads=record.heads, kv_heads=record.kv_heads or record.heads,
        head_dim=head_dim, ffn_hidden=record.ffn_hidden or 4 * record.hidden, gated_mlp=gated,
        activation=ask("activation"), norm=ask("norm"), norm_bias=bias, positions=positions,
        max_positions=record.seq_len or 0 if positions == "learned" else 0,
        rotary_dim=head_dim if positions == "rope" else 0, tied_embeddings=ask("tied_embeddings"),
        qkv_bias=bias, attention_out_bias=bias, mlp_bias=bias, dropout=ask("dropout"), source=record.source_ref,
    )  # fmt: skip


@lru_cache(maxsize=512)
def _shape(**fields: Any) -> Architecture:
    return Architecture(**fields)
