"""The pages of ``catalog``: a kind with one line an entry, and an entry with every fact beside its source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from linkscale.hardware.facts import Fact
from linkscale.report.catalog import Entry, Kind, Listing
from linkscale.report.layout import ROOMY, Fluid, facts, section, table
from linkscale.report.text import large, significant

Row = dict[str, Fact]
Cell = Callable[[Row], str]


class Column(NamedTuple):
    """One column of a kind's table; ``roomy`` ones need a wide terminal."""

    title: str
    cell: Cell
    roomy: bool = False


def listing_page(found: Listing) -> Group:
    """Return the page of a kind."""
    body = Fluid(lambda width: _table(found, [c for c in TABLES[found.kind] if width >= ROOMY or not c.roomy]))
    hint = Text(f"\n`linkscale catalog {found.kind} NAME` shows every fact with its source.", style="bright_black")
    return Group(section(f"{len(found.entries)} {found.kind}", body, note=NOTES[found.kind]), hint)


def _table(found: Listing, columns: Sequence[Column]) -> RenderableType:
    body = table(("<name", *(column.title for column in columns)))
    for entry in found.entries:
        row = {fact.name: fact for fact in entry.facts}
        body.add_row(entry.name.lower(), *(column.cell(row) for column in columns))
    return body


def entry_page(entry: Entry) -> Group:
    """Return the page of one entry: blocks of facts, each with its source and what others print."""
    title = Text(entry.name, style="bold") + Text(f"  {entry.title}", style="bright_black")
    parts: list[RenderableType] = [title]
    parts += [Text(f"others print: {entry.disagreement}", style="yellow")] if entry.disagreement else []
    parts += [Text(entry.note)] if entry.note else []
    for block, rows in groupby(entry.facts, key=_block):
        parts.append(section(_words(block) or "what it is", facts(_lines(list(rows)))))
    return Group(*parts)


def _block(fact: Fact) -> str:
    return fact.name.rpartition(".")[0]


def _field(fact: Fact) -> str:
    return _words(fact.name.rpartition(".")[2])


def _words(name: str) -> str:
    return name.replace("_", " ").replace(".", " ")


def _lines(rows: Sequence[Fact]) -> list[tuple[str, RenderableType]]:
    """Return the facts of a block; a source of their own stands beside it, the common one below."""
    common = max((row.source for row in rows), key=[row.source for row in rows].count)
    lines: list[tuple[str, RenderableType]] = []
    for row in rows:
        own = f"  [{row.source}]" if row.source != common else ""
        lines.append((_field(row), Text.assemble(row.text, (own, "bright_black"))))
    lines.append(("source", Text(common, style="bright_black")))
    lines += [("others print", Text(rows[0].disagreement, style="yellow"))] if rows[0].disagreement else []
    return lines + ([("note", Text(rows[0].note, style="bright_black"))] if rows[0].note else [])


def _text(name: str) -> Cell:
    return lambda row: row[name].text if name in row else "-"


def _lower(name: str) -> Cell:
    return lambda row: row[name].text.lower() if name in row else "-"


def _scaled(scale: float, *names: str, digits: int = 4) -> Cell:
    """Return a cell with the first of the facts that there is, in a unit of that scale."""

    def cell(row: Row) -> str:
        found = next((row[name].value for name in names if name in row), None)
        if found is None:
            return "-"
        shown = significant(found / scale, digits)
        return shown.rstrip("0").rstrip(".") if "." in shown else shown

    return cell


def _gbps_per_node(row: Row) -> str:
    ports, rate = row["scaleout.ports_per_node"].value, row["scaleout.bandwidth_per_port_per_direction"].value
    return "-" if ports is None or rate is None else significant(ports * rate * 8 / 1e9).split(".")[0]


def _parameters(row: Row) -> str:
    return large(row["parameters"].value or 0.0)


_PEAK = "peak_dense_per_gpu."
_LINKS = ("nvlink_per_gpu.bandwidth_per_direction", "peer_links_per_gpu.bandwidth_per_direction")

NOTES: dict[Kind, str] = {
    "gpus": "per GPU; TFLOP/s dense; links GB/s per direction",
    "systems": "GPUs and network Gb/s per node and direction; GPUs in a scale-up domain",
    "nics": "per card and direction",
    "switches": "ports per direction, capacity both directions",
    "nvswitches": "by generation",
    "models": "packaged configurations",
}

TABLES: dict[Kind, tuple[Column, ...]] = {
    "gpus": (
        Column("GiB", _scaled(2.0**30, "memory_per_gpu.usable", digits=3)),
        Column("TB/s", _scaled(1e12, "memory_per_gpu.bandwidth", digits=3)),
        Column("bf16", _scaled(1e12, f"{_PEAK}bf16", f"{_PEAK}fp16")),
        Column("fp8", _scaled(1e12, f"{_PEAK}fp8")),
        Column("link", _scaled(1e9, *_LINKS, digits=3)),
        Column("PCIe", _scaled(1e9, "pcie_per_gpu.bandwidth_x16_per_direction", digits=3)),
        Column("W", _scaled(1.0, "power_per_gpu.value")),
        Column("SMs", _text("sms_per_gpu.value"), roomy=True),
        Column("<architecture", _text("arch"), roomy=True),
    ),
    "systems": (
        Column("GPUs", _text("gpus_per_node")),
        Column("<GPU", _lower("gpu")),
        Column("domain", _text("scaleup.domain_gpus")),
        Column("<linked by", _text("scaleup.kind"), roomy=True),
        Column("Gb/s", _gbps_per_node),
        Column("<network", _text("scaleout.kind"), roomy=True),
        Column("<host", _text("host.vendor"), roomy=True),
    ),
    "nics": (
        Column("rate", _text("bandwidth_per_card_per_direction")),
        Column("PCIe", _text("pcie_generation")),
        Column("power", _text("power")),
    ),
    "switches": (
        Column("<kind", _text("kind")),
        Column("ports", _text("ports")),
        Column("port", _text("bandwidth_per_port_per_direction")),
        Column("capacity", _text("capacity_both_directions")),
        Column("<reduces", _text("in_switch_reduction")),
    ),
    "nvswitches": (
        Column("NVLink", _text("nvlink_generation")),
        Column("ports", _text("ports")),
        Column("<reduces", _text("in_switch_reduction")),
        Column("<GPUs in a domain~", _text("domain_gpus")),
    ),
    "models": (
        Column("parameters", _parameters),
        Column("layers", _text("layers")),
        Column("hidden", _text("hidden")),
        Column("heads", _text("heads")),
        Column("kv", _text("kv_heads")),
        Column("vocabulary", _text("vocab")),
    ),
}
