"""Time, traffic and saved activations of routed experts and their router on one GPU.

Tokens fall evenly on the experts of a rank, and on ranks as :mod:`linkscale.cost.routing` says. Exchanges with other
GPUs are priced elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from linkscale.cost.device import Device
from linkscale.cost.kernels import FloatArray, Number, gemm_s
from linkscale.cost.routing import expected_peak
from linkscale.plan.strategy import Dispatcher
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
    forward_ops: Number
    backward_ops: Number
    saved_bytes: FloatArray
    product_bytes: FloatArray
    activation_s: Number = 0.0
    """The part of ``forward_s`` between the two products."""
    activation_bytes: Number = 0.0
    """The part of ``saved_bytes`` that it returned."""
    launch_forward_s: Number = 0.0
    """Host seconds beside those of the kernels counted: of experts that are launched one by one."""
    launch_backward_s: Number = 0.0


@dataclass(frozen=True)
class Share:
    """What of a layer's routed experts one rank computes: arrays over strategies.

    ``tokens``: routed by this rank. ``copies``: of tokens that arrive here, the ``parts`` ranks over which an expert is
    cut hearing the same ones. ``experts``: held here. ``sorted_apart``: copies arrive by sender and have to be brought
    into the order of experts, and back.
    """

    tokens: FloatArray
    copies: FloatArray
    experts: FloatArray
    parts: Number
    sorted_apart: Number = 0.0


def share(op: Experts, tokens: FloatArray, ep: Number, etp: Number, dispatcher: Dispatcher) -> Share:
    """Return the part of the fullest rank; ``tokens`` are those that one rank routes.

    A rank hears from ``ep * etp`` ranks; without a capacity the fullest of ``ep`` places holds back all others.
    """
    heard = tokens * (op.top_k * (op.capacity or 1.0)) * etp
    peak = expected_peak(op, tokens * etp * ep, ep + 0.0 * tokens)
    experts = op.experts / ep + 0.0 * tokens
    apart = (experts > 1.0) & (ep * etp > 1.0) & (dispatcher == "alltoall")
    return Share(tokens, heard * peak, experts, etp, np.where(apart, 1.0, 0.0))


Kernels = Literal["grouped", "streams", "sequential", "fused"]
"""How the products of a rank's experts run: one kernel for all (``grouped``); a library's loop over streams, whose
kernels share the GPU as one would, but are launched, and their operands cast, for each expert (``streams``,
Transformer Engine's GroupedLinear); one after the other; or one kernel that also casts and activates what it returns
(``fused``, cuDNN's grouped MLP)."""


def experts_cost(
    op: Experts, held: Share, dev: Device, *, grad_bytes: float, passes: float, kernels: Kernels = "grouped"
) -> ExpertsCost:
    """Price experts as two grouped products with an activation between, and copies to and from expert order.

    Each product has ``copies / experts`` rows; experts are cut over ``parts`` ranks along their width. Copies are read
    and written in 16 bits once before and once after, and once each backward; what comes back is weighed as it is
    summed; further passes are fitted (``Profile.expert_passes``). ``grad_bytes``: bytes per weight that its gradient
    reads and writes; ``passes``: passes over memory of the activation relative to a fused kernel.
    """
    copies, ffn, wide = held.copies, op.ffn / held.parts, op.wide / held.parts
    memory, operand = dev.memory_bytes_per_s, dev.operand.operand_bytes
    apart = 0.0 if kernels == "fused" else 1.0
    product = _Grouped(held, dev, grad_bytes, kernels == "sequential")
    up, down = product.time(wide, op.k), product.time(op.k, ffn)
    cast = dev.operand.cast_bytes * copies / memory
    between = cast * ffn, cast * wide  # what the activation returns, and its gradient
    around = cast * op.k
    looped = held.experts if kernels == "streams" else 0.0
    casts = 2.0 * looped if dev.operand.narrow else 0.0
    start = dev.kernel_fixed_s * casts
    moved = ((3.0 + dev.expert_passes + 4.0 * held.sorted_apart) * copies + held.tokens) * (2.0 * op.k) / memory
    act_forward = apart * passes * 2.0 * copies * (wide + ffn) / memory
    act_backward = apart * passes * 2.0 * copies * (2.0 * wide + ffn) / memory
    many = held.experts if kernels == "sequential" else 1.0
    return ExpertsCost(
        forward_s=up.forward_s + down.forward_s + around + apart * between[0] + act_forward + moved + start,
        dgrad_s=up.dgrad_s + down.dgrad_s + around + apart * between[1] + act_backward + moved + start,
        wgrad_s=up.wgrad_s + down.wgrad_s,
        product_forward_s=up.forward_s + down.forward_s,
        forward_ops=(2.0 + apart * passes) * many + MOVE_OPS * (1.0 + held.sorted_apart),
        backward_ops=(4.0 + apart * passes) * many + MOVE_OPS * (1.0 + held.sorted_apart),
        # The sorted tokens, both sides of the activation.
        saved_bytes=copies * (operand * op.k + 2.0 * wide + operand * ffn),
        product_bytes=2.0 * copies * (wide + op.k),
        activation_s=act_forward + apart * between[0],
        activation_bytes=copies * operand * ffn,
        launch_forward_s=(2.0 * looped + casts) * dev.expert_launch_s,
        launch_backward_s=(4.0 * looped + casts) * dev.expert_launch_s,
    )


@dataclass(frozen=True)
class _Product:
    forward_s: FloatArray
    dgrad_s: FloatArray
    wgrad_s: FloatArray


@dataclass(frozen=True)
class _Grouped:
    """Products of the same shape, one for each expert held, in one kernel or one by one."""

    held: Share
    dev: Device
    grad_bytes: float
    one_by_one: bool

    def time(self, n: Number, k: Number) -> _Product:
        rows = self.held.copies / self.held.experts
        return _Product(self._one(rows, n, k), self._one(rows, k, n), self._one(n, k, rows, self.grad_bytes))

    def _one(self, m: Number, n: Number, k: Number, out_bytes: float = 2.0) -> FloatArray:
        dev, many = self.dev, self.held.experts
        in_bytes, rate = dev.operand.operand_bytes, dev.gemm_flops_per_s
        if self.one_by_one:
            return many * gemm_s(m, n, k, dev, rate, in_bytes=in_bytes, out_bytes=out_bytes)
        return gemm_s(m, n, k, dev, rate, in_bytes=in_bytes, out_bytes=out_bytes, groups=many)


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
