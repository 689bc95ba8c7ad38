"""What verbs have in common when they show a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linkscale.api import Job
    from linkscale.report.context import Asked


def described(asked: Job) -> Asked:
    """Return the job as pages and documents show it."""
    from linkscale.report.context import Asked
    from linkscale.workload.counts import params

    model = asked.model
    return Asked(model.name, asked.cluster, asked.seq_len, asked.global_batch, params(model), model.training)
