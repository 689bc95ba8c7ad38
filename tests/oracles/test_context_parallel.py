"""Ring and gathering context parallelism against torch.distributed.tensor.experimental, one layer both ways, exactly.

PyTorch's ring runs here on tensors without data, with its own rotation of keys and values. A rotation is an
all-to-all in which each rank sends to one neighbour: one send. Trading heads for tokens (Ulysses) has no
implementation in PyTorch to record.
"""

from __future__ import annotations

import pytest

from tests.oracles.block import ARCH
from tests.oracles.recorder import Recorder, dist, torch, world
from tests.oracles.table import table

TOKENS = 16  # per rank


def recorded(cp, kv_heads, method):
    from torch.distributed.tensor.experimental._context_parallel import _attention as ring

    with world(cp), Recorder() as recorder:
        mesh = dist.device_mesh.init_device_mesh("cpu", (cp,))
        ring.set_rotate_method(method)
        q, k, v = (
            torch.zeros(1, heads, TOKENS, ARCH.head_dim, dtype=torch.bfloat16, device="meta")
            for heads in (ARCH.heads, kv_heads, kv_heads)
        )
        out, lse, *rest = ring._scaled_dot_product_ring_flash_attention(mesh, q, k, v, is_causal=True)
        starts, lengths, random = rest[:2], rest[2:4], rest[4:6]
        ring._scaled_dot_product_ring_flash_attention_backward(
            mesh, torch.zeros_like(out), q, k, v, out, lse, *starts, *lengths, 0.0, True, *random
        )
    return recorder.table()


@pytest.mark.parametrize("kv_heads", [8, 2])
@pytest.mark.parametrize("cp", [4, 16])
@pytest.mark.parametrize(("ours", "theirs"), [("p2p", "alltoall"), ("all_gather", "allgather")])
def test_keys_values_and_their_gradients(cp, kv_heads, ours, theirs):
    import msgspec

    arch = msgspec.structs.replace(ARCH, kv_heads=kv_heads, layers=1)
    found = table(
        1, arch=arch, seq=TOKENS * cp, cp=cp, stack="fsdp2", sharding="zero3", cp_comm=ours, sequence_parallel=False,
        groups=("cp",),
    )  # fmt: skip
    assert found == recorded(cp, kv_heads, theirs)
