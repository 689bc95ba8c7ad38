"""Pipelines against torch.distributed.pipelining: boundary messages of every stage, and FSDP2 inside a stage, exactly.

Linkscale's row is what a stage in the middle sends; a receive is the other end of somebody's send. The first stage
sends no gradients out of its first chunk and the last no activations out of its last one: one message less per
micro-batch. The schedules' first step, in which the stages agree on shapes, is not recorded.
"""

from __future__ import annotations

import pytest

from tests.oracles.block import ARCH, SEQ, Layer
from tests.oracles.recorder import Recorder, dist, torch, world
from tests.oracles.table import table

PP = 4
SCHEDULES = {
    "gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B", "interleaved": "ScheduleInterleaved1F1B",
    "zb-h1": "ScheduleInterleavedZeroBubble", "zb-v": "ScheduleZBVZeroBubble",
}  # fmt: skip
SINGLE = ("gpipe", "1f1b")


def stage_of(index, stages, mesh, reshard):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.pipelining import PipelineStage

    module = torch.nn.Sequential(Layer(ARCH))
    # The stage looks for a sharded module at its root, and holds back reductions only where it finds one.
    for part in (*module, module) if mesh["dp"].size() > 1 else ():
        fully_shard(part, mesh=mesh["dp"], reshard_after_forward=reshard)

    def example(grad):
        return torch.zeros(1, SEQ, ARCH.hidden, requires_grad=grad)

    return PipelineStage(
        module, index, stages, torch.device("cpu"), input_args=(example(grad=index > 0),),
        output_args=(example(grad=True),), output_grads=(example(grad=False),),
        input_grads=(example(grad=False),) if index else None, group=mesh["pp"].get_group(),
    )  # fmt: skip


def recorded(monkeypatch, schedule, rank, micro_batches, vpp=1, dp=1, *, reshard=True):
    from torch.distributed import pipelining

    # Stages vote on whether shapes are known; nothing arrives here, so every vote received is a yes.
    monkeypatch.setattr(dist, "recv", lambda tensor, **_: tensor.fill_(1))
    with world(PP * dp, rank * dp):
        mesh = dist.device_mesh.init_device_mesh("cpu", (PP, dp), mesh_dim_names=("pp", "dp"))
        end = PP * vpp - 1
        places = (rank, end - rank) if schedule == "zb-v" else [chunk * PP + rank for chunk in range(vpp)]
        stages = [stage_of(place, PP * vpp, mesh, reshard) for place in places]
        run = getattr(pipelining, SCHEDULES[schedule])
        run = run(stages[0] if schedule in SINGLE else stages, micro_batches, lambda y, t: (y - t).sum())
        batch = torch.zeros(micro_batches, SEQ, ARCH.hidden)
        given = {"target": batch, "losses": []} if end in places else {}
        for recorder in (Recorder(), last := Recorder()):
            with recorder:
                run.step(*([batch] if rank == 0 else []), **given)
    return last.table()


def predicted(micro_batches, vpp, dp=1, sharding="zero3", groups=("pp",), layers=ARCH.layers, schedule="1f1b"):
    import msgspec

    arch = msgspec.structs.replace(ARCH, layers=layers)
    return table(
        micro_batches * dp, arch=arch, pp=PP, vpp=vpp, dp=dp, stack="fsdp2", sharding=sharding, param_dtype="fp32",
        sequence_parallel=False, schedule=schedule, groups=groups,
    )  # fmt: skip


@pytest.mark.parametrize("rank", range(PP))
@pytest.mark.parametrize(
    ("schedule", "vpp"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("zb-h1", 1), ("zb-v", 2)]
)
def test_boundary_messages(monkeypatch, schedule, vpp, rank):
    micro_batches, layers = 8, PP * vpp
    found = recorded(monkeypatch, schedule, rank, micro_batches, vpp)
    ours = "1f1b" if schedule == "interleaved" else schedule
    ((row, count),) = predicted(micro_batches, vpp, layers=layers, schedule=ours).items()
    # A V turns round on its last rank and ends on its first: neither sends there.
    ends = micro_batches * (2 if schedule == "zb-v" else 1) if rank in (0, PP - 1) else 0
    # A neighbour is one of two ranks; the library's group is the whole pipeline. Boundaries are in fp32 here.
    assert found == {row._replace(ranks=PP, size_bytes=2 * row.size_bytes): count - ends}


@pytest.mark.parametrize(("sharding", "reshard"), [("zero3", True), ("zero2", False)])
@pytest.mark.parametrize(("schedule", "vpp"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2)])
def test_fully_sharded_stages(monkeypatch, schedule, vpp, sharding, reshard):
    """A layer is gathered once more than there are micro-batches, or once, and reduced once, on every schedule."""
    layers, dp = PP * vpp, 8
    found = recorded(monkeypatch, schedule, 1, 8, vpp, dp, reshard=reshard)
    ours = predicted(8, vpp, dp, sharding, ("dp",), layers)
    # The recorded stage is in the middle: it has no edge unit.
    unit = max(size for kind, _, size in found if kind == "all_gather")
    assert {c: n for c, n in ours.items() if c.size_bytes == unit} == {
        c: n for c, n in found.items() if c.kind != "send_recv"
    }
