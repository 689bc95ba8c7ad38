"""Walks the operations of a pipeline in the order each rank runs them: how long it takes, how much each holds.

An operation starts when its rank is free and what it reads is there: a forward needs the stage before, a backward the
stage behind and its own forward, a weight gradient its own backward. Messages take no time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Op(NamedTuple):
    """One operation: ``F`` forward, ``I`` input gradient, ``W`` weight gradient, ``B`` both gradients.

    ``way``: 0, or 1 for micro-batches that enter the pipeline at its other end.
    """

    phase: str
    stage: int
    micro_batch: int
    way: int = 0


Order = Sequence[tuple[Op, ...]]
"""What one rank runs, one after the other; operations of a tuple start and end together."""


class Walked(NamedTuple):
    """When the last rank is through, and the most chunks of which each rank held activations."""

    end: int
    held: list[int]


def walk(orders: Sequence[Order], stages: int, seconds: Sequence[Mapping[str, int]]) -> Walked:
    """Walk the orders of all ranks; ``seconds[stage][phase]``. Fails where they wait for each other forever."""
    done: dict[Op, int] = {}
    clock, place = [0] * len(orders), [0] * len(orders)
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(orders):
            while place[rank] < len(order):
                ops = order[place[rank]]
                needed = [need for op in ops for need in _needs(op, stages)]
                if any(need not in done for need in needed):
                    break
                start = max([clock[rank], *(done[need] for need in needed)])
                clock[rank] = start + sum(seconds[op.stage][op.phase] for op in ops)
                for part in (part for op in ops for part in _parts(op)):
                    assert part not in done, f"{part} runs twice"
                    done[part] = clock[rank]
                place[rank] += 1
                moved = True
    assert all(at == len(order) for at, order in zip(place, orders, strict=True)), f"stuck at {place}"
    return Walked(max(clock), [_held(order) for order in orders])


def _parts(op: Op) -> list[Op]:
    return [op._replace(phase=phase) for phase in ("IW" if op.phase == "B" else op.phase)]


def _needs(op: Op, stages: int) -> list[Op]:
    if op.phase == "W":
        return [op._replace(phase="I")]
    if op.phase == "F":
        return [op._replace(stage=op.stage - 1)] if op.stage else []
    behind = [op._replace(phase="I", stage=op.stage + 1)] if op.stage < stages - 1 else []
    return [op._replace(phase="F"), *behind]


def _held(order: Order) -> int:
    held = most = 0
    for ops in order:
        held += sum(op.phase == "F" for op in ops)
        most = max(most, held)
        held -= sum(op.phase in "BW" for op in ops)
    assert held == 0, "not every forward has its weight gradient"
    return most
