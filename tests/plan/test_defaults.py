"""What a strategy is where its user says nothing."""

from __future__ import annotations

from typing import get_args

import pytest

from linkscale.base.errors import InputError
from linkscale.plan.defaults import FIELDS, STACK_DEFAULTS, complete, default_choices
from linkscale.plan.legality import SHARDINGS
from linkscale.plan.strategy import Stack, Strategy


def test_every_stack_has_defaults_that_it_can_run():
    assert set(STACK_DEFAULTS) == set(get_args(Stack))
    for stack in get_args(Stack):
        assert default_choices(stack).sharding in SHARDINGS[stack]


def test_gradients_of_megatron_are_fp32_except_under_fp16():
    assert default_choices("megatron", "bf16").grad_dtype == "fp32"
    assert default_choices("megatron", "fp8").param_dtype == "bf16"
    assert default_choices("megatron", "fp16").grad_dtype == "fp16"


def test_dp_is_what_the_other_degrees_leave():
    assert complete({"tp": 8, "pp": 16}, 16384, 8).dp == 128
    assert complete({"tp": 8, "pp": 16, "dp": 4}, 16384, 8).dp == 4


def test_stated_fields_win_and_none_means_not_stated():
    strategy = complete({"stack": "fsdp2", "sharding": None, "compile": True, "precision": "fp8"}, 8, 8)
    assert (strategy.sharding, strategy.compile, strategy.precision) == ("zero3", True, "fp8")


def test_hsdp_shards_over_what_is_left_of_a_domain():
    assert complete({"stack": "fsdp2", "sharding": "hsdp"}, 64, 8).shard_domain == 8
    assert complete({"stack": "fsdp2", "sharding": "hsdp", "tp": 4}, 64, 8).shard_domain == 2
    assert complete({"stack": "fsdp2", "sharding": "hsdp", "shard_domain": 16}, 64, 8).shard_domain == 16


@pytest.mark.parametrize(("stack", "flat", "piped"), [("deepspeed", "zero3", "zero1"), ("fsdp2", "zero3", "zero2")])
def test_a_pipeline_shards_as_the_stack_does_under_one(stack, flat, piped):
    assert complete({"stack": stack}, 64, 8).sharding == flat
    assert complete({"stack": stack, "pp": 4}, 64, 8).sharding == piped
    assert complete({"stack": stack, "pp": 4, "sharding": "zero3"}, 64, 8).sharding == "zero3"


def test_megatron_gathers_late_only_what_it_reduces_early():
    assert not complete({"overlap_grad_reduce": False}, 8, 8).overlap_param_gather


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"tp": 3}, "64 GPUs do not divide by tp = 3; use 63 or 66 GPUs"),
        ({"tp": 16, "pp": 32}, "64 GPUs do not divide by tp*pp = 16*32 = 512; use 512 GPUs"),
        ({"tp": -1}, "tp = -1; it must be from 1"),
        ({"tp": "8"}, "tp = '8'; it must be a whole number"),
        ({"tp": True}, "tp = True; it must be a whole number"),
        ({"stack": "megatrom"}, "unknown stack 'megatrom'; did you mean 'megatron'?"),
        ({"sharding": "zero4"}, "unknown sharding 'zero4'"),
        ({"compile": "yes"}, "compile = 'yes'; it must be one of"),
        ({"grad_dtype": True}, "grad_dtype = True; it must be one of"),
        ({"microbatch": 1}, "unknown field of a strategy 'microbatch'; did you mean 'micro_batch'?"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(stated, words):
    with pytest.raises(InputError) as caught:
        complete(stated, 64, 8)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_fields_are_those_of_a_strategy():
    assert set(FIELDS) == set(Strategy.__struct_fields__)
