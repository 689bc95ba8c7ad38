"""JSON Schemas of the documents: built from the result types, shipped as files that users can read.

``python -m linkscale.report.schema`` rewrites the shipped files; a test fails where they lag behind the types.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from linkscale.base.errors import InputError
from linkscale.estimate.result import Estimate
from linkscale.plan.strategy import Strategy
from linkscale.report.json_document import schema_name
from linkscale.topology.cluster import Cluster
from linkscale.workload.training import Training

Schema = dict[str, Any]


def shipped(verb: str) -> Schema:
    """Return the schema of a verb's document as it comes with the package."""
    file = files("linkscale.report").joinpath("schemas", f"{verb}.json")
    if not file.is_file():
        raise InputError(f"no JSON Schema of verb {verb!r} in this package")
    found: Schema = json.loads(file.read_text(encoding="utf-8"))
    return found


def predict_schema() -> Schema:
    """Return the schema of ``linkscale.predict/1``."""
    (strategy, cluster, training, _), definitions = _components(Strategy, Cluster, Training, Estimate)
    properties = {**_asked(cluster, training), "strategy": strategy, **definitions.pop("Estimate")["properties"]}
    return _document("predict", "What one strategy is expected to do, and why.", properties, definitions)


def plan_schema() -> Schema:
    """Return the schema of ``linkscale.plan/1``: each plan holds a strategy and the fields of an estimate."""
    from linkscale.search.result import PlanResult

    (strategy, cluster, training, _, _), definitions = _components(Strategy, Cluster, Training, Estimate, PlanResult)
    estimate, result = definitions.pop("Estimate"), definitions.pop("PlanResult")
    del definitions["PlanEntry"]
    entry = _object({"strategy": strategy, **estimate["properties"]}, "One strategy and what it is expected to do.")
    definitions["Plan"] = entry
    plans = {"type": "array", "items": {"$ref": "#/$defs/Plan"}, "minItems": 1}
    properties = {**_asked(cluster, training), **result["properties"], "plans": plans}
    return _document("plan", "The best strategies of a search, and the reasons.", properties, definitions)


def validate_schema() -> Schema:
    """Return the schema of ``linkscale.validate/1``: every run beside its prediction, and the errors by source."""
    from linkscale.fit.score import Validation

    _, definitions = _components(Validation)
    properties = definitions.pop("Validation")["properties"]
    return _document("validate", "Predictions beside published runs, and their errors.", properties, definitions)


def catalog_schema() -> Schema:
    """Return the schema of ``linkscale.catalog/1``: entries of one kind, their figures as spelled and in SI."""
    from linkscale.report.catalog import Listing

    _, definitions = _components(Listing)
    properties = definitions.pop("Listing")["properties"]
    return _document("catalog", "Hardware or models, every figure with its source.", properties, definitions)


def model_schema() -> Schema:
    """Return the schema of ``linkscale.model/1``: a model counted, and the architecture behind the counts."""
    from linkscale.estimate.model import ModelSummary

    _, definitions = _components(ModelSummary)
    properties = definitions.pop("ModelSummary")["properties"]
    return _document("model", "A model's parameters, FLOPs per token and activations.", properties, definitions)


BUILT: dict[str, Callable[[], Schema]] = {
    "predict": predict_schema, "plan": plan_schema, "validate": validate_schema, "catalog": catalog_schema,
    "model": model_schema,
}  # fmt: skip


def text(schema: Schema) -> str:
    """Return a schema as the text of its file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _components(*types: type) -> tuple[tuple[Schema, ...], dict[str, Schema]]:
    schemas, definitions = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    return schemas, {name: _complete(found) for name, found in sorted(definitions.items())}


def _complete(found: Schema) -> Schema:
    """Demand every field: documents leave none out, though a default would allow it on reading."""
    if "properties" not in found:
        return found
    stated = {name: {k: v for k, v in field.items() if k != "default"} for name, field in found["properties"].items()}
    return {**found, "properties": stated, "required": list(stated)}


def _asked(cluster: Schema, training: Schema) -> Schema:
    whole = {"type": "integer", "minimum": 1}
    parameters = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    return {"model": {"type": "string"}, "parameters": parameters, "cluster": cluster, "seq_len": whole,
            "global_batch": whole, "training": training}  # fmt: skip


def _object(properties: Schema, description: str) -> Schema:
    return {"type": "object", "description": description, "properties": properties, "required": list(properties),
            "additionalProperties": False}  # fmt: skip


def _document(verb: str, description: str, properties: Schema, definitions: dict[str, Schema]) -> Schema:
    name = schema_name(verb)
    body = _object({"schema": {"const": name}, **properties}, description)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:{name.replace('/', ':')}"}
    return {**head, "title": name, **body, "$defs": definitions}


def main() -> None:
    """Write the shipped files anew."""
    for verb, build in BUILT.items():
        (Path(__file__).parent / "schemas" / f"{verb}.json").write_text(text(build()), encoding="utf-8")


if __name__ == "__main__":
    main()
