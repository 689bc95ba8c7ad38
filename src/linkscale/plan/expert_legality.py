"""Rules for routed experts: how they divide over ranks, and what their exchange of tokens needs."""

from __future__ import annotations

import numpy as np

from linkscale.plan.rules import BoolArray, Job, Rule, every
from linkscale.plan.strategy import Strategy, StrategyBatch


def _experts(job: Job, b: StrategyBatch) -> BoolArray:
    """Ranks hold equal numbers of experts, and equal parts of each; a model without experts has none to divide."""
    routed = job.arch.routed()
    if not routed:
        return np.asarray((b.ep == 1) & (b.etp == 1))
    return every(b, ((moe.experts % b.ep == 0) & (moe.hidden % b.etp == 0) for moe in routed))


def _experts_not(job: Job, s: Strategy) -> str:
    routed = job.arch.routed()
    if not routed:
        return f"{job.arch.name} has no routed experts, but ep = {s.ep} and etp = {s.etp}; use ep = 1 and etp = 1"
    for moe in routed:
        if moe.experts % s.ep:
            return f"{moe.experts} experts do not divide by ep = {s.ep}; use an ep that divides {moe.experts}"
    width = next(moe.hidden for moe in routed if moe.hidden % s.etp)
    return f"experts of width {width} do not divide by etp = {s.etp}; use an etp that divides {width}"


def _expert_stack(job: Job, b: StrategyBatch) -> BoolArray | bool:
    return b.ep == 1 if b.choices.stack in ("ddp", "fsdp1") else True


def _folded(job: Job, b: StrategyBatch) -> BoolArray:
    """Expert ranks are folded over the ranks of a stage, as Megatron does."""
    return np.asarray(b.tp * b.cp * b.dp % (b.ep * b.etp) == 0)


def _folded_not(job: Job, s: Strategy) -> str:
    ranks = s.tp * s.cp * s.dp
    return (
        f"ep*etp = {s.ep}*{s.etp} = {s.ep * s.etp} does not divide the tp*cp*dp = {s.tp}*{s.cp}*{s.dp} = {ranks} ranks "
        "of a stage; use a smaller ep, or fewer stages"
    )


def _expert_sequence(job: Job, b: StrategyBatch) -> BoolArray | bool:
    """Without sequence parallelism every tensor-parallel rank has all tokens: Megatron refuses to route them twice."""
    if b.choices.sequence_parallel or not job.arch.routed():
        return True
    return np.asarray((b.tp == 1) | ((b.etp == b.tp) & (b.choices.stack != "megatron")))


def _expert_sequence_not(job: Job, s: Strategy) -> str:
    way = "" if s.stack == "megatron" else f", or etp = {s.tp}"
    return (
        f"experts beside tp = {s.tp} need sequence_parallel, or tokens are routed twice; turn it on{way}, or use tp 1"
    )


def _dispatch(job: Job, b: StrategyBatch) -> BoolArray | bool:
    """Megatron hides the exchange of tokens behind shared experts with ``alltoall`` only; 1F1B needs two chunks."""
    choices = b.choices
    alone = np.asarray(b.ep * b.etp == 1)
    match choices.a2a_overlap:
        case "none":
            return True
        case "shared-expert":
            there = choices.dispatcher == "alltoall" and all(moe.shared for moe in job.arch.routed())
            return np.asarray(alone | there)
        case "1f1b":
            other = (b.pp == 1) | (b.vpp > 1) | (choices.schedule == "dualpipe")
            return np.asarray(alone | (other & (choices.recompute != "full") & (choices.dispatcher != "allgather")))


def _dispatch_not(job: Job, s: Strategy) -> str:
    if s.a2a_overlap == "shared-expert":
        return "a2a_overlap shared-expert needs shared experts and dispatcher alltoall; use a2a_overlap none or 1f1b"
    if s.recompute == "full":
        return (
            "a2a_overlap 1f1b runs forward beside backward, which recompute full does not allow; use another recompute"
        )
    if s.dispatcher == "allgather":
        return "a2a_overlap 1f1b needs dispatcher alltoall, deepep or hybridep, but it is allgather"
    return f"a2a_overlap 1f1b needs vpp > 1 or schedule dualpipe with pp = {s.pp}; use one, or a2a_overlap none"


EXPERT_RULES: tuple[Rule, ...] = (
    Rule("experts", _experts, _experts_not),
    Rule("expert stack", _expert_stack, lambda job, s: (
        f"stack {s.stack} has no expert parallelism, but ep = {s.ep}; use ep = 1 or stack megatron")),
    Rule("folding", _folded, _folded_not),
    Rule("expert sequence", _expert_sequence, _expert_sequence_not),
    Rule("dispatch", _dispatch, _dispatch_not),
)  # fmt: skip
