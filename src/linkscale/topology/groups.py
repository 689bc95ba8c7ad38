"""How a communication group lies on a cluster: members per scale-up domain, domains, neighbours.

Ranks are numbered with tensor parallelism fastest, then context, data and pipeline parallelism (Megatron's order
tp-cp-dp-pp); a group is every ``stride``-th rank, ``size`` of them. All arguments may be arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GroupGeometry:
    """Shape of a group. Arrays of equal shape.

    ``size``: ranks. ``per_domain``: members inside one scale-up domain. ``domains``: domains spanned.
    """

    size: FloatArray
    per_domain: FloatArray
    domains: FloatArray


def group_geometry(size: FloatArray, stride: FloatArray, domain_gpus: int) -> GroupGeometry:
    """Lay groups of ``size`` ranks, ``stride`` apart, over domains of ``domain_gpus`` GPUs.

    The members in a domain are the largest divisor of the size that fits the domain at that stride, since
    jobs on domains that the group does not fill evenly are cut into equal segments.
    """
    size = np.asarray(size, dtype=np.float64)
    room = np.maximum(1.0, np.floor(domain_gpus / np.asarray(stride, dtype=np.float64)))
    per_domain = np.minimum(size, room)
    uneven = np.mod(size, per_domain) != 0
    while np.any(uneven):
        per_domain = np.where(uneven, per_domain - 1.0, per_domain)
        uneven = np.mod(size, per_domain) != 0
    return GroupGeometry(size, per_domain, size / per_domain)
