"""Parameters on one rank: of a layer, of its routed experts, of the edges; all of them, or those that are trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from linkscale.cost.kernels import FloatArray
from linkscale.cost.layer import Slice
from linkscale.cost.params import local_expert_params, local_params, parameter_tensors
from linkscale.workload.layers import Decoder
from linkscale.workload.ops import Embedding, Op, trained_ops

Ops = tuple[Op, ...]


@dataclass(frozen=True)
class Params:
    """Parameters on one tensor-parallel rank.

    ``layer``: of a layer but for routed experts; ``expert``: of those, on one of their ranks; ``tensors``: of a layer,
    how many; ``tied``: parameters of the output projection that are the token table's own; ``table``: of the token
    table, where the last stage of a pipeline holds a copy of it, for that projection or to look up what modules that
    predict further tokens join.
    """

    layer: FloatArray
    expert: FloatArray
    tensors: float
    embedding: FloatArray
    head: FloatArray
    tied: FloatArray
    table: FloatArray

    def edge(self, embedding: FloatArray, head: FloatArray) -> FloatArray:
        """Return the parameters beside the layers on a stage with (1) or without (0) the embedding and the head.

        A stage that has both holds the table once; the last stage of a pipeline holds its copy, a tied one in the head.
        """
        whole = embedding * self.embedding + head * self.head - embedding * head * self.tied
        return whole + (1.0 - embedding) * head * (self.table - self.tied)


@dataclass(frozen=True)
class StageParams:
    """Parameters of a stage of so many layers."""

    layers: FloatArray
    layer: FloatArray
    expert: FloatArray
    tensors: float
    edge: FloatArray

    @property
    def dense(self) -> FloatArray:
        """All but routed experts."""
        return self.layers * self.layer + self.edge

    @property
    def experts(self) -> FloatArray:
        """Routed experts."""
        return self.layers * self.expert


def stage_params(params: Params, layers: FloatArray, embedding: FloatArray, head: FloatArray) -> StageParams:
    """Return the parameters of a stage with (1) or without (0) the embedding and the head."""
    return StageParams(layers, params.layer, params.expert, params.tensors, params.edge(embedding, head))


def all_params(decoder: Decoder, weights: Sequence[float], part: Slice) -> Params:
    """Count all parameters; layers of several kinds are averaged by ``weights``."""
    return _counted(decoder, weights, part, lambda ops: ops)


def trained_params(decoder: Decoder, weights: Sequence[float], part: Slice) -> Params:
    """Count the parameters that are trained, what gradients and optimizer states there are of."""
    return _counted(decoder, weights, part, trained_ops)


def _counted(decoder: Decoder, weights: Sequence[float], part: Slice, chosen: Callable[[Ops], Ops]) -> Params:
    ep, etp = part.ep + 0.0 * part.tp, part.etp + 0.0 * part.tp
    groups = [chosen(group.ops) for group in decoder.groups]

    def local(ops: Ops) -> FloatArray:
        return local_params(chosen(ops), part.tp, part.choices.stack)

    def mean(values: list[FloatArray]) -> FloatArray:
        return np.asarray(sum(w * v for w, v in zip(weights, values, strict=True)))

    tables = tuple(op for op in decoder.embeddings if isinstance(op, Embedding) and op.vocab_parallel)
    tied = local((replace(decoder.head, bias=False),) if decoder.tied else ())
    head, further = local((*decoder.final, decoder.head)), decoder.prediction
    return Params(
        layer=mean([local_params(ops, part.tp, part.choices.stack) for ops in groups]),
        expert=mean([local_expert_params(ops, ep, etp) for ops in groups]),
        tensors=sum(w * parameter_tensors(ops) for w, ops in zip(weights, groups, strict=True)),
        embedding=local(decoder.embeddings),
        head=head + (further.modules * local(further.joint) if further else 0.0),
        tied=tied,
        table=local(tables) if further else tied,
    )
