"""Linkscale's communication table in the same form as a recording."""

from __future__ import annotations

from collections import Counter
from typing import Any

from linkscale.estimate import Communication, estimate_step
from linkscale.plan.strategy import Strategy
from linkscale.workload import Architecture
from tests.estimate.clusters import cluster
from tests.oracles.block import ARCH, SEQ
from tests.oracles.recorder import Call


def rows(
    global_batch: int, *, arch: Architecture = ARCH, seq: int = SEQ, groups: tuple[str, ...], **strategy: Any
) -> list[Communication]:
    """Return the rows of some parallelisms (``groups``) in Linkscale's table of one step."""
    chosen = Strategy(**{"attention": "flash", "recompute": "none", **strategy})
    found = estimate_step(arch, cluster(chosen.gpus), chosen, seq, global_batch)
    return [row for row in found.communication if row.group in groups]


def table(global_batch: int, **job: Any) -> Counter[Call]:
    """Return how often each collective is called in one step."""
    calls: Counter[Call] = Counter()
    for row in rows(global_batch, **job):
        assert row.count == round(row.count), row
        assert row.size_bytes == round(row.size_bytes), row
        calls[Call(row.collective, row.ranks, round(row.size_bytes))] += round(row.count)
    return calls
