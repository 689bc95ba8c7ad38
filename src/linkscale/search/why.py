"""Why: what a search finds where some fields are fixed, and how that compares with the best plan.

Popular recipes (``recipes.py``) and the layouts that a user asks about (``--why``) are answered alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from linkscale.base.errors import InputError
from linkscale.estimate.result import BREAKDOWN_KEYS, Estimate, Memory
from linkscale.plan.defaults import complete
from linkscale.plan.legality import first_broken
from linkscale.plan.strategy import NUMBERS, Strategy
from linkscale.search.constraints import CHOICES
from linkscale.search.fitting import enlarged, freed, shortage
from linkscale.search.keep import Candidate
from linkscale.search.question import Question, describe
from linkscale.search.result import Departure, Difference, MemoryPart, PlanEntry, Why

Fields = Mapping[str, Any]

SAME = 1e-9
"""Share of a step below which two step times are equal."""

NOTICEABLE = 0.01
"""Memory is told to hold a layout back where without its limit the best step is beaten by at least this share."""

CLUSTERS_LOOKED_AT = (2, 4)
"""Multiples of the cluster that are tried for a layout that does not fit."""


def conflict(question: Question, fields: Fields) -> str | None:
    """Return the first of the fields that the constraints fix at another value."""
    fixed = question.constraints.fixed()
    return next((name for name, value in fields.items() if fixed.get(name, value) != value), None)


def check_asked(question: Question, asked: Sequence[Fields]) -> None:
    """Raise where a layout contradicts what the plan holds fixed."""
    for fields in asked:
        name = conflict(question, fields)
        if name is not None:
            fixed = question.constraints.fixed()[name]
            raise InputError(f"why {name} = {fields[name]}: the plan holds {name} = {fixed} fixed; drop one of them")


def whys(question: Question, asked: Sequence[Fields], best: PlanEntry) -> tuple[Why, ...]:
    """Answer every layout asked about; say what would make those fit that do not."""
    return tuple(_with_way_out(question, answer(question, fields, best)) for fields in asked)


def answer(question: Question, fields: Fields, best: PlanEntry) -> Why:
    """Search with the fields fixed and compare the best of what is found with the best plan."""
    asked = dict(fields)
    if all(getattr(best.strategy, name) == value for name, value in asked.items()):
        return Why(asked=asked, answer="chosen", reason="chosen: the best plan has it", strategy=best.strategy,
                   step_s=best.estimate.step_s, ratio=1.0)  # fmt: skip
    narrowed = question.fixing(**asked)
    try:
        found = narrowed.find()
    except InputError as error:  # what this hardware has not
        return Why(asked=asked, answer="illegal", reason=str(error))
    if found.best is not None:
        timed = _timed(question, asked, found.best, best)
        return msgspec.structs.replace(timed, unlimited=_unlimited(question, found.free, found.best, best))
    if found.lean is not None:
        return _short(question, asked, found.lean, best)
    return Why(asked=asked, answer="illegal", reason=illegal_reason(narrowed, best.strategy))


def differences(best: Estimate, other: Estimate) -> tuple[Difference, ...]:
    """Return the seconds that the other estimate adds under each key of the breakdown, largest first."""
    rows = (
        Difference(key=key, seconds=getattr(other.breakdown_s, key) - getattr(best.breakdown_s, key))
        for key in BREAKDOWN_KEYS
    )
    return tuple(sorted((row for row in rows if row.seconds != 0.0), key=lambda row: (-abs(row.seconds), row.key)))


def illegal_reason(question: Question, near: Strategy | None = None) -> str:
    """Return the rule that the fixed fields break once the rest takes its defaults, or the numbers of ``near``.

    Of the two, the one that keeps more rules: what it breaks is due to the fixed fields rather than to the free ones.
    """
    job, cluster, fields = question.job, question.cluster, question.constraints.fixed()
    gpus = near.gpus if near else (*question.constraints.gpus, cluster.gpus)[0]
    broken = []
    for rest in ({}, _numbers(near)):
        try:
            strategy = complete(
                {**rest, **fields}, gpus, cluster.scaleup.domain_gpus, experts=bool(question.job.arch.routed())
            )
        except InputError as error:
            if not rest:
                return str(error)
            continue
        broken.append(first_broken(job.arch, gpus, strategy, job.seq_len, job.global_batch))
    told = [rule for rule in broken if rule is not None]
    if not told:
        return "no value of the free fields goes with those that are fixed"
    return max(told[::-1], key=lambda rule: rule[0])[1]


def _numbers(strategy: Strategy | None) -> dict[str, Any]:
    """Return the numbers of a strategy that go with any choices; dp is what the others leave."""
    bound = ("dp", "recompute_layers", "offload_layers", "shard_domain", "bucket_bytes")
    return {} if strategy is None else {name: getattr(strategy, name) for name in NUMBERS if name not in bound}


def _short(question: Question, asked: dict[str, Any], lean: Candidate, best: PlanEntry) -> Why:
    short = shortage(lean.memory_bytes - question.limit_bytes)
    return Why(
        asked=asked, answer="short", reason=f"needs {lean.memory_bytes / 1e9:.1f} GB per GPU, {short} too much",
        memory=_memory(question.estimate(lean.strategy).memory_bytes, best.estimate.memory_bytes),
        **_compared(lean, best),
    )  # fmt: skip


def _timed(question: Question, asked: dict[str, Any], found: Candidate, best: PlanEntry) -> Why:
    estimate, present = question.estimate(found.strategy), best.estimate
    extra = found.step_s - present.step_s
    if abs(extra) <= SAME * present.step_s:
        reason = "takes the same time as the best plan"
        return Why(asked=asked, answer="equal", reason=reason, **_compared(found, best))
    rows = differences(present, estimate)
    reason = _slower(extra, present.step_s, rows) if extra > 0 else _faster(question, asked, -extra, present.step_s)
    return Why(
        asked=asked, answer="slower" if extra > 0 else "faster", reason=reason, differences=rows,
        inside_interval=present.p10_s <= found.step_s <= present.p90_s, **_compared(found, best),
    )  # fmt: skip


def _unlimited(question: Question, free: Candidate | None, found: Candidate, best: PlanEntry) -> str:
    """Say what the same fields would give without the limit of memory, where that would beat the best plan."""
    present_s = best.estimate.step_s
    if free is None or free.step_s > (1 - NOTICEABLE) * min(found.step_s, present_s):
        return ""
    change = free.step_s / present_s - 1
    short = shortage(free.memory_bytes - question.limit_bytes)
    return (
        f"{free.step_s:.3g} s a step ({change:+.1%}) by {describe(free.strategy)}, "
        f"which needs {free.memory_bytes / 1e9:.1f} GB per GPU, {short} too much"
    )


def _compared(found: Candidate, best: PlanEntry) -> dict[str, Any]:
    """Return what every strategy that was found is told with."""
    ratio = found.step_s / best.estimate.step_s
    return {"strategy": found.strategy, "step_s": found.step_s, "ratio": ratio,
            "departures": _departures(found.strategy, best.strategy)}  # fmt: skip


def _departures(strategy: Strategy, best: Strategy) -> tuple[Departure, ...]:
    """Return the fields that differ, numbers first."""
    pairs = ((name, getattr(strategy, name), getattr(best, name)) for name in (*NUMBERS, *CHOICES))
    return tuple(Departure(field=name, value=value, best=other) for name, value, other in pairs if value != other)


def _memory(memory: Memory, best: Memory) -> tuple[MemoryPart, ...]:
    """Return every part beside the best plan's, those that grew most first."""
    names = [name for name in Memory.__struct_fields__ if name != "total"]
    parts = (MemoryPart(key=name, size_bytes=getattr(memory, name), best_bytes=getattr(best, name)) for name in names)
    return tuple(sorted(parts, key=lambda part: (part.best_bytes - part.size_bytes, part.key)))


def _slower(extra_s: float, best_s: float, rows: Sequence[Difference]) -> str:
    """Say how much slower, and where most of it goes."""
    most = next((f", most of it {row.key} (+{row.seconds:.3g} s)" for row in rows if row.seconds > 0), "")
    return f"+{extra_s:.3g} s a step (+{extra_s / best_s:.1%}){most}"


def _faster(question: Question, fields: Fields, less_s: float, best_s: float) -> str:
    """Say how much faster, and why it was not found unasked."""
    searched = question.axes().table()
    outside = {name: searched[name] for name, value in fields.items() if value not in searched.get(name, [value])}
    only = " and ".join(f"{name} {', '.join(map(str, values))}" for name, values in outside.items())
    searched_only = f"plan searches only {only}" if only else "plan does not combine these"
    unasked = "it leaves the domain" if "tp" in outside else searched_only
    gain = f"faster by {less_s:.3g} s a step ({less_s / best_s:.1%}) if its estimate holds"
    return f"{gain}; left out unless asked for, as {unasked}"


def _with_way_out(question: Question, found: Why) -> Why:
    """Free one of several fields asked about, else double the cluster, until something fits."""
    if found.answer != "short":
        return found
    narrowed = question.fixing(**found.asked)
    names = found.asked if len(found.asked) > 1 else ()
    way_out = freed(narrowed, names) or enlarged(narrowed, CLUSTERS_LOOKED_AT)
    return msgspec.structs.replace(found, way_out=way_out)
