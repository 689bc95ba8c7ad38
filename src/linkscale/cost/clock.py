"""Clock and power: how fast a GPU computes under its power limit, relative to the condition of the tables.

Efficiency tables were measured at a part's own power limit and already contain its throttling, so the clock is
1.0 there. Dynamic power grows with the cube of the clock (voltage follows frequency), on top of an idle part:
``clock = ((limit - idle) / (reference - idle)) ** (1/3)``. Memory- and network-bound time does not follow the clock.
"""

from __future__ import annotations

import numpy as np

from linkscale.hardware.types import Gpu
from linkscale.profile.values import Profile

# Share of a GPU's limit that it draws whatever its clock (HBM, leakage, links).
IDLE_SHARE = 0.15


def relative_clock(gpu: Gpu, profile: Profile) -> float:
    """Return the sustained clock of a GPU over that of its generation's reference part.

    The reference's limit is scaled by the label peaks, so that a part with fewer multiprocessors is not called
    starved for drawing less. Dynamic power is taken as the idle part at least: no part is sold with less.
    """
    half = gpu.peak_flops_per_s.get("bf16") or gpu.peak_flops_per_s.get("fp16", 0.0)
    if not half or not gpu.power_w:
        return 1.0
    reference_w = profile.reference_power_w * half / profile.reference_flops_per_s
    idle_w = IDLE_SHARE * reference_w
    return float(np.cbrt(max(gpu.power_w - idle_w, idle_w) / (reference_w - idle_w)))
