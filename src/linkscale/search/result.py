"""PlanResult: what a search found, and why. Its fields are those of ``linkscale.plan/1``."""

from __future__ import annotations

from linkscale.base.model import Model
from linkscale.estimate.result import Estimate
from linkscale.plan.strategy import Strategy


class PlanEntry(Model, frozen=True):
    """One strategy and what it is expected to do."""

    strategy: Strategy
    estimate: Estimate


class Space(Model, frozen=True):
    """What was looked at.

    ``legal``: distinct legal strategies within the axes and the constraints; ``evaluated``: those whose step time and
    memory were computed; ``pruned``: legal ones left out without computing them; ``fit``: evaluated ones within the
    memory limit. ``seconds`` is wall time, the only field that differs from run to run.
    """

    legal: int
    evaluated: int
    pruned: int
    fit: int
    seconds: float
    axes: dict[str, list[int | str | bool]]


class ParetoPoint(Model, frozen=True):
    """A strategy that no other one beats in tokens/s, memory headroom and GPUs at once."""

    strategy: Strategy
    tokens_per_s: float
    memory_headroom_bytes: float
    gpus: int


class Difference(Model, frozen=True):
    """Seconds that a strategy loses to the best under one key of the breakdown (negative: it wins them)."""

    key: str
    seconds: float


class Loser(Model, frozen=True):
    """A popular recipe beside the best: ``step_s`` is None where it is illegal or cannot be tried here."""

    label: str
    strategy: Strategy | None
    step_s: float | None
    fits: bool
    reason: str


class Relaxation(Model, frozen=True):
    """The best step when one limit is lifted: what that limit costs."""

    limit: str
    step_s: float
    gain: float
    strategy: Strategy


class Upgrade(Model, frozen=True):
    """The best step on changed hardware. ``gain``: share of today's step that it saves (0.1 = 10% shorter)."""

    change: str
    step_s: float
    gain: float


class Explanation(Model, frozen=True):
    """Why the best is the best. ``best_vs_next`` sums to the next one's step minus the best one's."""

    best_vs_next: tuple[Difference, ...]
    losers: tuple[Loser, ...]
    binding: str
    relaxations: tuple[Relaxation, ...]
    upgrades: tuple[Upgrade, ...]


class PlanResult(Model, frozen=True):
    """The plans, best first, and the reasons."""

    plans: tuple[PlanEntry, ...]
    space: Space
    pareto: tuple[ParetoPoint, ...]
    explanation: Explanation
