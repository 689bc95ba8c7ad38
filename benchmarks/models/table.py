"""Counts every packaged model with the real class and writes the table of docs/reference/models.md.

Needs torch and transformers. Fails where a count differs from the class; classes that do not exist are left blank.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from linkscale.estimate.model import ModelSummary, summarize
from linkscale.workload import load_architecture, packaged_config, packaged_models

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "models.md"
TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end of table -->)", re.DOTALL)
HEAD = "| model | parameters | active | layers | width | heads | FLOPs per token | at length | equal to class |\n"
RULE = "|---|--:|--:|--:|--:|--:|--:|--:|---|\n"


def main() -> None:
    """Count, compare, write."""
    rows = [row(summarize(load_architecture(name)), real_class(name)) for name in packaged_models()]
    before = PAGE.read_text()
    after = TABLE.sub(lambda _: f"\n{HEAD}{RULE}{''.join(rows)}\n", before)
    if after != before:
        PAGE.write_text(after)
        print(f"wrote {PAGE.name}", file=sys.stderr)
    print(f"{len(rows)} models, {sum('`' in r.rsplit('|', 2)[1] for r in rows)} equal to their class")


def row(summary: ModelSummary, cls: str) -> str:
    """Return one line of the table; heads of keys and values stand behind those of queries."""
    arch = summary.architecture
    active = "all" if summary.active_params == summary.params else f"{summary.active_params / 1e9:.2f} B"
    heads = f"{arch.heads}" if arch.kv_heads == arch.heads else f"{arch.heads}/{arch.kv_heads}"
    cells = (
        summary.model, f"{summary.params:,}", active, arch.layers, f"{arch.hidden:,}", heads,
        f"{summary.flops_per_token.training:.4g}", f"{summary.seq_len:,}", f"`{cls}`" if cls else "",
    )  # fmt: skip
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"


# transformers' MPT has neither biases nor learned positions, and it has no class of Grok-1.
NO_CLASS = re.compile(r"mpt-(125m|350m|760m|1b|3b|13b|70b)|grok-1")
# Families whose class comes with their weights: the class whose layer theirs is.
STAND_INS = {"kimi_k2": "deepseek_v3", "mimo": "qwen2"}
# Text models that have no class without their tower.
ALONE = {"qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe"}


def real_class(name: str) -> str:
    """Return the name of the class that holds as many parameters, or "" where there is none of this shape."""
    if NO_CLASS.fullmatch(name):
        return ""
    data, counted = packaged_config(name), summarize(load_architecture(name))
    classes = [built(_text(data), counted.params, name)]
    if counted.tower_params:
        classes.append(built(data, counted.params + sum(counted.tower_params.values()), name, tower=True))
    return "`, `".join(classes)


def _text(data: dict[str, Any]) -> dict[str, Any]:
    if "text_config" not in data:
        return data
    text = {"tie_word_embeddings": data.get("tie_word_embeddings", False), **data["text_config"]}
    return {**text, "model_type": ALONE.get(text["model_type"], text["model_type"])}


def built(data: dict[str, Any], counted: int, name: str, *, tower: bool = False) -> str:
    """Build the class without storage and return its name; fail where it holds another number of parameters."""
    import torch
    import transformers

    auto: Any = transformers.AutoModelForImageTextToText if tower else transformers.AutoModelForCausalLM
    config: Any = transformers.AutoConfig.for_model(**_own_class(data))
    with torch.device("meta"):
        model = auto.from_config(config)
    real = sum(p.numel() for p in model.parameters())
    if counted != real:
        raise SystemExit(f"{name}: {counted:,} parameters here, {real:,} in {type(model).__name__}")
    return type(model).__name__


def _own_class(data: dict[str, Any]) -> dict[str, Any]:
    fields = {k: v for k, v in data.items() if k != "_source"}
    fields["model_type"] = STAND_INS.get(fields["model_type"], fields["model_type"])
    if "text_config" in fields:
        fields["text_config"] = _own_class(fields["text_config"])
    return fields


if __name__ == "__main__":
    main()
