"""The real model classes: parameters on the meta device, FLOPs counted while they run. Needs torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: real model classes cannot be built")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: no real model classes")

# Frequencies times positions: a table, not a matrix product of the model.
TABLES = ("rotary", "alibi")


# Families whose own class comes with their weights, and the class whose layer theirs is.
STAND_INS = {"kimi_k2": "deepseek_v3", "mimo": "qwen2"}
# Text models that have no class without their tower.
ALONE = {"qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe"}


def config_of(data: dict[str, Any]) -> Any:
    """Return the configuration object that transformers makes of a config.json."""
    kind = data["model_type"]
    return transformers.AutoConfig.for_model(**own_class({**data, "model_type": ALONE.get(kind, kind)}))


def own_class(data: dict[str, Any]) -> dict[str, Any]:
    """Return fields of a configuration for classes that transformers has, nested ones too."""
    fields = {k: v for k, v in data.items() if not k.startswith("_") and k != "auto_map"}
    if "model_type" in fields:
        fields["model_type"] = STAND_INS.get(fields["model_type"], fields["model_type"])
    if isinstance(fields.get("text_config"), dict):
        fields["text_config"] = own_class(fields["text_config"])
    return fields


def real_params(data: dict[str, Any], *, tower: bool = False) -> int:
    """Count the parameters of the real class; tied ones are one object and so count once."""
    return sum(parameter.numel() for parameter in real_model(data, tower=tower).parameters())


def real_model(data: dict[str, Any], *, tower: bool = False) -> Any:
    """Build the real class without storage: of the text, or with the tower that looks at images."""
    kind = transformers.AutoModelForImageTextToText if tower else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        return kind.from_config(config_of(data))


def real_flops(data: dict[str, Any], tokens: int, *, backward: bool = False) -> int:
    """Count FLOPs of one sequence through the real class, attention in full."""
    from torch.utils.flop_counter import FlopCounterMode

    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(
        config_of(data), attn_implementation="eager", experts_implementation="eager"
    )
    ids = torch.arange(tokens).unsqueeze(0) % data["vocab_size"]
    with FlopCounterMode(display=False) as counter:
        logits = model(input_ids=ids, use_cache=False).logits
        if backward:
            logits.sum().backward()
    counts = counter.get_flop_counts()
    tables = sum(sum(ops.values()) for name, ops in counts.items() if _is_table(name))
    return int(sum(counts["Global"].values()) - tables)


def _is_table(module: str) -> bool:
    return any(word in module.rsplit(".", maxsplit=1)[-1].lower() for word in TABLES)
