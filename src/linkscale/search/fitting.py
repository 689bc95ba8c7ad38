"""Fitting: how much memory is short, and the nearest change that makes a strategy fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from linkscale.search.question import Question, describe
from linkscale.search.whatif import more_gpus


def shortage(short_bytes: float) -> str:
    """Return how much memory is short, never as nothing.

    >>> shortage(15.84e9), shortage(31e6)
    ('15.8 GB', '0.031 GB')
    """
    gigabytes = short_bytes / 1e9
    return f"{gigabytes:.1f} GB" if gigabytes >= 0.1 else f"{gigabytes:.2g} GB"


def freed(question: Question, names: Iterable[str]) -> str:
    """Free one fixed field at a time until something fits; empty where none helps."""
    for name in names:
        found = question.fixing(**{name: None}).find().best
        if found is not None:
            return f"without {name} = {getattr(question.constraints, name)} it fits ({describe(found.strategy)})"
    return ""


def enlarged(question: Question, factors: Sequence[int]) -> str:
    """Multiply the cluster until something fits on all its GPUs, whatever GPU counts were asked for."""
    for factor in factors:
        cluster = more_gpus(question.cluster, factor)
        if cluster.scaleout.kind == "none" and cluster.gpus > cluster.scaleup.domain_gpus:
            return "no more GPUs can join without a network; use GPUs with more memory, or give --scaleout"
        found = question.on(cluster).fixing(gpus=(cluster.gpus,)).find().best
        if found is not None:
            return f"{cluster.gpus} such GPUs fit it ({describe(found.strategy)})"
    most = question.cluster.gpus * factors[-1]
    return f"not even {most} such GPUs fit it at this global batch; use GPUs with more memory"
