"""Question: what a search is asked, and the words in which it names a strategy."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from linkscale.estimate import Estimate, estimate_step
from linkscale.plan.strategy import Strategy
from linkscale.profile import Profile
from linkscale.search.axes import Axes, default_axes
from linkscale.search.constraints import Constraints
from linkscale.search.job import Job
from linkscale.search.screen import Found, Progress, Screened, find, on_gpus, screen
from linkscale.topology.cluster import Cluster


@dataclass(frozen=True)
class Question:
    """A job, the cluster, the calibrated parameters, and what is already decided."""

    job: Job
    cluster: Cluster
    profile: Profile
    constraints: Constraints

    @property
    def limit_bytes(self) -> float:
        """Memory of one GPU that a strategy may use."""
        capacity = self.cluster.gpu.memory_bytes
        return min(capacity, self.constraints.max_memory_bytes or capacity)

    def axes(self) -> Axes:
        """Return the space to search."""
        return default_axes(self.job, self.cluster, self.constraints)

    def screen(self, top: int = 1, progress: Progress | None = None) -> Screened:
        """Look at the whole space."""
        limit = self.constraints.max_memory_bytes
        return screen(self.job, self.cluster, self.axes(), self.profile,
                      max_memory_bytes=limit, top=top, progress=progress)  # fmt: skip

    def find(self) -> Found:
        """Look for the best strategy alone."""
        limit = self.constraints.max_memory_bytes
        return find(self.job, self.cluster, self.axes(), self.profile, max_memory_bytes=limit)

    def estimate(self, strategy: Strategy) -> Estimate:
        """Return the full estimate of one strategy."""
        cluster = on_gpus(self.cluster, strategy.gpus)
        return estimate_step(self.job.arch, cluster, strategy, self.job.seq_len, self.job.global_batch, self.profile)

    def on(self, cluster: Cluster) -> Question:
        """Return the same question about another cluster."""
        return replace(self, cluster=cluster)

    def under(self, constraints: Constraints) -> Question:
        """Return the same question under other constraints."""
        return replace(self, constraints=constraints)

    def fixing(self, **fields: object) -> Question:
        """Return the question with further fields of the strategy fixed, or freed by None."""
        return replace(self, constraints=msgspec.structs.replace(self.constraints, **fields))


def describe(strategy: Strategy) -> str:
    """Name a strategy in one line: what differs from no parallelism.

    >>> describe(Strategy(tp=8, pp=4, dp=2))
    'megatron tp=8 pp=4 dp=2 micro_batch=1 zero1 sequence-parallel recompute=selective'
    """
    degrees = {"tp": strategy.tp, "cp": strategy.cp, "pp": strategy.pp, "vpp": strategy.vpp, "dp": strategy.dp}
    words = [strategy.stack, *(f"{name}={value}" for name, value in degrees.items() if value > 1)]
    sharded = "not-sharded" if strategy.sharding == "none" else strategy.sharding
    words += [f"micro_batch={strategy.micro_batch}", sharded]
    words += ["sequence-parallel"] if strategy.sequence_parallel and strategy.tp > 1 else []
    layers = f" of {strategy.recompute_layers} layers" if strategy.recompute_layers else ""
    return " ".join([*words, f"recompute={strategy.recompute}{layers}"])
