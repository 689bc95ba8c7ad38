"""PlanResult: what a search found, and why. Its fields are those of ``linkscale.plan/1``."""

from __future__ import annotations

from typing import Literal

from linkscale.base.model import Model
from linkscale.estimate.result import Estimate
from linkscale.plan.strategy import Strategy


class PlanEntry(Model, frozen=True):
    """One strategy and what it is expected to do."""

    strategy: Strategy
    estimate: Estimate


class Space(Model, frozen=True):
    """What was looked at.

    ``legal``: distinct legal strategies within the axes and the constraints, the memory of each computed; ``fit``:
    those within the memory limit; ``evaluated``: those whose step time was computed too; ``pruned``: the others, whose
    step time is bounded from below and so kept out. ``seconds`` is wall time, the only field that differs from run to
    run.
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


Answer = Literal["illegal", "short", "chosen", "equal", "slower", "faster"]


class Departure(Model, frozen=True):
    """A field in which a strategy differs from the best."""

    field: str
    value: int | str | bool
    best: int | str | bool


class MemoryPart(Model, frozen=True):
    """Bytes of the fullest GPU under one key of the memory, beside the best plan's."""

    key: str
    size_bytes: float
    best_bytes: float


class Why(Model, frozen=True):
    """Why the fields ``asked`` about are not those of the best plan, the rest of the strategy being searched.

    ``illegal``: no strategy has them; ``short``: none fits, ``strategy`` is the leanest; ``chosen``: the best plan has
    them; ``equal``: another strategy takes the same time; ``slower`` or ``faster`` than the best plan, by ``strategy``.
    ``faster`` ones lie outside the space that is searched unasked. ``ratio``: step time over the best plan's.
    ``inside_interval``: whether that step time lies between the best plan's p10 and p90.
    ``departures``, ``differences`` (seconds) and ``memory`` compare the strategy with the best plan, largest first.
    ``unlimited``: what the fields would give if memory were no limit, where that would beat the best plan.
    ``way_out``: what would make a strategy fit, where a quick look found it.
    """

    asked: dict[str, int | str | bool]
    answer: Answer
    reason: str
    strategy: Strategy | None = None
    step_s: float | None = None
    ratio: float | None = None
    inside_interval: bool | None = None
    departures: tuple[Departure, ...] = ()
    differences: tuple[Difference, ...] = ()
    memory: tuple[MemoryPart, ...] = ()
    unlimited: str = ""
    way_out: str = ""


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
    """The plans, best first, and the reasons; ``why`` answers what was asked, in that order."""

    plans: tuple[PlanEntry, ...]
    space: Space
    pareto: tuple[ParetoPoint, ...]
    explanation: Explanation
    why: tuple[Why, ...] = ()
