"""DDP against torch.nn.parallel.DistributedDataParallel: the bytes of a step exactly, the number of buckets bounded.

A hook with the reducer's own all-reduce stands in for the default one, which expects results that a group without
peers does not give. The reducer's first step, before it orders buckets as gradients come, is not recorded. Known
difference: PyTorch fills a bucket with whole tensors until it holds at least its size, so that buckets overshoot by up
to a tensor and a large table is a bucket of its own; Linkscale cuts the same bytes into equal buckets, which are never
fewer, and at most twice as many where no tensor exceeds a bucket.
"""

from __future__ import annotations

import msgspec
import pytest

from tests.oracles.block import ARCH, Decoder, tokens
from tests.oracles.recorder import Recorder, dist, torch, world
from tests.oracles.table import rows

WIDE = msgspec.structs.replace(ARCH, hidden=512, ffn_hidden=2048, head_dim=64, vocab=4096)
MIB = 2**20


def reduce(_, bucket):
    dist.all_reduce(bucket.buffer())
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def recorded(ranks, bucket_mib):
    with world(ranks):
        model = torch.nn.parallel.DistributedDataParallel(Decoder(WIDE), bucket_cap_mb=bucket_mib)
        model.register_comm_hook(None, reduce)
        for recorder in (Recorder(), last := Recorder()):
            with recorder:
                model(tokens()).sum().backward()
    return last.calls


@pytest.mark.parametrize("ranks", [8, 64])
@pytest.mark.parametrize("bucket_mib", [8, 25])
def test_gradients(ranks, bucket_mib):
    real = recorded(ranks, bucket_mib)
    (ours,) = rows(
        ranks, arch=WIDE, dp=ranks, stack="ddp", sharding="none", sequence_parallel=False, groups=("dp",),
        bucket_bytes=bucket_mib * MIB,
    )  # fmt: skip
    assert {(c.kind, c.ranks) for c in real} == {(ours.collective, ours.ranks)}
    assert sum(c.size_bytes for c in real) == round(ours.size_bytes * ours.count)
    assert len(real) <= ours.count <= 2 * len(real)
