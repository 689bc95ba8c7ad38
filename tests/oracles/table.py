"""Linkscale's communication table in the same form as a recording."""

from __future__ import annotations

from collections import Counter
from typing import Any

from linkscale.estimate import estimate_step
from linkscale.plan.strategy import Strategy
from linkscale.workload import Architecture
from tests.estimate.clusters import cluster
from tests.oracles.block import ARCH, SEQ
from tests.oracles.recorder import Call


def table(
    global_batch: int, *, arch: Architecture = ARCH, seq: int = SEQ, groups: tuple[str, ...] = (), **strategy: Any
) -> Counter[Call]:
    """Return how often each collective is called in one step; ``groups`` picks some of the parallelisms."""
    chosen = Strategy(**{"attention": "flash", "recompute": "none", **strategy})
    found = estimate_step(arch, cluster(chosen.gpus), chosen, seq, global_batch)
    calls: Counter[Call] = Counter()
    for row in found.communication:
        if not groups or row.group in groups:
            assert row.count == round(row.count), row
            assert row.size_bytes == round(row.size_bytes), row
            calls[Call(row.collective, row.ranks, round(row.size_bytes))] += round(row.count)
    return calls
