"""The page and the JSON of ``validate``: errors by source, the runs that were not predicted and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from linkscale.fit.score import Errors, Reason, Row, Summary, Validation
from linkscale.fit.score import Group as Scored
from linkscale.plan.resolve import Case
from linkscale.report.json_document import document
from linkscale.report.layout import ROOMY, Fluid, bullets, facts, section, table
from linkscale.report.text import both_gigabytes, duration, percent, plural


def validate_document(validation: Validation) -> dict[str, Any]:
    """Return ``linkscale.validate/1``: the rows in the order of the file, and the summary."""
    return document("validate", validation)


def validate_page(validation: Validation, by: str = "source_key") -> Group:
    """Return the whole page."""
    summary = validation.summary
    parts: list[RenderableType] = [headline(summary)]
    parts += [section(f"Error by {by}", Fluid(lambda columns: by_group(summary.groups, by, columns)))]
    if summary.reasons:
        parts += [section("Not predicted", not_predicted(summary.reasons), note=f"{summary.unresolved:,} runs")]
    return Group(*parts)


def headline(summary: Summary) -> RenderableType:
    """Return what was compared, and the errors that weigh every source the same."""
    unreadable = f", {plural(summary.unreadable, 'row')} unreadable" if summary.unreadable else ""
    rows: list[tuple[str, RenderableType]] = [
        ("runs", f"{summary.rows:,}, {summary.predicted:,} predicted, {summary.unresolved:,} not{unreadable}"),
        ("scored", f"{summary.scored:,} with a measured step time, from {summary.sources} sources"),
    ]
    if summary.source_weighted_median is not None and summary.source_weighted_mean is not None:
        median, mean = percent(summary.source_weighted_median), percent(summary.source_weighted_mean)
        rows += [("step time", f"median error {median}, mean {mean}, every source weighing the same")]
    if summary.step:
        rows += [("", f"{_in_words(summary.step)}, every run weighing the same")]
    if summary.within_interval is not None:
        rows += [("interval", f"{percent(summary.within_interval)} of the runs lie in p10-p90 (80% would be right)")]
    if summary.memory:
        rows += [("memory", f"{_in_words(summary.memory)}, {summary.memory.n:,} runs")]
    return facts(rows)


def _in_words(errors: Errors) -> str:
    return f"median error {percent(errors.median)}, mean {percent(errors.mean)}, p90 {percent(errors.p90)}"


def by_group(groups: Iterable[Scored], by: str, columns: int) -> Table:
    """Return one line a group; bias is the signed mean, above zero where predictions are too slow."""
    roomy = columns >= ROOMY
    names = (f"<{by}", "runs", "scored", "median", "mean", "p90", "bias")
    body = table((*names, "in p10-p90", "memory mean") if roomy else names)
    for group in groups:
        memory = percent(group.memory.mean) if group.memory else ""
        inside = "" if group.within_interval is None else f"{group.within_interval:.0%}"
        body.add_row(group.name, f"{group.rows:,}", *_numbers(group), *([inside, memory] if roomy else []))
    return body


def _numbers(group: Scored) -> list[str]:
    step = group.step
    if step is None:
        return ["0", "", "", "", ""]
    return [f"{step.n:,}", percent(step.median), percent(step.mean), percent(step.p90), f"{step.bias:+.1%}"]


def not_predicted(reasons: Iterable[Reason]) -> Table:
    """Return the reasons, the commonest first, with the sources they touch."""
    body = table(("runs", "<reason~", "<sources~"))
    for reason in reasons:
        body.add_row(f"{reason.rows:,}", reason.reason, ", ".join(reason.sources))
    return body


def run_page(row: Row, case: Case | None) -> Group:
    """Return one run beside its prediction; with the case, also every default that it needed."""
    lines: list[tuple[str, RenderableType]] = [("run", f"{row.id} ({row.source_key})")]
    lines += [("step time", _compared(row.predicted_step_s, row.measured_step_s, row.step_error, duration))]
    if row.p10_s is not None and row.p90_s is not None:
        lines += [("p10-p90", f"{duration(row.p10_s)} to {duration(row.p90_s)}")]
    if row.measured_memory_bytes is not None:
        memory = _compared(row.predicted_memory_bytes, row.measured_memory_bytes, row.memory_error, both_gigabytes)
        lines += [("memory", memory)]
    lines += [("not predicted", Text(row.reason, style="yellow"))] if row.reason else []
    if case is None:
        return Group(facts(lines))
    defaults = section("Defaults for what the source leaves out", bullets(case.assumptions))
    return Group(facts(lines), defaults, Text())


def _compared(
    predicted: float | None, measured: float | None, error: float | None, show: Callable[[float], str]
) -> str:
    words = [f"predicted {show(predicted)}"] if predicted is not None else []
    words += [f"measured {show(measured)}"] if measured is not None else ["not measured"]
    words += [f"error {error:+.1%}"] if error is not None else []
    return ", ".join(words)
