"""Every family that is read, by the ``model_type`` of its configurations."""

from __future__ import annotations

from collections.abc import Callable

from linkscale.workload.families import DENSE_FAMILIES
from linkscale.workload.fields import Fields
from linkscale.workload.hybrid_families import HYBRID_FAMILIES
from linkscale.workload.layout import Shape
from linkscale.workload.mamba_families import MAMBA_FAMILIES
from linkscale.workload.moe_families import MOE_FAMILIES
from linkscale.workload.recent_families import RECENT_FAMILIES
from linkscale.workload.vision import TOWERS

__all__ = ["FAMILIES", "NESTED", "TOWERS"]

DENSE = {**DENSE_FAMILIES, **RECENT_FAMILIES}
SPARSE = {**MOE_FAMILIES, **HYBRID_FAMILIES, **MAMBA_FAMILIES}
FAMILIES: dict[str, Callable[[Fields], Shape]] = {**DENSE, **SPARSE}
"""``model_type`` → its reader."""

# What the text models of multimodal configurations are called, and what files called a family before its class.
FAMILIES |= {
    "qwen3_vl_moe_text": FAMILIES["qwen3_moe"], "qwen3_vl_text": FAMILIES["qwen3"],
    "minimax_m1": FAMILIES["minimax"], "minimax_text_01": FAMILIES["minimax"],
}  # fmt: skip

NESTED = {
    "qwen3_vl": "qwen3_vl_text", "qwen3_vl_moe": "qwen3_vl_moe_text", "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text", "kimi_k25": "kimi_k2", "llama4": "llama4_text", "gemma3": "gemma3_text",
    "mistral3": "mistral",
}  # fmt: skip
"""``model_type`` of a multimodal configuration → that of its text model, where the nested one is left out."""
