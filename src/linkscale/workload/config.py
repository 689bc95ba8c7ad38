"""Configurations: a Hugging Face ``config.json``, or the name of a packaged one, → Architecture."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from linkscale.base.errors import InputError, nearest, unknown_name
from linkscale.base.json import load_json
from linkscale.workload.architecture import Architecture
from linkscale.workload.families import FAMILIES
from linkscale.workload.fields import Fields

# Any of these fields with a value means layers that are not dense decoder layers.
NOT_DENSE = {
    "num_experts": "mixture of experts", "num_local_experts": "mixture of experts",
    "n_routed_experts": "mixture of experts", "kv_lora_rank": "latent attention", "q_lora_rank": "latent attention",
    "ssm_cfg": "state-space layers", "hybrid_override_pattern": "state-space layers",
    "linear_num_value_heads": "linear attention", "vision_config": "a vision tower",
    "num_nextn_predict_layers": "multi-token prediction",
}  # fmt: skip

# Spellings under which people know the packaged models, besides their names.
ALIASES = {
    "meta-llama-": "llama-", "gpt-3-": "gpt3-", "gpt-2": "gpt2", "llama2-": "llama-2-", "llama3-": "llama-3-",
    "llama3.1-": "llama-3.1-", "llama3.2-": "llama-3.2-", "nemotron4-": "nemotron-4-", "gpt-neox": "gpt-neox-20b",
}  # fmt: skip


def load_architecture(text: str) -> Architecture:
    """Return the architecture of a packaged name, a ``config.json`` or a directory that holds one."""
    path = Path(text)
    known = packaged_models()
    name = canonical_name(text)
    if name in known:
        return packaged_architecture(name)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json" or path.exists():
        data = load_json(path)
        if not isinstance(data, dict):
            raise InputError(f"{path}: expected the keys of a model configuration, found {type(data).__name__}")
        stem = path.parent.name if path.name == "config.json" and path.parent.name else path.name
        return from_config(data, name=stem.removesuffix(".json").removesuffix(".config"), where=str(path))
    raise unknown_name("model", text, known)


def canonical_name(text: str) -> str:
    """Return the packaged spelling of a model's name: lower case, without owner and finish."""
    name = text.strip().lower().rsplit("/", maxsplit=1)[-1].replace("_", "-").removesuffix("-hf")
    for finish in ("-instruct", "-base", "-chat"):
        name = name.removesuffix(finish)
    for known, ours in ALIASES.items():
        if name == known or (known.endswith("-") and name.startswith(known)):
            name = ours + name[len(known) :]
    return name


def from_config(data: dict[str, Any], name: str, where: str = "config") -> Architecture:
    """Return the architecture that a configuration states; raise InputError for what it leaves out.

    What no family here understands is refused with the fields in the way: nothing is guessed.
    """
    kind = str(data.get("model_type", ""))
    if not kind:
        raise InputError(f"{where}: the field 'model_type' is missing; it names the family, such as 'llama'")
    _refuse_not_dense(data, where)
    family = FAMILIES.get(kind)
    if family is None:
        hint = nearest(kind, FAMILIES)
        told = f"the closest is {hint!r}" if hint else "understood: " + ", ".join(sorted(FAMILIES))
        raise InputError(f"{where}: model_type {kind!r} is not understood; {told}")
    source = str(data.get("_source", where))
    return msgspec.structs.replace(family(Fields(data, where), name), source=source)


def _refuse_not_dense(data: dict[str, Any], where: str) -> None:
    found = [(field, what) for field, what in NOT_DENSE.items() if data.get(field)]
    if found:
        fields = ", ".join(field for field, _ in found)
        what = found[0][1]
        raise InputError(f"{where}: {what} ({fields}) is not understood yet; dense decoders only")


@cache
def packaged_models() -> tuple[str, ...]:
    """Return the names of the packaged models."""
    folder = files("linkscale.workload").joinpath("data/models")
    return tuple(sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")))


def packaged_config(name: str) -> dict[str, Any]:
    """Return the packaged fields of a model's configuration."""
    text = files("linkscale.workload").joinpath(f"data/models/{name}.json").read_bytes()
    data: dict[str, Any] = msgspec.json.decode(text)
    return data


@cache
def packaged_architecture(name: str) -> Architecture:
    """Return a packaged model's architecture."""
    return from_config(packaged_config(name), name=name, where=f"packaged {name}")
