"""Fit the few shipped parameters that no table gives, by robust least squares with priors.

What is fitted belongs to a GPU generation or to all of them, never to a run, a model or a source: the sustained share
of the best matrix rate by generation and precision, framework operations per kernel, the share of a
tensor-parallel exchange that pipelining hides, and passes over the copies of routed tokens. The last is fitted to
mixtures of experts, with all others as dense runs give them. Residuals are logarithms of predicted over measured step
time; every source weighs the same; a soft-L1 loss keeps odd rows from pulling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from linkscale.fit.predictor import Estimator
from linkscale.fit.score import Prediction
from linkscale.plan.resolve import Case
from linkscale.profile import Profile, shipped_profile
from linkscale.workload.counts import decoder
from linkscale.workload.ops import Attention, Index, Op, Scan

HALF = ("bf16", "fp16", "tf32", "fp32")


@dataclass(frozen=True)
class Parameter:
    """One fitted number with its prior: mean and standard deviation of its logarithm."""

    name: str
    prior: float
    spread: float
    generation: str = ""
    routed: bool = False
    precisions: tuple[str, ...] = ()


# Priors: sustained clocks of a hot GPU lie some 10% under the best of a short table; a module of eager PyTorch makes a
# handful of framework calls for each kernel; half of an exchange hides when it is cut into pieces; routed copies are
# padded and joined in a few passes, of which nothing else is known.
PARAMETERS = (
    Parameter("gemm_sustained volta half", 0.9, 0.05, "volta", precisions=HALF),
    Parameter("gemm_sustained ampere half", 0.9, 0.05, "ampere", precisions=HALF),
    Parameter("gemm_sustained hopper half", 0.9, 0.05, "hopper", precisions=HALF),
    Parameter("gemm_sustained hopper fp8", 0.9, 0.05, "hopper", precisions=("fp8",)),
    Parameter("gemm_sustained blackwell", 0.9, 0.05, "blackwell", precisions=(*HALF, "fp8")),
    Parameter("ops_per_kernel eager", 5.0, 0.4),
    Parameter("ring_overlap", 0.5, 0.4),
    Parameter("expert_passes", 4.0, 1.0, routed=True),
)

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """What a fit found: values by parameter, and the residual of every case (log predicted over measured)."""

    values: dict[str, float]
    residuals: Vector


def profile_with(values: Mapping[str, float]) -> Callable[[str], Profile]:
    """Return the shipped profiles with these values in place of the fitted ones."""

    def profile(arch: str) -> Profile:
        base = shipped_profile(arch)
        sustained = dict(base.gemm_sustained)
        for parameter in PARAMETERS:
            if parameter.generation == arch:
                sustained |= dict.fromkeys(parameter.precisions, values[parameter.name])
        return msgspec.structs.replace(
            base,
            gemm_sustained=sustained,
            ops_per_kernel={**base.ops_per_kernel, "eager": values["ops_per_kernel eager"]},
            ring_overlap=min(1.0, values["ring_overlap"]),
            expert_passes=values["expert_passes"],
        )

    return profile


def identifies(case: Case) -> bool:
    """Whether a run can tell matrix rates and host costs from what is not modelled yet.

    Left to prediction, not to fitting: Omni-Path (its protocol costs are InfiniBand's here), DeepSpeed's parameter
    by parameter exchange, programs compiled by XLA, priced by convention as another stack, and those that the same
    default calls fused without saying how far (flash-attention's training code, fms-fsdp under torch.compile); state
    spaces and attention to a part of the tokens, whose kernels no table here gives.
    """
    taken_as_fused = any("XLA" in sentence for sentence in case.assumptions)
    ours = not taken_as_fused and case.cluster.scaleout.kind != "omni-path" and case.strategy.stack != "deepspeed"
    return ours and not any(_unmeasured(op) for group in decoder(case.architecture).groups for op in group.ops)


def _unmeasured(op: Op) -> bool:
    return isinstance(op, Scan | Index) or (isinstance(op, Attention) and bool(op.window or op.selected))


def fit_shipped(cases: Sequence[Case], start: Mapping[str, float] | None = None) -> Fit:
    """Fit all parameters to cases with a measured step time, from the priors or another start by parameter.

    Those of dense operations to dense runs first; then, with these held, those of routed experts to mixtures.
    """
    values = {p.name: p.prior for p in PARAMETERS} | dict(start or {})
    for routed in (False, True):
        those = [case for case in cases if is_mixture(case) == routed]
        if those:
            values |= _fit([p for p in PARAMETERS if p.routed == routed], those, values)
    return Fit(values, log_errors(cases, values))


def is_mixture(case: Case) -> bool:
    """Whether a run routes tokens to experts."""
    return bool(case.architecture.routed())


def _fit(free: Sequence[Parameter], cases: Sequence[Case], values: Mapping[str, float]) -> dict[str, float]:
    """Return the values of the free parameters, the others as given."""
    from scipy.optimize import least_squares

    sizes = Counter(case.source_key for case in cases)
    weights = np.sqrt(np.array([1.0 / sizes[case.source_key] for case in cases]))
    prior = np.log([p.prior for p in free])
    spread = np.array([p.spread for p in free])

    def named(x: Vector) -> dict[str, float]:
        return {p.name: float(np.exp(v)) for p, v in zip(free, x, strict=True)}

    def objective(x: Vector) -> Vector:
        # A prior counts like a source; beyond 4% a residual pulls no harder the larger it is.
        errors = log_errors(cases, {**values, **named(x)})
        return np.concatenate([weights * errors / 0.04, (x - prior) / spread])

    first = np.log([values[p.name] for p in free])
    return named(least_squares(objective, first, loss="soft_l1", diff_step=0.02, max_nfev=25).x)


def log_errors(cases: Sequence[Case], values: Mapping[str, float]) -> Vector:
    """Return log(predicted / measured) of every case under the given parameter values."""
    answers = Estimator(profile_with(values))(cases)
    steps = [a.step_s if isinstance(a, Prediction) else np.nan for a in answers]
    measured = [case.measured_step_s or np.nan for case in cases]
    errors: Vector = np.log(np.array(steps) / np.array(measured))
    return np.nan_to_num(errors)
