"""FSDP2 and HSDP against torch.distributed.fsdp.fully_shard: every gather and reduction of a step, exactly.

The model is wrapped as torchtitan does: each layer a unit, embedding, final norm and head the root's. Sizes are whole
units (ranks * shard). Known differences:

- The gradient norm: PyTorch reduces one number per parameter tensor in one call over the sharding group; Linkscale
  says one number over all ranks, as Megatron does. One call either way, and latency alone; only the count is compared.
- A parameter whose first dimension does not divide by the ranks is padded by PyTorch, by less than a row per rank;
  Linkscale counts it as it is. The shapes here divide.
"""

from __future__ import annotations

import pytest

from tests.oracles.block import ARCH, Decoder, tokens
from tests.oracles.recorder import Call, Recorder, dist, torch, world
from tests.oracles.table import table

CASES = [
    {"ranks": 8},
    {"ranks": 64},
    {"ranks": 8, "micro_batches": 3},
    {"ranks": 8, "micro_batches": 3, "no_sync": True},
    {"ranks": 8, "micro_batches": 3, "reshard": False},
    {"ranks": 8, "micro_batches": 3, "reshard": False, "no_sync": True},
    {"ranks": 16, "domain": 4},
    {"ranks": 64, "domain": 8, "micro_batches": 2},
    {"ranks": 16, "domain": 4, "micro_batches": 3, "no_sync": True},
]


def recorded(ranks, micro_batches=1, *, domain=0, reshard=True, no_sync=False):
    """Record one step of the small model, its gradient norm apart."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    shape, names = ((ranks // domain, domain), ("replica", "shard")) if domain else ((ranks,), ("shard",))
    with world(ranks):
        how = {
            "mesh": dist.device_mesh.init_device_mesh("cpu", shape, mesh_dim_names=names),
            "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        }
        model = Decoder(ARCH)
        for layer in model.layers:
            fully_shard(layer, reshard_after_forward=reshard, **how)
        fully_shard(model, **how)
        with Recorder() as step:
            for done in range(1, micro_batches + 1):
                model.set_requires_gradient_sync(not no_sync or done == micro_batches)
                model(tokens()).sum().backward()
        with Recorder() as norm:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
    return step.table(), norm.table()


def predicted(ranks, micro_batches=1, *, domain=0, reshard=True, no_sync=False, groups=("dp",)):
    sharding = ("hsdp" if domain else "zero3") if reshard else "zero2"
    return table(
        ranks * micro_batches, dp=ranks, shard_domain=domain or 1, stack="fsdp2", sharding=sharding, no_sync=no_sync,
        groups=groups,
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: " ".join(f"{k}={v}" for k, v in c.items()))
def test_gathers_and_reductions(case):
    step, norm = recorded(**case)
    assert predicted(**case) == step
    world_row = predicted(**case, groups=("world",))
    assert world_row == {Call("all_reduce", case["ranks"], 4): 1}
    assert [(c.kind, n) for c, n in norm.items()] == [("all_reduce", 1)]
