"""The pages as a reader sees them, at 80 and at 160 columns."""

from __future__ import annotations

import io

import pytest
from rich.console import RenderableType

from linkscale.estimate.result import BREAKDOWN_KEYS, Breakdown, Memory
from linkscale.plan.strategy import Strategy
from linkscale.report.bars import MEMORY_MARKS, TIME_MARKS
from linkscale.report.console import ASCII, progress, show
from linkscale.report.context import Asked, AskedStrategy
from linkscale.report.plan_page import plan_page
from linkscale.report.predict_page import estimate_page
from linkscale.report.words import MEMORY_WORDS, TIME_WORDS, strategy_line
from tests.report.fixtures import ASKED, CLUSTER, JOB, MEMORY, estimate, plan_result


def printed(page: RenderableType, width: int) -> str:
    file = io.StringIO()
    show(page, file, width)
    return file.getvalue()


@pytest.mark.parametrize("width", [80, 160])
def test_the_page_of_predict(snapshot, width):
    assert printed(estimate_page(estimate(), ASKED), width) == snapshot


@pytest.mark.parametrize("width", [80, 160])
def test_the_page_of_plan(snapshot, width):
    assert printed(plan_page(plan_result(), JOB), width) == snapshot


@pytest.mark.parametrize("width", [40, 60, 80, 119, 120, 160, 240])
@pytest.mark.parametrize("page", [estimate_page(estimate(), ASKED), plan_page(plan_result(), JOB)])
def test_no_line_is_wider_than_the_terminal_and_none_ends_in_blanks(page, width):
    lines = printed(page, width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert not [line for line in lines if line != line.rstrip()]


@pytest.mark.parametrize("page", [estimate_page(estimate(), ASKED), plan_page(plan_result(), JOB)])
def test_piped_pages_hold_no_control_characters(page):
    assert "\x1b" not in printed(page, 80)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colour_unless_no_color_is_set(monkeypatch):
    def drawn() -> str:
        file = Terminal()
        show(estimate_page(estimate(), ASKED), file, 80)
        return file.getvalue()

    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    assert "\x1b[32m" in drawn()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in drawn()
    assert "██" in drawn()


def test_the_time_rows_add_up_to_the_step_as_printed():
    lines = printed(estimate_page(estimate(), ASKED), 80).splitlines()
    start = next(i for i, line in enumerate(lines) if "cause" in line and "share" in line)
    numbers: list[float] = []
    for line in lines[start + 1 :]:
        words = line.split()
        if words[0] == "step":
            assert float(words[1]) == pytest.approx(sum(numbers), abs=0.004)
            break
        numbers.append(float(words[2]))
    assert len(numbers) == 8


def test_every_cause_has_its_own_mark_and_words():
    assert tuple(TIME_MARKS) == tuple(TIME_WORDS) == BREAKDOWN_KEYS == Breakdown.__struct_fields__
    assert tuple(MEMORY_MARKS) == tuple(MEMORY_WORDS) == Memory.__struct_fields__[:-1]
    for marks in (TIME_MARKS, MEMORY_MARKS):
        assert len({mark.glyph for mark in marks.values()}) == len(marks)


def test_what_does_not_fit_says_by_how_much_and_shows_the_end_of_the_gpu():
    big = {name: 2 * getattr(MEMORY, name) for name in Memory.__struct_fields__}
    over = estimate(memory_bytes=Memory(**big), device_bytes=135.48e9, fits=False)
    text = printed(estimate_page(over, ASKED), 80)
    assert "Does not fit: the fullest GPU needs 49.98 GB (46.55 GiB) more than it has." in text
    assert "end of the GPU's memory ^" in text


def test_a_page_without_messages_and_notes_leaves_their_sections_out():
    bare = estimate(communication=(), assumptions=(), warnings=())
    text = printed(estimate_page(bare, AskedStrategy(Asked("tiny", CLUSTER, 8, 8), Strategy())), 80)
    assert not [word for word in ("Communication", "Assumptions", "Warnings") if word in text]
    assert "no parallelism" in text


def test_text_from_outside_is_shown_as_it_is():
    """Names come from files: square brackets and colons are not markup, and long names do not break the page."""
    job = Asked("[red]x[/red] :smile: " + "y" * 200, CLUSTER, 8192, 2048)
    text = printed(estimate_page(estimate(warnings=("[bold]no[/bold]",)), AskedStrategy(job, Strategy(dp=16384))), 80)
    assert "[red]x[/red] :smile:" in text
    assert "[bold]no[/bold]" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_an_output_without_these_characters_gets_ascii_marks():
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    show(estimate_page(estimate(), ASKED), file, 80)
    assert b"step time" in raw.getvalue()
    assert b"######" in raw.getvalue()
    assert b"?" not in raw.getvalue()
    assert len(set(ASCII.values())) == len(ASCII), "no two causes look alike"
    assert {mark.glyph for mark in (*TIME_MARKS.values(), *MEMORY_MARKS.values())} <= set(map(chr, ASCII))


def test_a_terminal_too_narrow_for_the_tables_wraps_whole_lines(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    file = io.StringIO()
    show(estimate_page(estimate(), ASKED), file)
    assert file.getvalue() == printed(estimate_page(estimate(), ASKED), 60)


@pytest.mark.parametrize(
    ("strategy", "line"),
    [
        (Strategy(), "megatron · no parallelism · micro-batch 1 · recompute selective · bf16 · flash"),
        (
            Strategy(stack="fsdp2", sharding="hsdp", shard_domain=8, dp=64, compile=True, tp_overlap="none"),
            "fsdp2 · dp 64 · micro-batch 1 · hsdp over 8 · recompute selective · bf16 · flash · compiled",
        ),
        (
            Strategy(tp=2, dp=4, pp=2, sharding="none", sequence_parallel=False, recompute="full", recompute_layers=3,
                     schedule="gpipe", compression="int8", hierarchical=True, bucket_bytes=25_000_000,
                     overlap_grad_reduce=False, tp_overlap="ring"),
            "megatron · tp 2 · pp 2 · dp 4 · micro-batch 1 · not sharded · recompute full of 3 layers · bf16 · flash · "
            "gradients compressed to int8 · hierarchical exchange · buckets of 25.0 MB · schedule gpipe · "
            "tp overlap ring · gradient exchange not overlapped",
        ),
    ],
)  # fmt: skip
def test_a_strategy_in_one_line(strategy, line):
    assert strategy_line(strategy) == line


def test_progress_is_silent_when_nobody_watches(capsys):
    with progress("searching") as advance:
        advance(1, 2)
    assert capsys.readouterr() == ("", "")
