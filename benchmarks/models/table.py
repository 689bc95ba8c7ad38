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
HEAD = "| model | parameters | layers | width | heads | FLOPs per token | at length | equal to class |\n"
RULE = "|---|--:|--:|--:|--:|--:|--:|---|\n"


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
    heads = f"{arch.heads}" if arch.kv_heads == arch.heads else f"{arch.heads}/{arch.kv_heads}"
    cells = (
        summary.model, f"{summary.params:,}", arch.layers, f"{arch.hidden:,}", heads,
        f"{summary.flops_per_token.training:.4g}", f"{summary.seq_len:,}", f"`{cls}`" if cls else "",
    )  # fmt: skip
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"


def real_class(name: str) -> str:
    """Return the name of the class that holds as many parameters, or "" where there is none of this shape."""
    import torch
    import transformers

    data = packaged_config(name)
    if data["model_type"] == "mpt" and not data["no_bias"]:
        return ""  # transformers' MPT has neither biases nor learned positions
    config: Any = transformers.AutoConfig.for_model(
        data["model_type"], **{k: v for k, v in data.items() if k not in ("_source", "model_type")}
    )
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    counted, real = summarize(load_architecture(name)).params, sum(p.numel() for p in model.parameters())
    if counted != real:
        raise SystemExit(f"{name}: {counted:,} parameters here, {real:,} in {type(model).__name__}")
    return type(model).__name__


if __name__ == "__main__":
    main()
