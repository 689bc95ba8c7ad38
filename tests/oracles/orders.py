"""The order in which each rank of a pipeline runs its operations, as the published code has it.

GPipe, 1F1B: written here. Interleaved: PyTorch's, and megatron-core's own table and warm-up count. ZB-H1 and ZB-V:
PyTorch's (``ScheduleInterleavedZeroBubble`` with one stage a rank, ``ScheduleZBVZeroBubble``). DualPipe: the eight
steps of DeepSeek's repository (deepseek-ai/DualPipe, dualpipe/dualpipe.py, ``step``), which PyTorch has in its folded
form only.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.oracles.walk import Op, Order

pytest.importorskip("torch", reason="torch is not installed: its orders cannot be walked")

PHASES = {"FORWARD": "F", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W", "FULL_BACKWARD": "B"}


def gpipe(pp: int, micro_batches: int) -> list[Order]:
    every = range(micro_batches)
    return [[(Op("F", s, m),) for m in every] + [(Op("B", s, m),) for m in every] for s in range(pp)]


def one_f_one_b(pp: int, micro_batches: int) -> list[Order]:
    """Narayanan et al. 2021, figure 4, top."""
    return [
        _alternating(
            min(micro_batches, pp - s - 1),
            [Op("F", s, m) for m in range(micro_batches)],
            [Op("B", s, m) for m in range(micro_batches)],
        )
        for s in range(pp)
    ]


def _alternating(warm: int, forward: list[Op], backward: list[Op]) -> Order:
    rest = [(op,) for pair in zip(forward[warm:], backward, strict=False) for op in pair]
    return [(op,) for op in forward[:warm]] + rest + [(op,) for op in backward[len(forward) - warm :]]


def interleaved_megatron(pp: int, vpp: int, micro_batches: int, *, ahead: bool = False) -> list[Order]:
    """``ahead``: with forward and backward of two micro-batches side by side (overlapped exchange of tokens)."""
    from megatron.core.pipeline_parallel import schedules

    orders: list[Order] = []
    for rank in range(pp):
        group = SimpleNamespace(size=lambda: pp, rank=lambda rank=rank: rank)
        place = SimpleNamespace(pp_group=group, virtual_pipeline_model_parallel_size=vpp)
        _, _, warm, _ = schedules.get_pp_rank_microbatches(
            micro_batches, vpp, pp, overlap_moe_expert_parallel_comm=ahead, p2p_communicator=place
        )
        table = schedules.get_schedule_table(micro_batches, vpp, pp)
        forward = [Op("F", chunk * pp + rank, m) for m, chunk in table]
        backward = [Op("B", (vpp - 1 - chunk) * pp + rank, m) for m, chunk in table]
        orders.append(_alternating(warm, forward, backward))
    return orders


def interleaved_torch(pp: int, vpp: int, micro_batches: int) -> list[Order]:
    of = SimpleNamespace(
        pp_group_size=pp, n_local_stages=vpp, _n_microbatches=micro_batches, number_of_rounds=micro_batches // pp,
        microbatches_per_round=pp,
    )  # fmt: skip
    return _torch("ScheduleInterleaved1F1B", of, pp)


def zb_h1(pp: int, micro_batches: int) -> list[Order]:
    of = SimpleNamespace(pp_group_size=pp, n_local_stages=1, _n_microbatches=micro_batches, microbatches_per_round=1)
    return _torch("ScheduleInterleavedZeroBubble", of, pp)


def zb_v(pp: int, micro_batches: int) -> list[Order]:
    of = SimpleNamespace(pp_group_size=pp, num_stages=2 * pp, _n_microbatches=micro_batches)
    return _torch("ScheduleZBVZeroBubble", of, pp)


def _torch(name: str, of: SimpleNamespace, pp: int) -> list[Order]:
    from torch.distributed import pipelining

    kind = getattr(pipelining, name)
    ranks = [kind._calculate_single_rank_operations(of, rank) for rank in range(pp)]
    return [
        [(Op(PHASES[a.computation_type.name], a.stage_index, a.microbatch_index),) for a in actions if a is not None]
        for actions in ranks
    ]


def dualpipe(pp: int, micro_batches: int) -> list[Order]:
    """Half the micro-batches enter at either end; rank r holds stage r of one way and pp - 1 - r of the other."""
    return [_DualPipe(rank, pp, micro_batches).order for rank in range(pp)]


class _DualPipe:
    """One rank's eight steps. ``near``: the way that enters on this rank's side of the middle; ``far``: the other."""

    def __init__(self, rank: int, pp: int, micro_batches: int) -> None:
        self.rank, self.pp = rank, pp
        self.near, self.far = (0, 1) if rank < pp // 2 else (1, 0)
        self.order: list[tuple[Op, ...]] = []
        self.count: dict[tuple[str, int], int] = {}
        self.waiting: list[Op] = []
        self.fill(min(rank, pp - 1 - rank))
        self.steady(min(rank, pp - 1 - rank), micro_batches // 2)
        self.drain(min(rank, pp - 1 - rank))

    def op(self, phase: str, way: int) -> Op:
        key = ("F" if phase == "F" else "I", way)
        index = self.count[key] = self.count.get(key, -1) + 1
        op = Op(phase, self.rank if way == 0 else self.pp - 1 - self.rank, index, way)
        if phase == "I":
            self.waiting.append(op._replace(phase="W"))
        return op

    def run(self, *steps: tuple[str, int]) -> None:
        self.order.append(tuple(self.op(phase, way) for phase, way in steps))

    def weights(self) -> None:
        self.order.append((self.waiting.pop(0),))

    def fill(self, inward: int) -> None:
        hops = self.pp // 2 - inward - 1
        for _ in range(2 * hops):
            self.run(("F", self.near))
        for _ in range(inward + 1):
            self.run(("F", self.near))
            self.run(("F", self.far))
        for _ in range(hops):
            self.run(("I", self.far))
            self.weights()
            self.run(("F", self.far))

    def steady(self, inward: int, each_way: int) -> None:
        for i in range(each_way - self.pp + inward + 1):
            if i == 0 and inward == self.pp // 2 - 1:  # the middle ranks run their first pair apart
                self.run(("F", self.near))
                self.run(("B", self.far))
            else:
                self.run(("F", self.near), ("B", self.far))
            self.run(("F", self.far), ("B", self.near))

    def drain(self, inward: int) -> None:
        hops, last = self.pp // 2 - inward - 1, inward + 1
        for _ in range(hops):
            self.run(("B", self.far))
            self.run(("F", self.far), ("B", self.near))
        split = 2 * (last // 2) + (1 - inward % 2)  # of the last backwards, those from here on leave weights for later
        for i in range(2 * last):
            self.run(("I" if i >= split else "B", self.near if i % 2 else self.far))
        for _ in range(hops):
            self.weights()
            self.run(("I", self.near))
        for _ in range(last):
            self.weights()
        assert not self.waiting
