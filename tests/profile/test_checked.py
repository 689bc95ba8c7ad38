"""What lies outside the runs that a profile was checked on is said, and widens the interval."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from linkscale.estimate import estimate_step
from linkscale.estimate.interval import interval_width
from linkscale.plan.resolve import Case, resolve
from linkscale.plan.strategy import Strategy
from linkscale.profile import Extent, outside, shipped_profile
from linkscale.readers.runs import read_runs
from linkscale.topology import parse_cluster
from linkscale.workload import load_architecture

SAMPLE = Path(__file__).parents[1] / "data" / "runs_sample.csv"
SEEN = Extent("H100-SXM5", "hopper", "megatron", "bf16", "nvswitch", 8, 1024, 8192)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ()),
        ({"arithmetic": "fp16"}, ()),
        ({"gpu": "H20"}, ("GPU H20",)),
        ({"stack": "deepspeed"}, ("stack deepspeed on hopper",)),
        ({"scaleup": "pcie"}, ("scale-up pcie on hopper",)),
        ({"domain_gpus": 72}, ("a scale-up domain of 72 GPUs, where 8 was the largest",)),
        ({"gpus": 16384}, ("16,384 GPUs, where 2,304 were the most",)),
        ({"seq_len": 1 << 20}, ("sequences of 1,048,576 tokens, where 262,144 were the longest",)),
        ({"offload": True}, ("offload to host memory on hopper",)),
        ({"arch": "ada", "gpu": "RTX-4090"}, ("GPUs of generation ada",)),
    ],
)
def test_each_feature_that_no_run_showed_is_named(change, said):
    assert outside(msgspec.structs.replace(SEEN, **change)) == said


def test_published_runs_lie_inside():
    cases = [case for case in map(resolve, read_runs(SAMPLE).records) if isinstance(case, Case)]
    timed = [case for case in cases if case.measured_step_s is not None]
    assert timed
    for case in timed:
        profile = shipped_profile(case.cluster.gpu.arch)
        inside = interval_width(case.cluster, case.strategy, case.seq_len, profile)
        beyond = interval_width(case.cluster, case.strategy, 1 << 30, profile)
        assert inside < beyond, case.id


def test_an_estimate_outside_says_so_and_is_less_sure():
    arch, strategy = load_architecture("llama-3.1-8b"), Strategy(tp=8, dp=8)
    known = estimate_step(arch, parse_cluster("dgx-h100:64"), strategy, 8192, 64)
    new = estimate_step(arch, parse_cluster("dgx-h100:64", scaleup="pcie"), strategy, 8192, 64)
    assert not known.warnings
    assert "outside what the profile was checked on: scale-up pcie on hopper; the interval is wider" in new.warnings
    assert new.p90_s / new.step_s > known.p90_s / known.step_s


def test_a_plan_that_all_but_fills_the_memory_is_a_warning():
    arch, strategy = load_architecture("llama-3.1-8b"), Strategy(tp=8, dp=1, micro_batch=8)
    cluster = parse_cluster("dgx-h100:8")
    found = estimate_step(arch, cluster, strategy, 8192, 8)
    held = found.device_bytes

    def warnings(share_free: float) -> tuple[str, ...]:
        gpu = msgspec.structs.replace(cluster.gpu, memory_bytes=held / (1.0 - share_free))
        return estimate_step(arch, msgspec.structs.replace(cluster, gpu=gpu), strategy, 8192, 8).warnings

    assert "to spare" in warnings(0.02)[0]
    assert not warnings(0.1)


def test_more_tokens_than_the_model_has_positions_is_a_warning():
    arch, cluster = load_architecture("gpt2"), parse_cluster("dgx-h100:8")
    at, above = (estimate_step(arch, cluster, Strategy(dp=8), seq, 8).warnings for seq in (1024, 4096))
    assert not at
    assert above == ("sequences of 4,096 tokens, but the model states 1,024 positions",)
