"""Configurations: a Hugging Face ``config.json``, or the name of a packaged one, → Architecture."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from linkscale.base.errors import InputError, nearest, unknown_name
from linkscale.base.json import load_json
from linkscale.workload.architecture import Architecture
from linkscale.workload.families import FAMILIES
from linkscale.workload.fields import Fields
from linkscale.workload.packaged import packaged_config, packaged_models, packaged_name

# A field with a value means layers that are no dense decoder layers.
NOT_DENSE = {
    "num_experts": "a mixture of experts", "num_local_experts": "a mixture of experts",
    "n_routed_experts": "a mixture of experts", "moe_num_experts": "a mixture of experts",
    "moe_intermediate_size": "a mixture of experts", "num_experts_per_tok": "a mixture of experts",
    "ffn_config.moe_num_experts": "a mixture of experts", "kv_lora_rank": "latent attention",
    "q_lora_rank": "latent attention", "linear_num_value_heads": "linear attention", "ssm_cfg": "a state-space layer",
    "mamba_d_state": "a state-space layer", "ssm_state_size": "a state-space layer",
    "hybrid_override_pattern": "a hybrid of layers", "num_nextn_predict_layers": "multi-token prediction",
    "mtp_num_hidden_layers": "multi-token prediction", "is_encoder_decoder": "an encoder",
    "add_cross_attention": "cross-attention", "vision_config": "a vision tower", "text_config": "a nested text model",
}  # fmt: skip

# What an error repeats of a name.
LONGEST = 80


def load_architecture(text: str) -> Architecture:
    """Return the architecture of a packaged name, a ``config.json``, or a directory that holds one.

    A bare name means the packaged model; anything that exists and is spelt as a path is read.
    """
    path = Path(text)
    name = packaged_name(text)
    spelt_as_path = "/" in text or "\\" in text or path.suffix.lower() == ".json"
    if name is not None and not (spelt_as_path and _exists(path)):
        return packaged_architecture(name)
    if text.strip() and (_exists(path) or path.suffix.lower() == ".json"):
        return _read(path)
    raise unknown_name("model", text if len(text) <= LONGEST else text[:LONGEST] + "…", packaged_models())


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # names that no file can have: too long, or with a null character
        return False


def _read(path: Path) -> Architecture:
    path = path / "config.json" if path.is_dir() else path
    data = load_json(path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: expected the fields of a model configuration, found a {type(data).__name__}")
    stem = path.absolute().parent.name if path.name == "config.json" else path.name
    return from_config(data, name=stem.removesuffix(".json").removesuffix(".config"), where=str(path))


def from_config(data: dict[str, Any], name: str, where: str = "config", source: str = "") -> Architecture:
    """Return the architecture that a configuration states; raise InputError for what it leaves out.

    What no family here understands is refused with the fields in the way: nothing is guessed.
    """
    kind = data.get("model_type")
    if not isinstance(kind, str) or not kind:
        raise InputError(f"{where}: model_type is missing; a Hugging Face config.json names its family, as 'llama'")
    _refuse_not_dense(data, where)
    family = FAMILIES.get(kind)
    if family is None:
        hint = nearest(kind, FAMILIES)
        told = f"did you mean {hint!r}?" if hint else "known: " + ", ".join(sorted(FAMILIES))
        raise InputError(f"{where}: model_type {kind!r} is not understood yet; {told}")
    return Architecture(name=name, model_type=kind, source=source or where, **family(Fields(data, where)))


def _refuse_not_dense(data: dict[str, Any], where: str) -> None:
    found = {field: what for field, what in NOT_DENSE.items() if _stated(data, field)}
    if found:
        what = next(iter(found.values()))
        raise InputError(f"{where}: {what} ({', '.join(found)}) is not understood yet; dense decoders are")


def _stated(data: dict[str, Any], field: str) -> bool:
    *outer, name = field.split(".")
    for part in outer:
        inner = data.get(part)
        data = inner if isinstance(inner, dict) else {}
    return bool(data.get(name))


@cache
def packaged_architecture(name: str) -> Architecture:
    """Return a packaged model's architecture."""
    data = packaged_config(name)
    return from_config(data, name=name, where=f"packaged model {name}", source=data["_source"])
