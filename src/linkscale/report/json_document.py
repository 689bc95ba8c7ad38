"""One JSON document a verb: ``{"schema": "linkscale.<verb>/1", ...}`` with the fields of the result value.

Documents are the same bytes for the same input, ``space.seconds`` of a plan excepted.
"""

from __future__ import annotations

from typing import Any

import msgspec

from linkscale.plan.strategy import Strategy
from linkscale.report.context import Asked


def schema_name(verb: str) -> str:
    """Return the name that a verb's document carries."""
    return f"linkscale.{verb}/1"


def document(verb: str, value: object, **more: object) -> dict[str, Any]:
    """Return the document of a verb; ``more`` comes before the value's own fields, which may be a mapping."""
    return {"schema": schema_name(verb), **msgspec.to_builtins(more), **_flat(value)}


def predict_document(estimate: object, asked: Asked, strategy: Strategy) -> dict[str, Any]:
    """Return ``linkscale.predict/1``: what was asked, then the estimate."""
    return document("predict", estimate, **_job(asked), strategy=strategy)


def plan_document(result: object, asked: Asked) -> dict[str, Any]:
    """Return ``linkscale.plan/1``: what was asked, every plan as in ``predict`` with its strategy, the reasons."""
    found = document("plan", result, **_job(asked))
    found["plans"] = [{"strategy": entry["strategy"], **entry["estimate"]} for entry in found["plans"]]
    return found


def encode(found: dict[str, Any]) -> str:
    """Return a document as indented text that ends in a newline."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def _flat(value: object) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(value)
    return fields


def _job(asked: Asked) -> dict[str, object]:
    return {
        "model": asked.model, "parameters": asked.parameters, "cluster": asked.cluster, "seq_len": asked.seq_len,
        "global_batch": asked.global_batch, "training": asked.training,
    }  # fmt: skip
