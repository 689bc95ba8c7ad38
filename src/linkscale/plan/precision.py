"""Number formats of matrix products: which peak counts, what an operand takes, which GPUs have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from linkscale.base.errors import InputError
from linkscale.plan.strategy import Precision


@dataclass(frozen=True)
class Format:
    """How the operands of products are stored.

    ``peak``: the entry of a GPU's peaks that it runs at; ``needs``: the one that tells whether a GPU has it (scales of
    32 and 16 numbers came with fp4). ``operand_bytes``: of one number, its share of a block's scale included.
    ``amax``: a pass over a tensor finds its scale before it is cast.
    """

    peak: str
    needs: str
    operand_bytes: float
    amax: bool = False

    @property
    def narrow(self) -> bool:
        """Whether operands are cast from 16 bits."""
        return self.operand_bytes < 2.0

    @property
    def cast_bytes(self) -> float:
        """Bytes moved to cast one number.

        It and its transpose are written; where no norm or activation produces it in the same kernel (about half of the
        operands), it is also read.
        """
        return self.operand_bytes + self.frozen_cast_bytes if self.narrow else 0.0

    @property
    def frozen_cast_bytes(self) -> float:
        """Bytes moved to cast one number where no weight gradient follows, which alone needs the transpose."""
        return self.operand_bytes + 1.0 + (2.0 if self.amax else 0.0) if self.narrow else 0.0


FORMATS: dict[Precision, Format] = {
    "fp16": Format("fp16", "fp16", 2.0),
    "bf16": Format("bf16", "bf16", 2.0),
    "fp8": Format("fp8", "fp8", 1.0),
    "fp8-block": Format("fp8", "fp8", 1.0 + 4.0 / 128.0),  # an fp32 scale
    "mxfp8": Format("fp8", "fp4", 1.0 + 1.0 / 32.0),  # an 8-bit exponent (OCP Microscaling Formats v1.0)
    "nvfp4": Format("fp4", "fp4", 0.5 + 1.0 / 16.0, amax=True),  # an fp8 scale, and one fp32 scale for the tensor
}


def check_precision(gpu: str, peaks: Mapping[str, float], precision: Precision) -> None:
    """Raise InputError where a GPU does not have the arithmetic; ``peaks``: its FLOP/s by type."""
    if not peaks.get(FORMATS[precision].needs):
        known = ", ".join(name for name, form in FORMATS.items() if peaks.get(form.needs))
        raise InputError(f"{gpu} has no {precision} arithmetic; use {known}")
