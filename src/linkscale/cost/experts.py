"""Time, traffic and saved activations of routed experts and their router on one GPU that holds all of them.

Tokens fall evenly on experts: the mean, not the tail. Exchanges with other GPUs are priced elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linkscale.cost.device import Device
from linkscale.cost.kernels import FloatArray, Number, gemm_s
from linkscale.workload.ops import Experts, Router

# Kernels beside the grouped products: counting and sorting the choices; moving tokens there and back.
SORT_OPS = 4.0
MOVE_OPS = 2.0


@dataclass(frozen=True)
class ExpertsCost:
    """Seconds, kernels and bytes of one layer's experts, per micro-batch."""

    forward_s: FloatArray
    dgrad_s: FloatArray
    wgrad_s: FloatArray
    product_forward_s: FloatArray
    forward_ops: float
    backward_ops: float
    saved_bytes: FloatArray
    product_bytes: FloatArray


def experts_cost(
    op: Experts, tokens: FloatArray, tp: FloatArray, dev: Device, *, grad_bytes: float, passes: float
) -> ExpertsCost:
    """Price experts as two grouped products with an activation between, and copies to and from expert order.

    Each of ``experts`` products has ``tokens * top_k / experts`` rows; experts are cut over ``tp`` ranks along their
    width. A token's copies are read and written in 16 bits once before and once after, and once each backward; what
    comes back is weighed as it is summed. ``grad_bytes``: bytes per weight that its gradient reads and writes;
    ``passes``: passes over memory of the activation relative to a fused kernel.
    """
    copies = tokens * (op.top_k * (op.capacity or 1.0))
    rows, ffn, wide = copies / op.experts, op.ffn / tp, op.wide / tp
    memory = dev.memory_bytes_per_s
    up, down = _product(op, rows, wide, op.k, dev, grad_bytes), _product(op, rows, op.k, ffn, dev, grad_bytes)
    moved = (2.0 * copies + tokens + copies) * (2.0 * op.k) / memory
    act_forward = passes * 2.0 * copies * (wide + ffn) / memory
    act_backward = passes * 2.0 * copies * (2.0 * wide + ffn) / memory
    held = 1.0 if dev.low_precision else 2.0
    return ExpertsCost(
        forward_s=up.forward_s + down.forward_s + act_forward + moved,
        dgrad_s=up.dgrad_s + down.dgrad_s + act_backward + moved,
        wgrad_s=up.wgrad_s + down.wgrad_s,
        product_forward_s=up.forward_s + down.forward_s,
        forward_ops=2.0 + passes + MOVE_OPS,
        backward_ops=4.0 + passes + MOVE_OPS,
        # The sorted tokens, both sides of the activation.
        saved_bytes=copies * (held * op.k + 2.0 * wide + held * ffn),
        product_bytes=2.0 * copies * (wide + op.k),
    )


@dataclass(frozen=True)
class _Product:
    forward_s: FloatArray
    dgrad_s: FloatArray
    wgrad_s: FloatArray


def _product(op: Experts, rows: FloatArray, n: Number, k: Number, dev: Device, grad_bytes: float) -> _Product:
    rate, in_bytes, many = dev.gemm_flops_per_s, 1.0 if dev.low_precision else 2.0, float(op.experts)
    forward = gemm_s(rows, n, k, dev, rate, in_bytes=in_bytes, groups=many)
    dgrad = gemm_s(rows, k, n, dev, rate, in_bytes=in_bytes, groups=many)
    wgrad = gemm_s(n, k, rows, dev, rate, in_bytes=in_bytes, out_bytes=grad_bytes, groups=many)
    if dev.low_precision:  # casts, as for a single product
        forward = forward + 3.0 * many * rows * k / dev.memory_bytes_per_s
        dgrad = dgrad + 3.0 * many * rows * n / dev.memory_bytes_per_s
    return _Product(forward, dgrad, wgrad)


def router_cost(op: Router, tokens: FloatArray, dev: Device, grad_bytes: float) -> ExpertsCost:
    """Price a router: a product in 16 bits, and passes over its 32-bit result to score, search and normalise."""
    rate, memory = dev.half_flops_per_s, dev.memory_bytes_per_s
    scores = 4.0 * tokens * op.experts
    forward = gemm_s(tokens, float(op.experts), float(op.k), dev, rate, out_bytes=4.0)
    dgrad = gemm_s(tokens, float(op.k), float(op.experts), dev, rate)
    wgrad = gemm_s(float(op.experts), float(op.k), tokens, dev, rate, out_bytes=grad_bytes)
    return ExpertsCost(
        forward_s=forward + 4.0 * scores / memory, dgrad_s=dgrad + 3.0 * scores / memory, wgrad_s=wgrad,
        product_forward_s=forward, forward_ops=1.0 + SORT_OPS, backward_ops=4.0,
        saved_bytes=scores + (2.0 * op.k * tokens if op.saves_input else 0.0), product_bytes=np.asarray(scores),
    )  # fmt: skip
