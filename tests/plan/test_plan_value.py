"""A plan survives its file exactly, and a broken file is told in one line with its place."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkscale.base.errors import InputError
from linkscale.plan.plan import Plan
from linkscale.plan.plan_file import read_plan
from linkscale.plan.strategy import NUMBERS, Strategy
from linkscale.workload.architecture import Architecture

ARCH = Architecture(
    name="tiny", model_type="llama", vocab=1000, hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, ffn_hidden=128,
    gated_mlp=True,
)  # fmt: skip
PLAN = Plan(model="llama-3.1-8b", strategy=Strategy(tp=8, dp=2), global_batch=64, seq_len=8192, cluster="dgx-h100:16")

text = st.text(alphabet=st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=20)
awkward = st.sampled_from(
    ["1e9", "on", "12:30", "null", "~", "true", "0x10", "- a", "a: b", "#x", "'", '"', " a ", "no"]
)
numbers = st.fixed_dictionaries({name: st.integers(1, 4096) for name in NUMBERS})


@settings(max_examples=80, deadline=None)
@given(
    model=text | awkward | st.just(ARCH),
    cluster=st.none() | awkward | text,
    numbers=numbers,
    batch=st.integers(1, 10**9),
)
def test_what_is_saved_reads_back_equal(tmp_path_factory, model, cluster, numbers, batch):
    plan = Plan(model=model, cluster=cluster, strategy=Strategy(**numbers), global_batch=batch, seq_len=4096,
                assumptions=("a: one", "- two"))  # fmt: skip
    path = tmp_path_factory.mktemp("plan") / "plan.yaml"
    plan.save(path)
    again, stated = read_plan(path)
    assert again == plan
    assert stated == set(Strategy.__struct_fields__)


def test_a_plan_written_by_hand_may_leave_fields_out(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text("model: gpt3-175b\nglobal_batch: 1536\nseq_len: 2048\nstrategy: {tp: 8, pp: 16}\n")
    plan, stated = read_plan(path)
    assert stated == {"tp", "pp"}
    assert plan.strategy.tp * plan.strategy.pp == 128


GOOD = "model: m\nglobal_batch: 1\nseq_len: 1\nstrategy:\n  tp: 8\n"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", ": expected keys and values"),
        ("[1, 2]", ": expected keys and values"),
        (GOOD.replace("tp: 8", "tp: x"), ":5: tp = 'x'; it must be a whole number"),
        (GOOD.replace("tp: 8", "tpp: 8"), ":5: unknown field of a strategy 'tpp'; did you mean 'tp'?"),
        (GOOD.replace("tp: 8", "tp: -8"), ":5: tp = -8; it must be from 1"),
        (GOOD.replace("global_batch: 1", "global_batch: 0"), "global_batch = 0; it must be at least 1"),
        (GOOD.replace("seq_len: 1\n", ""), "missing required field seq_len"),
        (GOOD.replace("  tp: 8", "  tp: 8\n  tp: 4"), "key 'tp' stands twice"),
    ],
)
def test_a_broken_plan_is_told_in_one_line(tmp_path, body, says):
    path = tmp_path / "plan.yaml"
    path.write_text(body)
    with pytest.raises(InputError) as error:
        read_plan(path)
    assert says in str(error.value)
    assert "plan.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_nothing_is_half_written(tmp_path):
    with pytest.raises(InputError, match="cannot write"):
        PLAN.save(tmp_path / "no" / "plan.yaml")
    path = tmp_path / "plan.yaml"
    PLAN.save(path)
    msgspec.structs.replace(PLAN, global_batch=128).save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["plan.yaml"]
    assert read_plan(path)[0].global_batch == 128
