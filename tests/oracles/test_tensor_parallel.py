"""Tensor parallelism against DTensor: every exchange of a step, exactly, with and without sequence parallelism.

The plan is torchtitan's: one ``PrepareModuleInput`` before attention and one before the feed-forward layer, a split
vocabulary, and ``loss_parallel`` on fp32 logits. Known differences:

- A plan that hands every column-parallel linear layer the replicated tensor itself, without ``PrepareModuleInput``,
  reduces the input's gradient once per linear layer (three and two times) instead of once; Linkscale counts it once, as
  for fused projections, and nobody should train the other way.
- Under activation checkpointing PyTorch stops recomputing at the last tensor that backward needs, so that each layer's
  last reduction is not repeated.
"""

from __future__ import annotations

import pytest

from tests.oracles.block import ARCH, Decoder, tokens
from tests.oracles.recorder import Recorder, dist, torch, world
from tests.oracles.table import table


def layer_plan(edge, *, sequence):
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor import parallel as tp

    plan = {
        half: tp.PrepareModuleInput(input_layouts=(edge,), desired_input_layouts=(Replicate(),))
        for half in ("attention", "feed_forward")
    }
    columns = ("attention.wq", "attention.wk", "attention.wv", "feed_forward.w1", "feed_forward.w3")
    plan |= {name: tp.ColwiseParallel() for name in columns}
    plan |= {name: tp.RowwiseParallel(output_layouts=edge) for name in ("attention.wo", "feed_forward.w2")}
    if sequence:
        plan |= {name: tp.SequenceParallel() for name in ("attention_norm", "ffn_norm")}
    return plan


def split(model, mesh, *, sequence):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor import parallel as tp

    edge = Shard(1) if sequence else Replicate()
    plan = {
        "tok_embeddings": tp.RowwiseParallel(input_layouts=Replicate(), output_layouts=edge),
        "output": tp.ColwiseParallel(input_layouts=edge, output_layouts=Shard(-1), use_local_output=False),
    }
    tp.parallelize_module(model, mesh, plan | ({"norm": tp.SequenceParallel()} if sequence else {}))
    for layer in model.layers:
        tp.parallelize_module(layer, mesh, layer_plan(edge, sequence=sequence))


def recorded(tp, micro_batches, micro_batch, *, sequence, recompute):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.tensor.parallel import loss_parallel

    with world(tp):
        model = Decoder(ARCH).to(torch.bfloat16)
        split(model, dist.device_mesh.init_device_mesh("cpu", (tp,)), sequence=sequence)
        if recompute:
            for index, layer in enumerate(model.layers):
                model.layers[index] = checkpoint_wrapper(layer)
        ids = tokens(micro_batch)
        with Recorder() as recorder, loss_parallel():
            for _ in range(micro_batches):
                logits = model(ids).flatten(0, 1).float()
                torch.nn.functional.cross_entropy(logits, ids.flatten()).backward()
    return recorder.table()


@pytest.mark.parametrize("sequence", [True, False], ids=["sequence", "plain"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_exchanges(sequence, recompute):
    found = table(
        6, tp=8, micro_batch=2, stack="fsdp2", sharding="zero3", sequence_parallel=sequence, recompute=recompute,
        groups=("tp",),
    )  # fmt: skip
    assert found == recorded(8, 3, 2, sequence=sequence, recompute=recompute == "full")
