"""The architecture of a published run: its columns, and what follows from the model's family."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from linkscale.base.errors import InputError
from linkscale.plan.asked import Asked
from linkscale.plan.defaults import check_count
from linkscale.plan.legality import shown
from linkscale.plan.run_models import mixture, packaged_run, run_model
from linkscale.readers.runs import RunRecord
from linkscale.workload.architecture import Architecture
from linkscale.workload.moe_families import uniform
from linkscale.workload.parts import Moe

MOST_LAYERS = 10_000
"""Layers of a mixture, which are listed one by one."""
_UNEVEN = re.compile(r"MLA|shared expert|dense|part of the layers|sliding|window|hybrid", re.IGNORECASE)
"""Words of a note that say more of the layers than the columns hold."""


def run_architecture(asked: Asked) -> Architecture:
    """Return the model of a run: a packaged one, or as its columns state it; raise InputError where they do not."""
    known = run_model(asked.record)
    return packaged_run(asked, known) if known else _stated(asked)


def _stated(asked: Asked) -> Architecture:
    record, ask = asked.record, asked.default
    if not (record.layers and record.hidden and record.heads):
        raise InputError(f"the source states no layers, width and heads of {record.model!r}")
    gated = bool(record.gated_mlp)
    bias = bool(ask("bias"))
    positions = ask("positions")
    head_dim = record.hidden // record.heads
    fields: dict[str, Any] = {
        "name": record.model or f"{record.layers}x{record.hidden}", "model_type": "published run",
        "vocab": int(record.vocab or ask("vocab")), "hidden": record.hidden, "layers": record.layers,
        "heads": record.heads, "kv_heads": record.kv_heads or record.heads, "head_dim": head_dim,
        "ffn_hidden": record.ffn_hidden or 4 * record.hidden, "gated_mlp": gated, "activation": ask("activation"),
        "norm": ask("norm"), "norm_bias": bias, "positions": positions,
        "max_positions": record.seq_len or 0 if positions == "learned" else 0,
        "rotary_dim": head_dim if positions == "rope" else 0, "tied_embeddings": ask("tied_embeddings"),
        "qkv_bias": bias, "attention_out_bias": bias, "mlp_bias": bias, "dropout": ask("dropout"),
        "source": record.source_ref,
    }  # fmt: skip
    # One object per shape, so that runs of the same model are estimated together.
    return _shape(**(uniform(fields, _experts(record, gated, bias)) if mixture(record) else fields))


def _experts(record: RunRecord, gated: bool, bias: bool) -> Moe:
    """Return the experts of a model whose layers are all alike, which the columns can describe."""
    hidden = record.moe_ffn_hidden or record.ffn_hidden
    if not (record.experts and record.experts_topk and hidden):
        raise InputError(f"the source states no number, choice and width of the experts of {record.model!r}")
    uneven = _UNEVEN.search(record.notes.partition("arch:")[2])
    if uneven:
        raise InputError(f"the layers of {record.model!r} differ ({uneven[0]!r} in the notes): columns cannot say how")
    check_count("experts", record.experts)
    if (record.layers or 0) > MOST_LAYERS:
        raise InputError(f"layers = {shown(record.layers or 0)}; a mixture may have {MOST_LAYERS}")
    if record.experts_topk > record.experts:
        raise InputError(f"experts_topk = {record.experts_topk}, but there are {record.experts} experts")
    return Moe(experts=record.experts, top_k=record.experts_topk, hidden=hidden, gated=gated, bias=bias)


@lru_cache(maxsize=512)
def _shape(**fields: Any) -> Architecture:
    return Architecture(**fields)
