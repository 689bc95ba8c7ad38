"""The page and the document of ``validate``, from values built by hand."""

from __future__ import annotations

import io

import jsonschema
import msgspec
import pytest

from linkscale.fit.score import Prediction, Row, Summary, Validation, validate_runs
from linkscale.readers.runs import RunRecord, Runs
from linkscale.report.console import show
from linkscale.report.json_document import encode
from linkscale.report.schema import shipped, text, validate_schema
from linkscale.report.validate import run_page, validate_document, validate_page

BASE = RunRecord(
    id="a-1", source_key="a", line=2, gpu="A100-80GB-SXM", num_gpus=8, gpus_per_node=8, framework="Megatron-LM",
    model="GPT", layers=24, hidden=2048, heads=16, kv_heads=16, ffn_hidden=8192, gated_mlp=False, vocab=51200,
    seq_len=2048, global_batch_seqs=512, micro_batch_seqs=8, tp=1, pp=1, cp=1, dp=8, step_time_s=4.0, peak_mem_gib=50.0,
    notes="nvidia-smi",
)  # fmt: skip
RECORDS = (BASE, msgspec.structs.replace(BASE, id="a-2", step_time_s=5.0),
           msgspec.structs.replace(BASE, id="b-1", source_key="b", experts=8))  # fmt: skip


def validation() -> Validation:
    answers = [Prediction(step_s=4.4, p10_s=3.9, p90_s=5.0, memory_bytes=60e9),
               Prediction(step_s=4.4, p10_s=3.9, p90_s=4.9, memory_bytes=60e9)]  # fmt: skip
    return validate_runs(Runs(records=RECORDS, bad=()), lambda cases: answers)


def shown(page: object, width: int = 80) -> str:
    out = io.StringIO()
    show(page, out, width)  # type: ignore[arg-type]
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 160])
def test_the_page_gives_errors_by_source_and_the_reasons(width):
    page = shown(validate_page(validation()), width)
    assert all(len(line) <= width for line in page.splitlines())
    assert "3, 2 predicted, 1 not" in page
    assert "median error 11.0%, mean 11.0%" in page
    assert "not understood" in page
    assert "50.0% of the runs lie in p10-p90" in page
    assert ("memory" in page.split("Error by source_key")[1]) == (width == 160)


def test_a_run_without_a_prediction_tells_why():
    page = shown(run_page(validation().rows[2], None))
    assert "no number, choice and width of the experts of 'GPT'" in " ".join(page.split())
    assert "measured 4.00 s" in page


def test_the_document_is_what_the_schema_says_and_no_more():
    document = msgspec.json.decode(encode(validate_document(validation())))
    jsonschema.validate(document, shipped("validate"))
    assert document["schema"] == "linkscale.validate/1"
    assert list(document["rows"][0]) == [
        "id", "source_key", "status", "reason", "measured_step_s", "predicted_step_s", "p10_s", "p90_s",
        "measured_memory_bytes", "predicted_memory_bytes",
    ]  # fmt: skip
    assert set(document) == {"schema", "rows", "summary"}
    wrong: list[dict[str, object]] = [
        {**document, "more": 1},
        {**document, "schema": "linkscale.validate/2"},
        {"rows": []},
    ]
    for broken in wrong:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, shipped("validate"))


def test_the_shipped_schema_is_that_of_the_types():
    assert text(shipped("validate")) == text(validate_schema())
    assert set(Summary.__struct_fields__) == set(shipped("validate")["$defs"]["Summary"]["required"])
    assert set(Row.__struct_fields__) == set(shipped("validate")["$defs"]["Row"]["required"])
