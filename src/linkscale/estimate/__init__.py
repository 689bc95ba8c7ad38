"""Closed-form estimates of a training step, for batches of strategies and for one."""

from linkscale.estimate.explain import estimate_step
from linkscale.estimate.result import Breakdown, Communication, Estimate, Memory
from linkscale.estimate.step import BatchEstimate, evaluate

__all__ = ["BatchEstimate", "Breakdown", "Communication", "Estimate", "Memory", "estimate_step", "evaluate"]
