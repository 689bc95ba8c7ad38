"""Job: what is planned for, the question without the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from linkscale.workload.architecture import Architecture


@dataclass(frozen=True)
class Job:
    """What is planned for: the question without the cluster."""

    arch: Architecture
    seq_len: int
    global_batch: int
