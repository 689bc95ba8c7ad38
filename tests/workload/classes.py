"""The real model classes: parameters on the meta device, FLOPs counted while they run. Needs torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: real model classes cannot be built")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: no real model classes")

# Frequencies times positions: a table, not a matrix product of the model.
TABLES = ("rotary", "alibi")


def config_of(data: dict[str, Any]) -> Any:
    """Return the configuration object that transformers makes of a config.json."""
    fields = {key: value for key, value in data.items() if not key.startswith("_") and key != "model_type"}
    return transformers.AutoConfig.for_model(data["model_type"], **fields)


def real_params(data: dict[str, Any]) -> int:
    """Count the parameters of the real class; tied ones are one object and so count once."""
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config_of(data))
    return sum(parameter.numel() for parameter in model.parameters())


def real_flops(data: dict[str, Any], tokens: int, *, backward: bool = False) -> int:
    """Count FLOPs of one sequence through the real class, attention in full."""
    from torch.utils.flop_counter import FlopCounterMode

    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config_of(data), attn_implementation="eager")
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
