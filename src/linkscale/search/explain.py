"""Explain: what holds the best plan back, and what would help it most; each answer is a search of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from linkscale.search.keep import Candidate
from linkscale.search.question import Question, describe
from linkscale.search.recipes import losers
from linkscale.search.result import Explanation, PlanEntry, Relaxation, Upgrade
from linkscale.search.screen import Screened
from linkscale.search.whatif import larger_domain, upgrades
from linkscale.search.why import differences

EVEN_LAYERS = 16
"""A multiple of this many layers divides into most pipelines."""

NOTICEABLE = 0.01
"""A limit binds when lifting it saves at least this share of the step."""


def explain(question: Question, screened: Screened, plans: tuple[PlanEntry, ...]) -> Explanation:
    """Say why the best plan wins, what limits it, and which single change of hardware would buy most."""
    best = plans[0]
    # What if the hardware changed, not the software: the searches below keep the best plan's stack.
    within = question.fixing(stack=best.strategy.stack)
    ahead = differences(best.estimate, plans[1].estimate) if len(plans) > 1 else ()
    hardware = _upgrades(within, best.estimate.step_s)
    limits = _relaxations(question, within, screened, best)
    return Explanation(
        best_vs_next=ahead,
        losers=losers(question, best),
        binding=_binding(limits, best),
        relaxations=limits,
        upgrades=hardware,
    )


def _upgrades(question: Question, step_s: float) -> tuple[Upgrade, ...]:
    """Search again on every changed cluster, largest gain first."""
    rows = []
    for label, change in upgrades(question.cluster).items():
        best = question.on(change(question.cluster)).find().best
        if best is not None:
            rows.append(Upgrade(change=label, step_s=best.step_s, gain=1.0 - best.step_s / step_s))
    return tuple(sorted(rows, key=lambda row: -row.gain))


def _relaxations(question: Question, within: Question, screened: Screened, best: PlanEntry) -> tuple[Relaxation, ...]:
    """Lift one limit at a time, largest gain first."""
    present = best.estimate.step_s
    rows = []
    for limit, found in (*_lifted(within, screened), *_unfixed(question)):
        # Whoever is free of a limit may still keep it: nothing lifted makes the best plan worse.
        better = found if found is not None and found.step_s < present else None
        step_s, strategy = (better.step_s, better.strategy) if better else (present, best.strategy)
        rows.append(Relaxation(limit=limit, step_s=step_s, gain=1.0 - step_s / present, strategy=strategy))
    return tuple(sorted(rows, key=lambda row: -row.gain))


def _lifted(question: Question, screened: Screened) -> Iterator[tuple[str, Candidate | None]]:
    """Yield the best strategy without each limit; step times are per global batch of the question."""
    yield f"memory of {question.limit_bytes / 1e9:.4g} GB per GPU", screened.free
    cluster, job = question.cluster, question.job
    if cluster.scaleup.kind != "none" and cluster.scaleup.domain_gpus < cluster.gpus:
        wider = question.on(larger_domain(cluster)).find().best
        yield f"scale-up domain of {cluster.scaleup.domain_gpus} GPUs", wider
    yield from _other_depth(question)
    doubled = replace(question, job=replace(job, global_batch=2 * job.global_batch)).find().best
    yield f"global batch of {job.global_batch} sequences", doubled and _scaled(doubled, 0.5)


def _unfixed(question: Question) -> Iterator[tuple[str, Candidate | None]]:
    """Yield the best strategy without each field that was fixed."""
    for name, value in question.constraints.fixed().items():
        yield f"{name} = {value} as asked", question.fixing(**{name: None}).find().best


def _other_depth(question: Question) -> Iterator[tuple[str, Candidate | None]]:
    """Yield the best of a model with a few layers more, which more pipelines divide, at equal time per layer."""
    arch = question.job.arch
    even = -(-arch.layers // EVEN_LAYERS) * EVEN_LAYERS
    if even == arch.layers or arch.layers < EVEN_LAYERS:
        return
    deeper = replace(question.job, arch=arch.with_layers(even))
    found = replace(question, job=deeper).find().best
    yield f"division of {arch.layers} layers into stages", found and _scaled(found, arch.layers / even)


def _scaled(candidate: Candidate, share: float) -> Candidate:
    return replace(candidate, step_s=candidate.step_s * share)


def _binding(limits: tuple[Relaxation, ...], best: PlanEntry) -> str:
    """Name the limit whose lifting saves most, and the plan that would then be best."""
    if limits and limits[0].gain >= NOTICEABLE:
        top = limits[0]
        return f"{top.limit}: without it {top.step_s:.4g} s a step ({top.gain:.1%} less) with {describe(top.strategy)}"
    share = best.estimate.breakdown_s.compute / best.estimate.step_s
    tried = ", ".join(row.limit for row in limits)
    return f"none ({tried}): lifting any saves under {NOTICEABLE:.0%}; computation is {share:.0%} of the step"
