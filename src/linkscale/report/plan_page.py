"""The page of ``plan``: the best plan, the ranking, and the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from linkscale.estimate.result import Estimate
from linkscale.plan.strategy import Strategy
from linkscale.report.bars import MEMORY_MARKS, TIME_MARKS
from linkscale.report.context import Asked
from linkscale.report.layout import ROOMY, Fluid, bullets, facts, section, table
from linkscale.report.predict_page import answers, header, strip
from linkscale.report.text import count, duration, gigabytes, large, percent, significant, size
from linkscale.report.words import (
    DEGREES,
    MEMORY_WORDS,
    TIME_WORDS,
    choices,
    degrees,
    recompute,
    sharding,
    strategy_line,
)
from linkscale.search.result import (
    Difference,
    Explanation,
    Loser,
    MemoryPart,
    ParetoPoint,
    PlanEntry,
    PlanResult,
    Relaxation,
    Space,
    Upgrade,
    Why,
)

PARETO_ROWS = 8
"""Points of the Pareto front on the page; the JSON document holds all."""

VERDICTS = {"illegal": "cannot run: ", "short": "does not fit: ", "slower": "slower: "}
"""What comes before a reason that does not say it itself."""

NOTED = 0.01
"""A cause of at least this share of the largest is worth a line beside it; the JSON document holds all."""


def plan_page(result: PlanResult, asked: Asked) -> Group:
    """Return the page of one search."""
    best = result.plans[0]
    explanation = result.explanation
    parts: list[RenderableType] = [
        header(asked),
        section("Best plan", strategy_line(best.strategy), *answers(best.estimate), *_strips(best)),
        section(f"Top {len(result.plans)} of {result.space.fit:,} that fit", *_ranking(result.plans)),
        *(_why(answer, best) for answer in result.why),
        *_reasons(explanation, result.plans),
        *_limits(explanation),
        *_pareto(result.pareto, best),
        section("What was searched", *_space(result.space)),
    ]
    warnings = best.estimate.warnings
    parts += [section("Warnings on the best plan", bullets(warnings, "!", "yellow"))] if warnings else []
    return Group(*parts)


def _strips(best: PlanEntry) -> Iterator[RenderableType]:
    estimate = best.estimate
    yield Text(f"\ntime of a step: {duration(estimate.step_s, 4)}", style="bright_black")
    yield strip(TIME_MARKS, estimate.breakdown_s, estimate.step_s)
    memory = f"{gigabytes(estimate.memory_bytes.total)} of {gigabytes(estimate.device_capacity_bytes)} GB"
    yield Text(f"memory of the fullest GPU: {memory}", style="bright_black")
    total = estimate.memory_bytes.total
    yield strip(MEMORY_MARKS, estimate.memory_bytes, total, estimate.device_capacity_bytes)


def _ranking(plans: Sequence[PlanEntry]) -> Iterator[RenderableType]:
    """Yield what all plans share, and a table of what they don't."""
    words = [[p.strategy.stack, *choices(p.strategy)] for p in plans]
    shared = [word for word in words[0] if all(word in row for row in words)]
    if shared:
        yield Text("all: " + " · ".join(shared), style="bright_black")
    own = [" · ".join(word for word in row if word not in shared) for row in words]
    yield Fluid(lambda columns: _ranks(plans, own, columns))


def _ranks(plans: Sequence[PlanEntry], own: Sequence[str], columns: int) -> RenderableType:
    roomy = columns >= ROOMY
    names = _varying(plans)
    numbers = ("step", "slower", *(("p10 to p90",) if roomy else ()), "tokens/s" if not roomy else "tokens/s/GPU")
    differs = ("<differs in~",) if any(own) else ()
    body = table(("#", *names, "mb", *differs, *numbers, "MFU", "GB"), gap=2 if roomy else 1)
    for rank, (entry, words) in enumerate(zip(plans, own, strict=True), 1):
        estimate, strategy = entry.estimate, entry.strategy
        interval = f"{duration(estimate.p10_s)} to {duration(estimate.p90_s)}"
        slower = f"+{estimate.step_s / plans[0].estimate.step_s - 1:.1%}" if rank > 1 else ""
        row = [str(rank), *(f"{getattr(strategy, name.lower()):,}" for name in names), str(strategy.micro_batch)]
        row += [words] if any(own) else []
        row += [duration(estimate.step_s, 4), slower, *([interval] if roomy else [])]
        row += [significant(estimate.tokens_per_s_per_gpu), percent(estimate.mfu)]
        body.add_row(*row, f"{estimate.memory_bytes.total / 1e9:.1f}", style="bold" if rank == 1 else "")
    return body


def _varying(plans: Sequence[PlanEntry]) -> list[str]:
    """Return the degrees that the table shows: those in use, and the number of GPUs where it differs."""
    used = [name for name in DEGREES if any(getattr(p.strategy, name) > 1 for p in plans)]
    return (["GPUs"] if len({p.strategy.gpus for p in plans}) > 1 else []) + used


def _reasons(explanation: Explanation, plans: Sequence[PlanEntry]) -> Iterator[RenderableType]:
    if explanation.best_vs_next and len(plans) > 1:
        extra = plans[1].estimate.step_s - plans[0].estimate.step_s
        head = f"the next takes {duration(extra)} longer: {strategy_line(plans[1].strategy)}"
        yield section("Why the best beats the next", Text(head), _differences(explanation.best_vs_next))
    if explanation.losers:
        body = Fluid(lambda columns: _losers(explanation.losers, columns))
        yield section("Why popular settings lose", body)


def _differences(rows: Sequence[Difference]) -> RenderableType:
    body = table(("<cause", "more", "<what it is~"))
    for row in rows:
        sign = "+" if row.seconds > 0 else "-"
        body.add_row(row.key, f"{sign}{duration(abs(row.seconds))}", TIME_WORDS[row.key])
    return body


def _why(why: Why, best: PlanEntry) -> RenderableType:
    """Answer one layout asked about: the verdict, the strategy behind it, and what differs from the best plan."""
    asked = ", ".join(f"{name} {_value(name, value)}" for name, value in why.asked.items())
    rows: list[tuple[str, RenderableType]] = [("answer", VERDICTS.get(why.answer, "") + why.reason)]
    if why.strategy is not None and why.answer != "chosen":
        rows.append(("leanest such" if why.answer == "short" else "best such", strategy_line(why.strategy)))
        changes = (f"{d.field} {_value(d.field, d.value)} not {_value(d.field, d.best)}" for d in why.departures)
        rows.append(("differs in", ", ".join(changes)))
    if why.inside_interval is not None:
        rows.append(("certainty", _certainty(why.inside_interval, best.estimate)))
    rows += [("if it fitted", why.unlimited)] if why.unlimited else []
    rows += [("way out", why.way_out)] if why.way_out else []
    noted = [row for row in why.differences if abs(row.seconds) >= NOTED * abs(why.differences[0].seconds)]
    tables: list[RenderableType] = [_differences(noted)] if noted else []
    tables += [_memory_parts(why.memory)] if why.memory else []
    return section(f"Why not {asked}", facts(rows), *tables)


def _certainty(inside: bool, best: Estimate) -> str:
    interval = f"the best plan's p10-p90 of {duration(best.p10_s)} to {duration(best.p90_s)}"
    if inside:
        return f"inside {interval}: the estimate alone cannot tell the two apart; measure both"
    return f"outside {interval}: more than the estimate usually errs"


def _memory_parts(rows: Sequence[MemoryPart]) -> RenderableType:
    """Show the parts of memory that grew."""
    body = table(("<memory", "GB", "best plan", "more", "<what it is~"))
    more = [row.size_bytes - row.best_bytes for row in rows]
    for row, extra in zip(rows, more, strict=True):
        if extra >= NOTED * more[0]:
            sizes = (gigabytes(row.size_bytes), gigabytes(row.best_bytes), f"+{gigabytes(extra)}")
            body.add_row(row.key, *sizes, MEMORY_WORDS[row.key])
    return body


def _losers(losers: Sequence[Loser], columns: int) -> RenderableType:
    roomy = columns >= ROOMY
    body = table(("<setting~", "step", "<why not~", *(("<as~",) if roomy else ())))
    for loser in losers:
        step = "-" if loser.step_s is None else duration(loser.step_s)
        layout = _short(loser.strategy) if loser.strategy else ""
        body.add_row(loser.label, step if loser.fits else Text(step, style="red"), loser.reason, *([layout] * roomy))
    return body


def _short(strategy: Strategy) -> str:
    """Name a strategy in few words: those in which neighbours on a page differ."""
    saved = [sharding(strategy)] if strategy.stack != "megatron" or strategy.sharding != "zero1" else []
    layout = " ".join([strategy.stack, *degrees(strategy), f"mb {strategy.micro_batch}", *saved])
    return f"{layout} recompute {recompute(strategy)}"


def _limits(explanation: Explanation) -> Iterator[RenderableType]:
    limits = [_relaxed(explanation.relaxations)] if explanation.relaxations else []
    yield section("What holds it back", Text(explanation.binding), *limits)
    if explanation.upgrades:
        yield section("What one change of hardware would buy", _upgrades(explanation.upgrades))


def _relaxed(rows: Sequence[Relaxation]) -> RenderableType:
    body = table(("<without the limit~", "step", "less", "<best then~"))
    for row in rows:
        body.add_row(row.limit, duration(row.step_s), percent(row.gain), _short(row.strategy))
    return body


def _upgrades(rows: Sequence[Upgrade]) -> RenderableType:
    body = table(("<change~", "step", "less"))
    for row in rows:
        body.add_row(row.change, duration(row.step_s), percent(row.gain))
    return body


def _pareto(points: Sequence[ParetoPoint], best: PlanEntry) -> Iterator[RenderableType]:
    """Yield the front where it offers a choice beside the best plan."""
    if len(points) < 2:
        return
    several = len({point.gpus for point in points}) > 1
    body = table(("tokens/s", "GB free", *(("GPUs",) if several else ()), "<strategy~"))
    for point in points[:PARETO_ROWS]:
        name = "the best plan" if point.strategy == best.strategy else _short(point.strategy)
        gpus = (f"{point.gpus:,}",) if several else ()
        body.add_row(large(point.tokens_per_s), f"{point.memory_headroom_bytes / 1e9:.1f}", *gpus, name)
    more = [Text(f"and {len(points) - PARETO_ROWS:,} more", style="bright_black")] * (len(points) > PARETO_ROWS)
    yield section("Trade-offs", body, *more, note="speed, memory headroom, GPUs: none beats another in all")


def _space(space: Space) -> Iterator[RenderableType]:
    whole = f"{space.legal:,} legal strategies in {space.seconds:.2f} s"
    yield Text(f"{whole}: {space.fit:,} fit, {space.evaluated:,} computed, {space.pruned:,} pruned")
    varied = [
        (name, " ".join(_value(name, v) for v in values)) for name, values in space.axes.items() if len(values) > 1
    ]
    held = [f"{name} {_value(name, values[0])}" for name, values in space.axes.items() if len(values) == 1]
    yield facts([*varied, ("held fixed", ", ".join(held))] if held else varied)


def _value(name: str, value: object) -> str:
    match value:
        case bool():
            return "on" if value else "off"
        case int() if name.endswith("_bytes"):
            return size(value) if value else "own"
        case int():
            return count(float(value))
        case _:
            return str(value)
