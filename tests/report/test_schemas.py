"""Every verb's document against the JSON Schema that the package ships."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from typer.main import get_command

from linkscale.base.errors import InputError
from linkscale.cli.app import build_app, run
from linkscale.report import schema
from linkscale.report.json_document import encode, plan_document, predict_document
from tests.report.fixtures import JOB, STRATEGY, estimate, plan_result

ROOT = Path(__file__).parents[2]

REAL_CALLS: dict[str, tuple[str, ...]] = {
    "predict": ("llama-3.1-8b", "dgx-h100:16", "--tp", "2", "--global-batch", "32", "--seq", "8192"),
    "plan": (
        "llama-3.1-8b",
        "dgx-h100:16",
        "--global-batch",
        "32",
        "--seq",
        "8192",
        "--top",
        "3",
        "--why",
        "pp=4",
        "--why",
        "tp=3",
        "--why",
        "stack=ddp",
        "--why",
        "cp=1",
        "--why",
        "precision=fp8",
    ),
    "model": ("llama-3.1-8b",),
    "catalog": ("gpus",),
    "validate": ("tests/data/runs_sample.csv",),
}


def verbs_with_json() -> list[str]:
    commands = get_command(build_app()).commands  # type: ignore[attr-defined]
    return [name for name, command in commands.items() if any("--json" in p.opts for p in command.params)]


def validate(verb: str, text: str) -> None:
    found = schema.shipped(verb)
    jsonschema.Draft202012Validator.check_schema(found)
    jsonschema.validate(json.loads(text), found, cls=jsonschema.Draft202012Validator)


def test_every_verb_speaks_json():
    assert {"predict", "plan"} <= set(verbs_with_json())


@pytest.mark.parametrize("verb", verbs_with_json())
def test_every_verb_with_json_ships_a_schema_of_its_own_name(verb):
    found = schema.shipped(verb)
    jsonschema.Draft202012Validator.check_schema(found)
    assert f"linkscale.{verb}/1" in json.dumps(found["properties"]["schema"])


@pytest.mark.parametrize("verb", verbs_with_json())
def test_the_real_output_of_every_verb_keeps_its_schema(verb, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert verb in REAL_CALLS, f"add a call of {verb!r} to REAL_CALLS"
    assert run([verb, *REAL_CALLS[verb], "--json"]) == 0
    validate(verb, capsys.readouterr().out)


@pytest.mark.parametrize("verb", sorted(schema.BUILT))
def test_the_shipped_files_are_those_of_the_types(verb):
    """``python -m linkscale.report.schema`` writes them anew."""
    assert schema.text(schema.shipped(verb)) == schema.text(schema.BUILT[verb]())


def test_documents_keep_their_schemas():
    validate("predict", encode(predict_document(estimate(), JOB, STRATEGY)))
    validate("plan", encode(plan_document(plan_result(), JOB)))


@pytest.mark.parametrize("damage", [{"step_s": "5"}, {"extra": 1}, {"schema": "linkscale.predict/2"}, {"plans": []}])
def test_a_schema_notices_damage(damage):
    found = {**predict_document(estimate(), JOB, STRATEGY), **damage}
    with pytest.raises(jsonschema.ValidationError):
        validate("predict", json.dumps(msgspec.to_builtins(found)))


def test_a_schema_demands_every_key():
    found = predict_document(estimate(), JOB, STRATEGY)
    for key in found:
        with pytest.raises(jsonschema.ValidationError, match="required"):
            validate("predict", json.dumps({k: v for k, v in found.items() if k != key}))


def test_an_unknown_verb_has_none():
    with pytest.raises(InputError, match="no JSON Schema of verb 'dance'"):
        schema.shipped("dance")
