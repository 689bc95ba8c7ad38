"""What a model is, counted: parameters, FLOPs and activations, before any cluster or strategy."""

from __future__ import annotations

from linkscale.base.errors import InputError
from linkscale.base.model import Model
from linkscale.cost.activations import kept_bytes_per_token
from linkscale.plan.strategy import AttentionKernel, Recompute
from linkscale.workload import counts
from linkscale.workload.architecture import MOST, Architecture
from linkscale.workload.counts import active_op_params, op_params
from linkscale.workload.layers import decoder
from linkscale.workload.ops import LayerGroup

# Where nobody asks for a length: what most pretraining runs use, if the model can take it.
USUAL_SEQ_LEN = 4096


class LayerGroupCount(Model, frozen=True):
    """Layers that are equal: how many, the parameters of one, and those of them that touch one token."""

    name: str
    count: int
    params: int
    active_params: int


class FlopsPerToken(Model, frozen=True):
    """FLOPs per token: matrix products (output projection included), attention with scans, and their sum.

    ``attention`` is in full, ``attention_causal`` counts what the mask lets it see. Training is three times forward.
    """

    matmul: int
    attention: float
    attention_causal: float
    forward: float
    forward_causal: float
    training: float
    training_causal: float


class Activations(Model, frozen=True):
    """Bytes that an average layer keeps for backward per token, in 16 bits, on one GPU."""

    recompute: Recompute
    attention: AttentionKernel
    bytes_per_token: float


class ModelSummary(Model, frozen=True):
    """The answer of ``model``.

    ``params`` are those of the decoder; ``prediction_params`` (modules that predict further tokens) and
    ``tower_params`` (encoders of images) stand beside it.
    """

    model: str
    source: str
    params: int
    active_params: int
    params_by_part: dict[str, int]
    prediction_params: int
    tower_params: dict[str, int]
    layers: int
    layer_groups: tuple[LayerGroupCount, ...]
    seq_len: int
    flops_per_token: FlopsPerToken
    activations_per_layer: tuple[Activations, ...]
    notes: tuple[str, ...]
    architecture: Architecture


def summarize(arch: Architecture, seq_len: int | None = None) -> ModelSummary:
    """Count a model; attention and activations at a sequence length (default: 4096, or the longest that it takes)."""
    if seq_len is not None and not 1 <= seq_len <= MOST:
        raise InputError(f"seq = {seq_len}; it must be a whole number from 1 to {MOST}")
    length = seq_len or min(USUAL_SEQ_LEN, arch.max_positions or USUAL_SEQ_LEN)
    groups = decoder(arch).groups
    return ModelSummary(
        model=arch.name,
        source=arch.source,
        params=counts.params(arch),
        active_params=counts.active_params(arch),
        params_by_part=counts.params_by_part(arch),
        prediction_params=counts.prediction_params(arch),
        tower_params=counts.tower_params(arch),
        layers=arch.layers,
        layer_groups=tuple(_counted(g) for g in groups),
        seq_len=length,
        flops_per_token=_flops(arch, length),
        activations_per_layer=_activations(arch, length),
        notes=arch.notes,
        architecture=arch,
    )


def _flops(arch: Architecture, seq_len: int) -> FlopsPerToken:
    full = counts.flops_per_token(arch, seq_len)
    causal = counts.flops_per_token(arch, seq_len, causal=True)
    return FlopsPerToken(
        matmul=counts.matmul_flops_per_token(arch),
        attention=counts.attention_flops_per_token(arch, seq_len),
        attention_causal=counts.attention_flops_per_token(arch, seq_len, causal=True),
        forward=full, forward_causal=causal, training=3 * full, training_causal=3 * causal,
    )  # fmt: skip


def _counted(group: LayerGroup) -> LayerGroupCount:
    params, active = (sum(count(op) for op in group.ops) for count in (op_params, active_op_params))
    return LayerGroupCount(name=group.name, count=group.count, params=params, active_params=active)


WAYS: tuple[tuple[Recompute, AttentionKernel], ...] = (
    ("none", "flash"), ("none", "unfused"), ("selective", "flash"), ("selective", "unfused"), ("full", "flash"),
)  # fmt: skip
"""What may be recomputed, under which attention kernel; full recomputation does not turn on the kernel."""


def _activations(arch: Architecture, seq_len: int) -> tuple[Activations, ...]:
    groups = decoder(arch).groups

    def average(recompute: Recompute, attention: AttentionKernel) -> float:
        kept = (g.count * kept_bytes_per_token(g, arch.hidden, seq_len, recompute, attention) for g in groups)
        return sum(kept) / arch.layers

    return tuple(Activations(recompute=r, attention=a, bytes_per_token=average(r, a)) for r, a in WAYS)
