"""Puts the figures of docs/evidence/*.json into the pages that show them: `python benchmarks/tables.py`.

A page marks the place::

    <!-- evidence: accuracy figures -->
    <!-- end of evidence -->

A test compares the pages with the evidence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from evidence import FOLDER, ROOT

BLOCK = re.compile(r"(<!-- evidence: ([a-z ]+) -->\n).*?(<!-- end of evidence -->)", re.DOTALL)
Document = dict[str, Any]


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table whose first column is text and whose others are figures."""
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "--:|" * (len(heads) - 1)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


def percent(value: float | None, sign: str = "") -> str:
    """Format a share, with its sign on demand; nothing where there is none."""
    return "" if value is None else f"{value:{sign}.1%}"


def accuracy_figures(found: Document) -> str:
    """Return the headline figures."""
    rows = (
        (f["name"], percent(f["value"]), f"{f['runs']:,}", f"{f['at_most']:.0%}" if f["at_most"] else "")
        for f in found["figures"]
    )
    inside = found["interval"]
    kept = ("measured step within p10–p90, mean of the sources", percent(inside["sources"]), _scored(found), "")
    return table(("step time", "figure", "runs", "at most"), [*rows, kept])


def _scored(found: Document) -> str:
    return f"{found['runs']['scored']:,}"


def accuracy_sources(found: Document) -> str:
    """Return the errors by source."""
    rows = []
    for source in found["sources"]:
        step = source["step"]
        if step:
            sizes = [percent(step[name]) for name in ("median", "mean", "p90")]
            inside = percent(source["within"])
            rows.append(
                (f"`{source['name']}`", source["rows"], step["runs"], *sizes, percent(step["bias"], "+"), inside)
            )
    heads = ("source", "rows", "scored", "median", "mean", "p90", "bias", "within p10–p90")
    return table(heads, rows)


def accuracy_left_out(found: Document) -> str:
    """Return why rows were not predicted."""
    rows = ((r["reason"], r["rows"]) for r in found["not_predicted"])
    return table(("not predicted", "rows"), rows)


def accuracy_unexplained(found: Document) -> str:
    """Return the groups that share a cause."""
    rows = (
        (g["name"], g["runs"], *(percent(g[name], "+") for name in ("median", "least", "most")))
        for g in found["unexplained"]
    )
    return table(("runs", "how many", "median", "from", "to"), rows)


def accuracy_memory(found: Document) -> str:
    """Return the errors of memory by source."""
    rows = (
        (f"`{m['source']}`", m["kind"], m["runs"], percent(m["median"]), percent(m["mean"]), percent(m["bias"], "+"),
         f"{m['at_most']:.0%}")
        for m in found["memory"]
    )  # fmt: skip
    return table(("source", "counted as", "runs", "median", "mean", "bias", "median at most"), rows)


def families_parameters(found: Document) -> str:
    """Return the fitted parameters beside their priors."""
    rows = (
        (f"`{name}`", v["prior"], f"±{v['spread']:.0%}", v["shipped"], v["fitted"])
        for name, v in found["parameters"].items()
    )
    return table(("parameter", "prior", "spread", "ships", "fit at this commit"), rows)


def families_families(found: Document) -> str:
    """Return how each family is predicted by a fit without it."""
    rows = (
        (f["family"], f["runs"], *(percent(f[name]) for name in ("median", "mean", "p90")), percent(f["bias"], "+"))
        for f in found["families"]
    )
    return table(("left out", "runs", "median", "mean", "p90", "bias"), rows)


def families_sources(found: Document) -> str:
    """Return the mean errors of single sources under a fit without their family."""
    rows = ((f"`{s}`", f["family"], percent(mean)) for f in found["families"] for s, mean in f["source_means"].items())
    return table(("source", "left out with", "mean"), rows)


def search_speed(found: Document) -> str:
    """Return what the search does in a second, and what whole commands take."""
    rows: list[tuple[str, str, str]] = [
        ("strategies screened a second, one core", f"{found['strategies_per_s']:,}", "at least 200,000"),
        ("strategies in the space, all legal and distinct", f"{found['strategies']:,}", "at least 500,000"),
    ]
    limits = {"gpt3-175b": (4, "400 MB"), "llama-3.1-405b": (5, ""), "deepseek-v3": (10, "")}
    for command, took in found["commands"].items():
        seconds, memory = limits[command.split()[1]]
        rows.append((f"`linkscale {command}`", f"{took['seconds']:.1f} s", f"at most {seconds} s"))
        if memory:
            rows.append(("its peak memory", f"{took['peak_rss_bytes'] / 1e6:.0f} MB", f"at most {memory}"))
    return table(("what", "measured", "must be"), rows)


def search_axes(found: Document) -> str:
    """Return the space that the benchmark screens."""
    rows = ((f"`{name}`", len(v), ", ".join(map(_said, v))) for name, v in found["axes"].items() if len(v) > 1)
    return table(("axis", "values", "which"), rows)


def _said(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def startup_times(found: Document) -> str:
    """Return how long a user waits."""
    rows = (
        (f"`{r['what']}`", f"{1e3 * r['seconds']:.0f} ms", f"{1e3 * r['at_most']:.0f} ms" if r["at_most"] else "")
        for r in found["rows"]
    )
    return table(("what", "measured", "at most"), rows)


def made(document: Document) -> str:
    """Return by which command, from which tree and on which machine a result was made."""
    machine = document["machine"]
    where = f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}"
    return f"`{document['command']}` at commit `{document['commit'][:12]}`, on {where}."


FIGURES: dict[str, tuple[str, Callable[[Document], str]]] = {
    "accuracy figures": ("accuracy", accuracy_figures),
    "accuracy sources": ("accuracy", accuracy_sources),
    "accuracy left out": ("accuracy", accuracy_left_out),
    "accuracy unexplained": ("accuracy", accuracy_unexplained),
    "accuracy memory": ("accuracy", accuracy_memory),
    "fitted parameters": ("families", families_parameters),
    "families": ("families", families_families),
    "sources left out": ("families", families_sources),
    "search speed": ("search_speed", search_speed),
    "search axes": ("search_speed", search_axes),
    "startup": ("startup", startup_times),
}
"""By name of a block: the evidence that it shows, and how."""

MADE = {
    "how accuracy was measured": "accuracy",
    "how families were left out": "families",
    "how search was timed": "search_speed",
    "how startup was timed": "startup",
}
"""By name of a block: the evidence whose command, commit and machine it tells."""

BLOCKS = {*FIGURES, *MADE}


def rendered(text: str) -> str:
    """Return a page with every block as the evidence has it now."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{_block(found[2])}\n\n{found[3]}", text)


def _block(name: str) -> str:
    if name in MADE:
        return made(_document(MADE[name]))
    evidence, render = FIGURES[name]
    return render(_document(evidence)["result"])


def _document(evidence: str) -> Document:
    document: Document = json.loads((FOLDER / f"{evidence}.json").read_text())
    return document


def pages() -> list[Any]:
    """Return the pages that hold blocks."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if "_build" not in page.parts and BLOCK.search(page.read_text())]


def main() -> None:
    """Rewrite the pages."""
    for page in pages():
        before = page.read_text()
        after = rendered(before)
        if after != before:
            page.write_text(after)
            print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
