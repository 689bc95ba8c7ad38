"""The numbers of a batch of strategies as floats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linkscale.cost.kernels import FloatArray
from linkscale.plan.strategy import StrategyBatch


@dataclass(frozen=True)
class Numbers:
    """The numeric half of a batch as floats, and the micro-batches per replica."""

    tp: FloatArray
    pp: FloatArray
    vpp: FloatArray
    dp: FloatArray
    cp: FloatArray
    micro_batch: FloatArray
    recompute_layers: FloatArray
    shard_domain: FloatArray
    bucket_bytes: FloatArray
    ep: FloatArray
    etp: FloatArray
    offload_layers: FloatArray
    micro_batches: FloatArray

    def recomputed_share(self, layers: FloatArray) -> FloatArray:
        """Return the share of a stage's layers that is recomputed: ``recompute_layers`` of them, 0 means all."""
        share = np.minimum(1.0, self.recompute_layers / np.maximum(layers, 1.0))
        return np.where(self.recompute_layers > 0, share, 1.0)


def numbers_of(batch: StrategyBatch, global_batch: int) -> Numbers:
    """Return a batch's numbers and the micro-batches that each replica runs."""
    values = {
        name: np.asarray(getattr(batch, name), dtype=np.float64)
        for name in Numbers.__dataclass_fields__
        if name != "micro_batches"
    }
    return Numbers(**values, micro_batches=global_batch / (values["dp"] * values["micro_batch"]))
