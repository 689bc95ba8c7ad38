"""What an estimate was asked about; a page shows it above the answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from linkscale.plan.strategy import Strategy
from linkscale.topology.cluster import Cluster
from linkscale.workload.training import Training


@dataclass(frozen=True)
class Asked:
    """The job and the cluster. ``parameters`` of the model; None where nobody counted them."""

    model: str
    cluster: Cluster
    seq_len: int
    global_batch: int
    parameters: int | None = None
    training: Training = field(default_factory=Training)


@dataclass(frozen=True)
class AskedStrategy:
    """The job, the cluster and the strategy of one estimate."""

    job: Asked
    strategy: Strategy

    @property
    def micro_batches(self) -> int:
        """Micro-batches that every pipeline runs in a step."""
        return self.job.global_batch // (self.strategy.dp * self.strategy.micro_batch)
