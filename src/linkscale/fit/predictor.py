"""The estimator as a ``Predictor``: cases that differ in numbers only are estimated in one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from linkscale.base.errors import InputError, LinkscaleError
from linkscale.estimate.interval import interval_width
from linkscale.estimate.step import BatchEstimate, evaluate
from linkscale.fit.score import Prediction
from linkscale.plan.resolve import Case
from linkscale.plan.strategy import Choices, stack_strategies
from linkscale.profile import Profile, shipped_profile
from linkscale.workload.architecture import Architecture
from linkscale.workload.counts import decoder

Key = tuple[Architecture, int, Choices, int, int]


class Estimator:
    """Predicts cases with the profile of their GPU's generation, as shipped or as another source gives it."""

    def __init__(self, profile_of: Callable[[str], Profile] = shipped_profile) -> None:
        self.profile_of = profile_of

    def __call__(self, cases: Sequence[Case]) -> list[Prediction | LinkscaleError]:
        """Return a prediction, or the error, for every case in order."""
        groups: dict[Key, list[int]] = {}
        # Equal clusters are one object, since the resolver keeps them; identity is a cheap key that always holds.
        for index, case in enumerate(cases):
            key = (case.architecture, id(case.cluster), case.strategy.choices(), case.seq_len, case.global_batch)
            groups.setdefault(key, []).append(index)
        answers: dict[int, Prediction | LinkscaleError] = {}
        for members in groups.values():
            found = self._group([cases[index] for index in members])
            answers.update(zip(members, found, strict=True))
        return [answers[index] for index in range(len(cases))]

    def _group(self, cases: list[Case]) -> list[Prediction | LinkscaleError]:
        first = cases[0]
        profile = self.profile_of(first.cluster.gpu.arch)
        batch = stack_strategies([case.strategy for case in cases])
        model = decoder(first.architecture)
        try:
            found = evaluate(model, first.cluster, batch, first.seq_len, first.global_batch, profile)
        except LinkscaleError as error:
            return [error] * len(cases)
        return [_prediction(found, row, case, profile) for row, case in enumerate(cases)]


def _prediction(found: BatchEstimate, row: int, case: Case, profile: Profile) -> Prediction | InputError:
    step = float(found.step_s[row])
    if not np.isfinite(step) or step <= 0.0:
        return InputError("the estimate is no positive number of seconds; the run is out of range")
    width = interval_width(case.cluster, case.strategy, case.seq_len, profile)
    memory = getattr(found.memory, case.memory_kind)[row] if case.memory_kind else None
    return Prediction(step_s=step, p10_s=step / width, p90_s=step * width,
                      memory_bytes=None if memory is None else float(memory))  # fmt: skip
