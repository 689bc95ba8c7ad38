"""The strategy of a published run: what its row states, and what its product does besides."""

from __future__ import annotations

import re
from typing import Any, cast

from linkscale.plan.asked import Asked
from linkscale.plan.run_models import mixture
from linkscale.plan.strategy import DEFAULT_MODULES, Precision, Sharding, Strategy
from linkscale.readers.runs import RunRecord

_ETP = re.compile(r"\bETP (\d{1,4})\b")


def degrees(record: RunRecord) -> int | None:
    """Return tp*pp*cp*dp of a row that states its layout."""
    dp = record.dp or remaining_dp(record)
    if not (record.tp and record.pp and dp):
        return None
    return record.tp * record.pp * (record.cp or 1) * dp


def remaining_dp(record: RunRecord) -> int | None:
    """Data-parallel ranks where a row leaves them out: nothing contradicts only when the other degrees divide."""
    if record.dp or not (record.tp and record.pp and record.num_gpus) or "does not satisfy" in record.notes:
        return record.dp
    model = record.tp * record.pp * (record.cp or 1)
    return record.num_gpus // model if record.num_gpus % model == 0 else None


def run_strategy(asked: Asked) -> Strategy:
    """Return the strategy of a run whose layout is stated."""
    record, ask = asked.record, asked.default
    sharding = _sharding(asked)
    pp = record.pp or 1
    tp = record.tp or 1
    recompute, layers = _recompute(asked, pp)
    return Strategy(
        stack=ask("stack"),
        sequence_parallel=asked.stated_or("sequence_parallel", record.sp) and tp > 1,
        sharding=sharding,
        recompute=recompute,
        recompute_layers=layers,
        recompute_modules=_modules(asked, recompute),
        precision=cast(Precision, asked.known_or("precision", record.precision)),
        attention=asked.known_or("attention", record.attention),
        compile=ask("compile"),
        fused_loss=ask("fused_loss"),
        optimizer=asked.may("optimizer") or "adamw",
        grad_dtype=ask("grad_dtype"),
        flat_gradients=ask("flat_gradients"),
        planned_memory=ask("planned_memory"),
        param_dtype=ask("param_dtype"),
        overlap_grad_reduce=ask("overlap_grad_reduce"),
        overlap_param_gather=ask("overlap_param_gather"),
        overlap_p2p=ask("overlap_p2p"),
        cp_comm="all_gather" if ask("stack") == "fsdp2" else "p2p",
        no_sync=sharding == "zero2" and pp > 1,
        tp_overlap=ask("tp_overlap") if tp > 1 else "none",
        tp=tp, pp=pp, cp=record.cp or 1, dp=remaining_dp(record) or 1,
        vpp=_vpp(asked, pp), micro_batch=_micro_batch(asked, pp),
        shard_domain=(asked.may("shard_domain") or record.gpus_per_node or 8) if sharding == "hsdp" else 1,
        offload_optimizer=bool(asked.may("offload_optimizer")), offload_params=bool(asked.may("offload_params")),
        offload_layers=-(-(record.layers or 0) // pp) if asked.may("offload_activations") else 0,
        **(_experts(asked, tp) if mixture(record) else {}),
    )  # fmt: skip


def _experts(asked: Asked, tp: int) -> dict[str, Any]:
    """Return how a mixture's experts are laid, reached and multiplied, and how much of its step is a graph."""
    record, ask = asked.record, asked.default
    stated = _ETP.search(record.notes)
    etp = int(stated[1]) if stated else ask("etp")
    return {
        "ep": record.ep or 1, "etp": tp if etp == "tp" else etp, "dispatcher": ask("dispatcher"),
        "a2a_overlap": ask("a2a_overlap"), "expert_gemm": ask("expert_gemm"), "cuda_graphs": ask("cuda_graphs"),
    }  # fmt: skip


def _sharding(asked: Asked) -> Sharding:
    instead = asked.may("sharding_under_pipeline")
    return cast(Sharding, instead or asked.known_or("sharding", asked.record.sharding))


def _recompute(asked: Asked, pp: int) -> tuple[Any, int]:
    """Return what is recomputed and of how many layers per stage (0: all)."""
    layers = asked.record.layers
    kind = asked.known_or("recompute", asked.record.recompute)
    if isinstance(kind, int):
        return "full", -(-kind // pp)
    if kind != "selective" or not layers:
        return kind, 0
    every = asked.may("selective_means")
    return (kind, 0) if every is None else ("full", -(-layers // int(every) // pp))


def _modules(asked: Asked, recompute: str) -> str:
    named = asked.may("recompute_modules") if recompute == "selective" else None
    return named or DEFAULT_MODULES


def _vpp(asked: Asked, pp: int) -> int:
    record = asked.record
    if pp == 1:
        if (record.vpp or 1) > 1:
            asked.say(f"vpp = {record.vpp} left out: with one stage there is nothing to interleave")
        return 1
    stated = asked.stated_or("vpp", record.vpp)
    if stated != "one layer":
        return int(stated)
    layers = record.layers or 0
    return layers // pp if layers and layers % pp == 0 else 1


def _micro_batch(asked: Asked, pp: int) -> int:
    record = asked.record
    if record.micro_batch_seqs:
        return record.micro_batch_seqs
    local = (record.global_batch_seqs or 1) // (remaining_dp(record) or 1)
    if record.grad_accum and local % record.grad_accum == 0:
        return local // record.grad_accum
    default = asked.default("micro_batch")
    return max(1, local // pp) if default == "one per stage" else int(default)
