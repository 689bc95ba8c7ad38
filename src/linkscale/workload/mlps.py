"""What follows the mixer in a layer, as operations: an MLP, or a router and experts."""

from __future__ import annotations

from linkscale.workload.architecture import Architecture
from linkscale.workload.ops import Elementwise, Experts, Gemm, Module, Op, Router
from linkscale.workload.parts import Dense, Mlp, Moe


def mlp_ops(arch: Architecture, mlp: Mlp, *, saves_input: bool = True) -> tuple[Op, ...]:
    """Return the operations of an MLP, without the norm before it."""
    match mlp:
        case Dense():
            return dense(arch, mlp, saves_input=saves_input)
        case Moe():
            return mixture(arch, mlp)


def dense(
    arch: Architecture, mlp: Dense, *, name: str = "", saves_input: bool = True, beside_routing: bool = False
) -> tuple[Op, ...]:
    """Two products around an activation; gate and up are one product."""
    widths = (mlp.hidden,) * (2 if mlp.gated else 1)
    wide, between = sum(widths), mlp.hidden if mlp.gated else 0
    module: Module = "shared_experts" if beside_routing else "mlp"
    return (
        # Where another product keeps the input, it has gathered it as well.
        Gemm(name=f"{name}up", target="mlp", parts=len(widths), n=wide, k=arch.hidden, shard="column",
             bias=mlp.bias, saves_input=saves_input, boundary=saves_input, beside_routing=beside_routing,
             module=module, widths=widths),
        Elementwise(name=f"{name}{arch.activation}", reads=wide, writes=mlp.hidden, saves=wide, saves_between=between,
                    region="tensor", module=module),
        Gemm(name=f"{name}down", target="mlp", n=arch.hidden, k=mlp.hidden, shard="row", bias=mlp.bias,
             beside_routing=beside_routing, module=module),
    )  # fmt: skip


def mixture(arch: Architecture, moe: Moe) -> tuple[Op, ...]:
    """A router, the experts that it chooses, and those that all tokens pass; the input is kept once."""
    ops: list[Op] = [
        Router(experts=moe.experts, k=arch.hidden, top_k=moe.top_k, bias=moe.router_bias, groups=moe.groups,
               top_groups=moe.top_groups, balance_bias=moe.balance_bias, saves_input=not moe.shared),
        *_experts(arch, moe),
    ]  # fmt: skip
    if moe.shared:
        shared = Dense(moe.shared, moe.gated, moe.shared_bias)
        ops += dense(arch, shared, name="shared ", beside_routing=True)
        if moe.shared_gate:
            ops.append(Gemm(name="shared gate", n=1, k=arch.hidden, shard="none", saves_input=False))
        ops.append(
            Elementwise(name="shared add", reads=2 * arch.hidden, writes=arch.hidden, saves=0, region="sequence")
        )
    return tuple(ops)


def _experts(arch: Architecture, moe: Moe) -> tuple[Op, ...]:
    width = moe.latent or arch.hidden
    experts = Experts(
        experts=moe.experts, top_k=moe.top_k, k=width, ffn=moe.hidden, gated=moe.gated, bias=moe.bias,
        capacity=moe.capacity, spread=moe.spread,
    )  # fmt: skip
    if not moe.latent:
        return (experts,)
    return (
        Gemm(name="latent down", n=width, k=arch.hidden, shard="none", bias=moe.latent_bias, saves_input=False),
        experts,
        Gemm(name="latent up", n=arch.hidden, k=width, shard="none", bias=moe.latent_bias),
    )
