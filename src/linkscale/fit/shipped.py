"""Fit the few shipped parameters that no table gives, by robust least squares with priors.

What is fitted belongs to a GPU generation or to all of them, never to a run, a model or a source: the sustained share
of the best matrix rate by generation and precision, framework operations per kernel, and the share of a
tensor-parallel exchange that pipelining hides. Residuals are logarithms of predicted over measured step time; every
source weighs the same; a soft-L1 loss keeps odd rows from pulling.
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

HALF = ("bf16", "fp16", "tf32", "fp32")


@dataclass(frozen=True)
class Parameter:
    """One fitted number with its prior: mean and standard deviation of its logarithm."""

    name: str
    prior: float
    spread: float
    generation: str = ""
    precisions: tuple[str, ...] = ()


# Priors: sustained clocks of a hot GPU lie some 10% under the best of a short table; a module of eager PyTorch makes a
# handful of framework calls for each kernel; half of an exchange hides when it is cut into pieces.
PARAMETERS = (
    Parameter("gemm_sustained volta half", 0.9, 0.05, "volta", HALF),
    Parameter("gemm_sustained ampere half", 0.9, 0.05, "ampere", HALF),
    Parameter("gemm_sustained hopper half", 0.9, 0.05, "hopper", HALF),
    Parameter("gemm_sustained hopper fp8", 0.9, 0.05, "hopper", ("fp8",)),
    Parameter("gemm_sustained blackwell", 0.9, 0.05, "blackwell", (*HALF, "fp8")),
    Parameter("ops_per_kernel eager", 5.0, 0.4),
    Parameter("ring_overlap", 0.5, 0.4),
)

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """What a fit found: values by parameter, and the residual of every case (log predicted over measured)."""

    values: dict[str, float]
    residuals: Vector


def profile_with(values: dict[str, float]) -> Callable[[str], Profile]:
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
        )

    return profile


def identifies(case: Case) -> bool:
    """Whether a run can tell matrix rates and host costs from what is not modelled yet.

    Left to prediction, not to fitting: Omni-Path (its protocol costs are InfiniBand's here), DeepSpeed's parameter
    by parameter exchange, programs compiled by XLA, priced by convention as another stack, and those that the same
    default calls fused without saying how far (flash-attention's training code, fms-fsdp under torch.compile).
    """
    taken_as_fused = any("XLA" in sentence for sentence in case.assumptions)
    return not taken_as_fused and case.cluster.scaleout.kind != "omni-path" and case.strategy.stack != "deepspeed"


def fit_shipped(cases: Sequence[Case], start: Mapping[str, float] | None = None) -> Fit:
    """Fit all parameters to cases with a measured step time, from the priors or another start by parameter."""
    from scipy.optimize import least_squares

    sizes = Counter(case.source_key for case in cases)
    weights = np.sqrt(np.array([1.0 / sizes[case.source_key] for case in cases]))
    prior = np.log([p.prior for p in PARAMETERS])
    spread = np.array([p.spread for p in PARAMETERS])

    def residuals(x: Vector) -> Vector:
        return log_errors(cases, _values(x))

    def objective(x: Vector) -> Vector:
        # A prior counts like a source; beyond 4% a residual pulls no harder the larger it is.
        return np.concatenate([weights * residuals(x) / 0.04, (x - prior) / spread])

    first = prior if start is None else np.log([start[p.name] for p in PARAMETERS])
    found = least_squares(objective, first, loss="soft_l1", diff_step=0.02, max_nfev=25)
    return Fit(_values(found.x), residuals(found.x))


def log_errors(cases: Sequence[Case], values: dict[str, float]) -> Vector:
    """Return log(predicted / measured) of every case under the given parameter values."""
    answers = Estimator(profile_with(values))(cases)
    steps = [a.step_s if isinstance(a, Prediction) else np.nan for a in answers]
    measured = [case.measured_step_s or np.nan for case in cases]
    errors: Vector = np.log(np.array(steps) / np.array(measured))
    return np.nan_to_num(errors)


def _values(x: Vector) -> dict[str, float]:
    return {p.name: float(np.exp(v)) for p, v in zip(PARAMETERS, x, strict=True)}
