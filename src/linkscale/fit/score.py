"""How far predictions lie from published runs: errors by source, and over sources with equal weight.

The error of a row is ``|predicted / measured - 1|``. Sources differ in size by a factor of a thousand, so overall
figures weigh every source equally: a row weighs 1 / (scored rows of its source).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from linkscale.base.errors import LinkscaleError
from linkscale.base.model import Model
from linkscale.plan.product import Defaults
from linkscale.plan.resolve import Case, Unresolved, resolve
from linkscale.readers.runs import Runs

Status = Literal["predicted", "unresolved"]


class Prediction(Model, frozen=True):
    """What scoring needs of an estimate; memory is of the kind that the run states."""

    step_s: float
    p10_s: float
    p90_s: float
    memory_bytes: float | None


Predictor = Callable[[Sequence[Case]], Sequence[Prediction | LinkscaleError]]
"""Predicts many cases at once, in their order; a case that cannot be predicted gives the error."""


class Row(Model, frozen=True):
    """One run beside its prediction."""

    id: str
    source_key: str
    status: Status
    reason: str | None
    measured_step_s: float | None
    predicted_step_s: float | None
    p10_s: float | None
    p90_s: float | None
    measured_memory_bytes: float | None
    predicted_memory_bytes: float | None

    @property
    def step_error(self) -> float | None:
        """Signed relative error of the step time."""
        return _relative(self.predicted_step_s, self.measured_step_s)

    @property
    def memory_error(self) -> float | None:
        """Signed relative error of the peak memory."""
        return _relative(self.predicted_memory_bytes, self.measured_memory_bytes)


class Errors(Model, frozen=True):
    """Errors of a quantity over rows: ``median``, ``mean``, ``p90`` of their sizes, ``bias`` their signed mean."""

    n: int
    median: float
    mean: float
    p90: float
    bias: float


class Group(Model, frozen=True):
    """One source (or whatever rows are grouped by): how many rows, and the errors of those with a measurement."""

    name: str
    rows: int
    predicted: int
    step: Errors | None
    memory: Errors | None
    within_interval: float | None


class Reason(Model, frozen=True):
    """Why rows were not predicted."""

    reason: str
    rows: int
    sources: tuple[str, ...]


class Summary(Model, frozen=True):
    """The whole file. ``source_weighted``: every source counts the same."""

    rows: int
    predicted: int
    unresolved: int
    unreadable: int
    scored: int
    sources: int
    step: Errors | None
    source_weighted_median: float | None
    source_weighted_mean: float | None
    memory: Errors | None
    within_interval: float | None
    groups: tuple[Group, ...]
    reasons: tuple[Reason, ...]


class Validation(Model, frozen=True):
    """Rows in the order of the file and their summary."""

    rows: tuple[Row, ...]
    summary: Summary


def validate_runs(
    runs: Runs, predictor: Predictor, by: str = "source_key", defaults: Defaults | None = None
) -> Validation:
    """Resolve and predict every run and score the predictions, grouped by a column of the file."""
    resolved = [resolve(record, defaults) for record in runs.records]
    cases = [item for item in resolved if isinstance(item, Case)]
    answers = iter(predictor(cases))
    rows = [_row(item, next(answers) if isinstance(item, Case) else None) for item in resolved]
    labels = [_label(getattr(record, by)) for record in runs.records]
    kinds = [item.kind if isinstance(item, Unresolved) else "" for item in resolved]
    return Validation(rows=tuple(rows), summary=_summary(rows, labels, kinds, len(runs.bad)))


def _label(value: object) -> str:
    return "not stated" if value in (None, "") else str(value)


def _row(item: Case | Unresolved, answer: Prediction | LinkscaleError | None) -> Row:
    found = answer if isinstance(answer, Prediction) else None
    reason = item.reason if isinstance(item, Unresolved) else None if found else str(answer)
    return Row(
        id=item.id, source_key=item.source_key, status="predicted" if found else "unresolved", reason=reason,
        measured_step_s=item.measured_step_s, predicted_step_s=found.step_s if found else None,
        p10_s=found.p10_s if found else None, p90_s=found.p90_s if found else None,
        measured_memory_bytes=item.measured_memory_bytes,
        predicted_memory_bytes=found.memory_bytes if found else None,
    )  # fmt: skip


def _relative(predicted: float | None, measured: float | None) -> float | None:
    return predicted / measured - 1.0 if predicted is not None and measured else None


def errors(signed: Iterable[float]) -> Errors | None:
    """Summarise signed relative errors; None where there are none.

    >>> errors([0.1, -0.2, 0.3]).median
    0.2
    """
    values = list(signed)
    if not values:
        return None
    sizes = sorted(abs(value) for value in values)
    count = len(values)
    return Errors(
        n=count, median=quantile(sizes, 0.5), mean=sum(sizes) / count, p90=quantile(sizes, 0.9),
        bias=sum(values) / count,
    )  # fmt: skip


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of ordered values, linear between neighbours.

    >>> quantile([1.0, 2.0, 4.0], 0.75)
    3.0
    """
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def weighted_median(pairs: Iterable[tuple[float, float]]) -> float:
    """Return the value with half of the weight on either side, of (value, weight) pairs; midway where two have it.

    >>> weighted_median([(1.0, 0.2), (2.0, 0.2), (9.0, 0.6)])
    9.0
    """
    ordered = sorted(pairs)
    half = sum(weight for _, weight in ordered) / 2.0
    rounding = 1e-9 * half
    reached = 0.0
    for index, (value, weight) in enumerate(ordered):
        reached += weight
        if reached > half + rounding or index == len(ordered) - 1:
            return value
        if reached >= half - rounding:
            return (value + ordered[index + 1][0]) / 2.0
    raise ValueError("no values")


def source_weighted(rows: Iterable[Row]) -> tuple[float, float] | None:
    """Return the median and mean absolute step error with every source weighing the same; None without scored rows."""
    by_source: dict[str, list[float]] = {}
    for row in rows:
        if row.step_error is not None:
            by_source.setdefault(row.source_key, []).append(abs(row.step_error))
    if not by_source:
        return None
    pairs = [(value, 1.0 / len(values)) for values in by_source.values() for value in values]
    mean = sum(sum(values) / len(values) for values in by_source.values()) / len(by_source)
    return weighted_median(pairs), mean


def _summary(rows: Sequence[Row], labels: Sequence[str], kinds: Sequence[str], unreadable: int) -> Summary:
    scored = [row for row in rows if row.step_error is not None]
    weighted = source_weighted(scored)
    predicted = sum(row.status == "predicted" for row in rows)
    return Summary(
        rows=len(rows), predicted=predicted, unresolved=len(rows) - predicted, unreadable=unreadable,
        scored=len(scored), sources=len({row.source_key for row in scored}),
        step=errors(_present(row.step_error for row in rows)),
        source_weighted_median=weighted[0] if weighted else None,
        source_weighted_mean=weighted[1] if weighted else None,
        memory=errors(_present(row.memory_error for row in rows)),
        within_interval=_within(scored), groups=_groups(rows, labels), reasons=_reasons(rows, kinds),
    )  # fmt: skip


def _present(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _within(scored: Sequence[Row]) -> float | None:
    """Return the share of runs whose measured step lies in the predicted interval."""
    inside = [(row.p10_s or 0.0) <= (row.measured_step_s or 0.0) <= (row.p90_s or 0.0) for row in scored]
    return sum(inside) / len(inside) if inside else None


def _groups(rows: Sequence[Row], labels: Sequence[str]) -> tuple[Group, ...]:
    members: dict[str, list[Row]] = {}
    for label, row in zip(labels, rows, strict=True):
        members.setdefault(label, []).append(row)
    return tuple(_group(name, members[name]) for name in sorted(members))


def _group(name: str, rows: Sequence[Row]) -> Group:
    return Group(
        name=name, rows=len(rows), predicted=sum(row.status == "predicted" for row in rows),
        step=errors(_present(row.step_error for row in rows)),
        memory=errors(_present(row.memory_error for row in rows)),
        within_interval=_within([row for row in rows if row.step_error is not None]),
    )  # fmt: skip


def _reasons(rows: Sequence[Row], kinds: Sequence[str]) -> tuple[Reason, ...]:
    """Group the rows that were not predicted by the kind of reason, commonest first."""
    found: dict[str, list[Row]] = {}
    for row, kind in zip(rows, kinds, strict=True):
        if row.status != "predicted":
            found.setdefault(kind or row.reason or "", []).append(row)
    listed = [
        Reason(reason=reason, rows=len(members), sources=tuple(sorted({row.source_key for row in members})))
        for reason, members in found.items()
    ]
    return tuple(sorted(listed, key=lambda item: (-item.rows, item.reason)))
