"""The page of ``predict``: the step, where its time goes, what is sent, what fills the memory."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from linkscale.estimate.result import BREAKDOWN_KEYS, Breakdown, Communication, Estimate, Memory
from linkscale.report.bars import FREE, MEMORY_MARKS, TIME_MARKS, Mark, Segment, stacked
from linkscale.report.context import Asked, AskedStrategy
from linkscale.report.layout import ROOMY, Fluid, bullets, facts, section, table
from linkscale.report.text import (
    both_gigabytes,
    count,
    duration,
    duration_unit,
    gigabytes,
    large,
    percent,
    plural,
    significant,
    size,
)
from linkscale.report.words import LEVEL_WORDS, MEMORY_WORDS, TIME_WORDS, cluster_lines, strategy_line, training_lines


def estimate_page(estimate: Estimate, asked: AskedStrategy) -> Group:
    """Return the page of one estimate."""
    parts: list[RenderableType] = [
        header(asked.job, strategy_line(asked.strategy), f"{plural(asked.micro_batches, 'micro-batch', 'es')} a step"),
        *answers(estimate),
        section("Time of a step", time_breakdown(estimate)),
        *_communication(estimate),
        section("Memory of the fullest GPU", memory_breakdown(estimate)),
    ]
    parts += [section("Assumptions", bullets(estimate.assumptions))] if estimate.assumptions else []
    parts += [section("Warnings", bullets(estimate.warnings, "!", "yellow"))] if estimate.warnings else []
    return Group(*parts)


def header(job: Asked, strategy: str = "", micro_batches: str = "") -> RenderableType:
    """Return what was asked: model, cluster with Gb/s per GPU and per node, and the strategy in one line."""
    model = job.model + (f" · {large(job.parameters)} parameters" if job.parameters else "")
    tokens = large(float(job.global_batch) * job.seq_len)
    batch = f"{job.global_batch:,} sequences of {job.seq_len:,} tokens = {tokens} tokens a step"
    rows = [("model", model), ("batch", batch + (f", {micro_batches}" if micro_batches else ""))]
    rows += training_lines(job)
    rows += cluster_lines(job.cluster)
    return facts([*rows, ("strategy", strategy)] if strategy else rows)


def answers(estimate: Estimate) -> Iterator[RenderableType]:
    """Yield the headline numbers, each with its convention."""
    scale, unit = duration_unit(estimate.step_s)
    low, mid, high = (significant(s / scale) for s in (estimate.p10_s, estimate.step_s, estimate.p90_s))
    peak = f"{significant(estimate.mfu_peak_flops / 1e12)} TFLOP/s dense"
    rows = [
        ("step time", f"{mid} {unit}", f"p10-p90: {low} to {high} {unit}"),
        ("throughput", significant(estimate.tokens_per_s_per_gpu), "tokens/s per GPU"),
        ("MFU", percent(estimate.mfu), f"of {peak}; attention counted in full, as papers do"),
        ("MFU causal", percent(estimate.mfu_causal), "attention counted only where the mask lets it look"),
        ("HFU", percent(estimate.hfu), "MFU with recomputation counted"),
    ]
    body = table(("<", "<", "<~"))
    body.show_header = False
    for name, value, note in rows:
        body.add_row(Text(name, style="bright_black"), Text(value, style="bold"), Text(note, style="bright_black"))
    yield Text()
    yield body
    if not estimate.fits:
        short = both_gigabytes(estimate.device_bytes - estimate.device_capacity_bytes)
        yield Text(f"\nDoes not fit: the fullest GPU needs {short} more than it has.", style="bold red")
        yield Text("`linkscale plan` with the same model, cluster and batch looks for one that does.", style="red")


def time_breakdown(estimate: Estimate) -> RenderableType:
    """Return the stacked bar and the table whose rows sum to the step; causes that take no time are left out."""
    shown = [(key, getattr(estimate.breakdown_s, key)) for key in BREAKDOWN_KEYS]
    shown = [(key, seconds) for key, seconds in shown if seconds != 0]
    segments = [Segment(TIME_MARKS[key], max(0.0, seconds)) for key, seconds in shown]
    scale, unit = duration_unit(estimate.step_s)
    body = table(("<", "<cause", unit, "share", "<what it is~"))
    decimals = _decimals(estimate.step_s / scale)
    for key, seconds in shown:
        share = percent(seconds / estimate.step_s)
        body.add_row(_key(TIME_MARKS[key]), key, f"{seconds / scale:,.{decimals}f}", share, TIME_WORDS[key])
    total = f"{estimate.step_s / scale:,.{decimals}f}"
    body.add_row("", *(Text(cell, style="bold") for cell in ("step", total, percent(1.0))), "")
    return Group(Fluid(lambda columns: stacked(segments, columns)), Text(), body)


def strip(marks: dict[str, Mark], values: Breakdown | Memory, total: float, end: float = 0.0) -> RenderableType:
    """Return a stacked bar with its legend in one paragraph; ``end``: draw free room up to there."""
    shown = [(key, mark, getattr(values, key)) for key, mark in marks.items() if getattr(values, key) != 0]
    segments = [Segment(mark, max(0.0, value)) for _, mark, value in shown]
    legend = [
        Text.assemble((mark.glyph * 2, mark.style), f" {key} {percent(value / total)}") for key, mark, value in shown
    ]
    free = [Segment(FREE, max(0.0, end - total))]
    bar = Fluid(lambda columns: against([*segments, *free], total - end if end else 0.0, columns))
    return Group(bar, Fluid(lambda columns: _flow(legend, columns)))


def _flow(words: list[Text], columns: int) -> Text:
    """Set words side by side, each unbroken."""
    lines = [Text()]
    for word in words:
        if lines[-1] and lines[-1].cell_len + 2 + word.cell_len > columns:
            lines.append(Text())
        lines[-1].append("  " if lines[-1] else "").append_text(word)
    return Text("\n").join(lines)


def _decimals(largest: float) -> int:
    """Return the decimals that give a whole column four digits of its largest number."""
    text = significant(largest)
    return len(text.split(".")[1]) if "." in text else 0


def _key(mark: Mark) -> Text:
    return Text(mark.glyph * 2, style=mark.style)


def _communication(estimate: Estimate) -> Iterator[RenderableType]:
    if estimate.communication:
        note = "of one GPU of the critical stage"
        yield section("Communication in a step", Fluid(lambda columns: _messages(estimate, columns)), note=note)


def _messages(estimate: Estimate, columns: int) -> RenderableType:
    roomy = columns >= ROOMY
    names = ("<group", "<what", "<collective", "<algorithm", "<over") if roomy else ("<group", "<what, how, over~")
    body = table((*names, "size", "count", "time", "exposed"), gap=2 if roomy else 1)
    for message in estimate.communication:
        numbers = size(message.size_bytes), count(message.count), duration(message.time_s), duration(message.exposed_s)
        body.add_row(f"{message.group} {message.ranks:,}", *(_wide(message) if roomy else _narrow(message)), *numbers)
    return body


def _wide(message: Communication) -> tuple[RenderableType, ...]:
    how = "/".join(word for word in (message.algorithm, message.protocol) if word)
    return message.what, message.collective, how, LEVEL_WORDS[message.level]


def _narrow(message: Communication) -> tuple[RenderableType, ...]:
    """Say what is sent, and under it how and over which network."""
    _, collective, how, level = _wide(message)
    return (Text.assemble(message.what, "\n", (f"{collective}, {how}, {level}", "bright_black")),)


def memory_breakdown(estimate: Estimate) -> RenderableType:
    """Return the bar against the GPU's capacity and the table whose rows sum to the total."""
    memory = estimate.memory_bytes
    shown = [(key, getattr(memory, key)) for key in MEMORY_MARKS if getattr(memory, key) != 0]
    segments = [Segment(MEMORY_MARKS[key], max(0.0, value)) for key, value in shown]
    free = estimate.device_capacity_bytes - memory.total
    body = table(("<", "<cause", "GB", "of the GPU", "<what it is~"))
    for key, value in shown:
        share = percent(value / estimate.device_capacity_bytes)
        body.add_row(_key(MEMORY_MARKS[key]), key, gigabytes(value), share, MEMORY_WORDS[key])
    share = percent(memory.total / estimate.device_capacity_bytes)
    body.add_row("", *(Text(cell, style="bold") for cell in ("total", gigabytes(memory.total), share)), "")
    bar = Fluid(lambda columns: against([*segments, Segment(FREE, max(0.0, free))], -free, columns))
    return Group(bar, Text(), body, Text(), _levels(estimate))


def against(segments: list[Segment], over: float, columns: int) -> Text:
    """Draw a stacked bar; where it is ``over`` what the GPU has, mark the end of the GPU's memory below the bar."""
    bar = stacked(segments, columns)
    if over <= 0:
        return bar
    total = sum(segment.value for segment in segments)
    end = max(1, round((total - over) / total * columns))
    words = "end of the GPU's memory"
    line = f"{words} ^".rjust(end) if end > len(words) + 1 else "^".rjust(end) + f" {words}"
    return bar.append(f"\n{line}", style="red")


def _levels(estimate: Estimate) -> RenderableType:
    rows = [
        ("allocated", estimate.allocated_bytes, "peak of the tensors"),
        ("reserved", estimate.reserved_bytes, "with what the allocator keeps"),
        ("device", estimate.device_bytes, "with context and libraries: what nvidia-smi shows"),
        ("capacity", estimate.device_capacity_bytes, "of one GPU"),
    ]
    return facts((name, f"{both_gigabytes(value)}, {note}") for name, value, note in rows)
