"""Screening against one-by-one evaluation, brute force and itself under other cuts."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from msgspec.structs import replace

from linkscale.estimate import estimate_step, evaluate
from linkscale.search.axes import wide_axes
from linkscale.search.constraints import Constraints
from linkscale.search.screen import screen
from linkscale.search.space import groups
from linkscale.workload import decoder
from tests.search.small import MIXED, PROFILE, axes, cluster, every_legal, job


def test_a_batch_equals_its_members_bit_for_bit() -> None:
    """Step time, memory and every part of the breakdown, over a sample of all kinds of choices."""
    spaces = (axes(*MIXED), wide_axes(job(), cluster(), Constraints()))
    draw, model, compared = random.Random(7), decoder(job().arch), 0
    for group in (g for space in spaces for g in groups(job(), space)):
        if draw.random() > 0.2 and group.batch.choices not in MIXED:
            continue
        batch = evaluate(model, cluster(), group.batch, job().seq_len, job().global_batch, PROFILE)
        for row in draw.sample(range(len(group.batch)), min(3, len(group.batch))):
            one = estimate_step(job().arch, cluster(), group.batch.row(row), job().seq_len, job().global_batch, PROFILE)
            assert one.step_s == batch.step_s[row]
            assert one.device_bytes == batch.memory_bytes[row]
            assert one.fits == batch.fits[row]
            assert all(getattr(one.breakdown_s, key) == part[row] for key, part in batch.breakdown_s.items())
            compared += 1
    assert compared > 100


@pytest.mark.parametrize("global_batch", [16, 24])
def test_the_best_is_the_brute_force_best(global_batch: int) -> None:
    space, here = axes(*MIXED), job(global_batch)
    found = screen(here, cluster(), space, PROFILE, top=5)
    legal = every_legal(here, space)
    steps = [
        e.step_s
        for e in (estimate_step(here.arch, cluster(), s, here.seq_len, here.global_batch, PROFILE) for s in legal)
        if e.fits
    ]
    assert found.best is not None
    assert found.best.step_s == min(steps)
    assert [c.step_s for c in found.fast] == sorted(c.step_s for c in found.fast)


def test_the_answer_does_not_depend_on_the_size_of_batches() -> None:
    whole = screen(job(), cluster(), axes(*MIXED), PROFILE, top=20)
    parts = screen(job(), cluster(), axes(*MIXED), PROFILE, top=20, chunk_rows=7)
    # How many steps are computed does: what a batch brings tells what the next may leave out.
    assert dataclasses.replace(parts, evaluated=whole.evaluated) == whole


def test_a_memory_limit_is_kept_and_costs_time() -> None:
    free = screen(job(), cluster(), axes(*MIXED), PROFILE, top=20)
    assert free.best is not None
    assert free.lean is not None
    limit = (free.best.memory_bytes + free.lean.memory_bytes) / 2
    tight = screen(job(), cluster(), axes(*MIXED), PROFILE, top=20, max_memory_bytes=limit)
    assert tight.best is not None
    assert all(c.memory_bytes <= limit for c in tight.fast)
    assert tight.best.step_s > free.best.step_s
    assert tight.fit < free.fit
    assert tight.free == free.free


def test_the_front_is_what_nothing_beats() -> None:
    space = axes(*MIXED)
    found = screen(job(), cluster(), space, PROFILE)
    points = []
    for group in groups(job(), space):
        batch = evaluate(decoder(job().arch), cluster(), group.batch, job().seq_len, job().global_batch, PROFILE)
        points += list(zip(batch.step_s.tolist(), batch.memory_bytes.tolist(), strict=True))
    table = np.array(points)
    expected = {
        point for point in points
        if not ((table <= point).all(axis=1) & (table < point).any(axis=1)).any()
    }  # fmt: skip
    assert {(c.step_s, c.memory_bytes) for c in found.fronts[16]} == expected
    assert len(found.fronts[16]) == len(expected) > 2


def test_progress_counts_to_the_end() -> None:
    calls: list[tuple[int, int]] = []
    screen(job(), cluster(), axes(*MIXED), PROFILE, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (7, 7)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_nothing_fits_on_a_gpu_without_memory() -> None:
    tiny = replace(cluster(), gpu=replace(cluster().gpu, memory_bytes=1e6))
    found = screen(job(), tiny, axes(*MIXED), PROFILE)
    assert found.best is None
    assert found.fit == 0
    assert found.lean is not None
    assert found.free is not None
