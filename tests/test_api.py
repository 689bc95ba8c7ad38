"""``predict`` and ``plan`` as a Python program calls them."""

from __future__ import annotations

import msgspec
import pytest

import linkscale as ls
from linkscale.base.errors import InputError, NothingFits
from linkscale.estimate import estimate_step
from tests.report.fixtures import CLUSTER

SMALL = msgspec.structs.replace(CLUSTER, name="dgx-h100:16", gpus=16)
JOB = {"global_batch": 32, "seq_len": 8192}


def test_values_and_names_mean_the_same():
    model = ls.load_architecture("llama-3.1-8b")
    cluster = ls.parse_cluster("dgx-h100:16")
    assert ls.predict(model, cluster, tp=2, **JOB) == ls.predict("llama-3.1-8b", "dgx-h100:16", tp=2, **JOB)


def test_a_strategy_given_whole_is_estimated_as_it_is():
    model = ls.load_architecture("llama-3.1-8b")
    strategy = ls.Strategy(tp=2, dp=8)
    found = ls.predict(model, SMALL, strategy, **JOB)
    assert found == estimate_step(model, SMALL, strategy, 8192, 32)
    assert not [text for text in found.assumptions if "not stated" in text]


def test_fields_beside_a_strategy_replace_its_own():
    model = ls.load_architecture("llama-3.1-8b")
    base = ls.Strategy(tp=2, dp=8)
    changed = ls.predict(model, SMALL, base, recompute="full", **JOB)
    assert changed == ls.predict(model, SMALL, msgspec.structs.replace(base, recompute="full"), **JOB)


def test_what_is_not_stated_is_said():
    found = ls.predict("llama-3.1-8b", SMALL, stack="fsdp2", **JOB)
    assert found.assumptions[0].startswith("not stated, so as fsdp2 usually runs:")
    assert "sharding zero3" in found.assumptions[0]
    assert "tp_overlap" not in found.assumptions[0]


def test_plan_keeps_what_is_fixed_and_agrees_with_predict():
    found = ls.plan("llama-3.1-8b", SMALL, stack="megatron", tp=2, top=3, **JOB)
    assert {entry.strategy.tp for entry in found.plans} == {2}
    best = found.plans[0]
    assert ls.predict("llama-3.1-8b", SMALL, best.strategy, **JOB) == best.estimate


@pytest.mark.parametrize("why", [[{"tp": 2, "pp": 2}], {"tp": 2, "pp": 2}, "tp=2,pp=2", ("tp=2, pp=2",)])
def test_plan_answers_layouts_given_as_fields_or_text(why):
    (found,) = ls.plan("llama-3.1-8b", SMALL, top=1, why=why, **JOB).why
    assert found.asked == {"tp": 2, "pp": 2}
    assert found.answer == "slower"


@pytest.mark.parametrize(
    "vary", [{"schedule": ("1f1b", "zb-v"), "tp": [2, 1]}, ["schedule=1f1b,zb-v", "tp=2,1"]]
)  # fmt: skip
def test_plan_searches_the_values_it_is_given(vary):
    """Together they hold the best of each alone."""
    found = ls.plan("llama-3.1-8b", SMALL, top=1, pp=2, vary=vary, **JOB)
    assert found.space.axes["schedule"] == ["1f1b", "zb-v"]
    assert found.space.axes["tp"] == [1, 2]
    alone = [
        ls.plan("llama-3.1-8b", SMALL, top=1, pp=2, tp=tp, schedule=schedule, **JOB).plans[0].estimate.step_s
        for tp in (1, 2) for schedule in ("1f1b", "zb-v")
    ]  # fmt: skip
    assert found.plans[0].estimate.step_s == min(alone)


@pytest.mark.parametrize(
    ("vary", "words"),
    [
        ("tp=1,2", "vary: tp is given twice"),
        (["cp=1", "cp=2"], "vary: cp is given twice"),
        ({"schedule": ()}, "vary: schedule: no value given"),
        ({"micro_batch": ("1",)}, "vary: micro_batch = '1'; it must be a whole number"),
    ],
)
def test_values_that_contradict_or_are_none_are_refused(vary, words):
    with pytest.raises(InputError, match=words):
        ls.plan("llama-3.1-8b", SMALL, tp=1, vary=vary, **JOB)


def test_precisions_are_searched_together_each_with_its_own_types():
    """fp16 gradients are reduced in 16 bits; an accumulation type of one precision does not leak into another."""
    both = {"precision": ("bf16", "fp16")}
    found = ls.plan("llama-3.1-8b", "dgx-h100:16", top=10_000, stack="megatron", tp=2, vary=both, **JOB)
    kinds = {(entry.strategy.precision, entry.strategy.grad_dtype) for entry in found.plans}
    assert kinds == {("bf16", "fp32"), ("fp16", "fp16")}


@pytest.mark.parametrize("why", [[{}], [""], [{"tp": "4"}], {"tp": None}, {"microbatch": 4}])
def test_a_layout_that_is_none_is_refused(why):
    with pytest.raises(InputError, match="why: "):
        ls.plan("llama-3.1-8b", SMALL, why=why, **JOB)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tp": 3}, "16 GPUs do not divide by tp = 3"),
        ({"dp": 4}, "use dp = 16 or a cluster of 4 GPUs"),
        ({"microbatch": 2}, "did you mean 'micro_batch'?"),
        ({"tp": 2.0}, "tp = 2.0; it must be a whole number"),
        ({"global_batch": 0}, "global_batch = 0; it must be from 1"),
        ({"global_batch": 32.5}, "global_batch = 32.5; it must be a whole number"),
        ({"seq_len": 10**30}, "seq_len = about 1e30"),
        ({"seq_len": True}, "seq_len = True; it must be a whole number"),
        ({"scaleout": "ib-400"}, "refine a cluster given as text"),
        ({"precision": "fp4"}, "unknown precision"),
    ],
)
def test_bad_input_is_one_line(fields, words):
    with pytest.raises(InputError) as caught:
        ls.predict("llama-3.1-8b", SMALL, **{**JOB, **fields})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_plan_checks_its_fields_and_says_when_nothing_fits():
    with pytest.raises(InputError, match="unknown sharding"):
        ls.plan("llama-3.1-8b", SMALL, sharding="zero9", **JOB)
    with pytest.raises(NothingFits, match="nothing fits"):
        ls.plan("llama-3.1-405b", SMALL, **JOB)
