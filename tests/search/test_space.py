"""The space against brute force: nothing illegal, nothing twice, nothing missing."""

from __future__ import annotations

from linkscale.estimate import evaluate
from linkscale.plan.legality import check
from linkscale.plan.strategy import Choices, Strategy
from linkscale.search.axes import default_axes, wide_axes
from linkscale.search.constraints import Constraints
from linkscale.search.job import Job
from linkscale.search.space import Group, groups
from linkscale.topology import parse_cluster
from linkscale.workload import decoder, load_architecture
from tests.search.small import MIXED, PROFILE, axes, cluster, every_legal, job


def rows(found: list[Group]) -> list[Strategy]:
    return [group.batch.row(i) for group in found for i in range(len(group.batch))]


def test_every_strategy_is_legal_and_there_once() -> None:
    strategies = rows(list(groups(job(), axes(*MIXED))))
    for strategy in strategies:
        check(job().arch, 16, strategy, job().seq_len, job().global_batch)
    assert len(set(strategies)) == len(strategies) > 250


def test_what_is_left_out_is_what_is_already_there() -> None:
    """Every legal combination of the axes' values behaves like one that is generated, to the last bit."""
    space = axes(*MIXED)

    def outcomes(strategies: list[Strategy]) -> set[tuple[float, float]]:
        model = decoder(job().arch)
        results = [
            evaluate(model, cluster(), s.batch(), job().seq_len, job().global_batch, PROFILE) for s in strategies
        ]
        return {(float(r.step_s[0]), float(r.memory_bytes[0])) for r in results}

    generated, legal = rows(list(groups(job(), space))), every_legal(job(), space)
    assert set(generated) <= set(legal)
    assert len(generated) < len(legal)
    assert outcomes(generated) == outcomes(legal)


def test_sharding_over_all_replicas_has_one_name() -> None:
    """Where zero3 is looked at, hsdp over all replicas is that; alone, it stays."""
    flat, nested = MIXED[4:6]
    both = rows(list(groups(job(), axes(flat, nested))))
    alone = rows(list(groups(job(), axes(nested))))
    assert not [s for s in both if s.sharding == "hsdp" and s.shard_domain == s.dp]
    assert [s for s in alone if s.shard_domain == s.dp > 1]
    assert {s for s in alone if s.shard_domain < s.dp} <= set(both)


def test_tensor_parallelism_stays_in_the_domain_or_in_eight() -> None:
    wide = Job(load_architecture("gpt3-175b"), seq_len=2048, global_batch=64)
    for place, most in (("dgx-a100:64", 8), ("gb200-nvl72:576", 72), ("dgx-1-v100:64", 8)):
        assert max(default_axes(wide, parse_cluster(place), Constraints()).tp) == most
    small = parse_cluster("dgx-a100:64", scaleup="nvl4")
    assert max(default_axes(wide, small, Constraints()).tp) == 8


def test_choices_keep_every_row_where_they_mean_something() -> None:
    """Two combinations that differ in nothing inert share no row but both have them all."""
    one, two = Choices(recompute="none"), Choices(recompute="selective")
    counts = [len(group.batch) for group in groups(job(), axes(one, two))]
    assert len(counts) == 2
    assert counts[0] == counts[1]


def test_gpu_counts_use_that_many_gpus() -> None:
    found = list(groups(job(), axes(*MIXED, gpus=(4, 8, 16))))
    assert {group.gpus for group in found} == {4, 8, 16}
    assert all((g.batch.tp * g.batch.pp * g.batch.cp * g.batch.dp == g.gpus).all() for g in found)


def test_fixed_fields_are_kept_by_every_strategy() -> None:
    fixed = {"tp": 2, "pp": 2, "stack": "megatron", "recompute": "full", "sequence_parallel": False, "micro_batch": 2}
    found = rows(list(groups(job(), default_axes(job(), cluster(), Constraints(**fixed)))))  # type: ignore[arg-type]
    assert found
    assert all(getattr(strategy, name) == value for strategy in found for name, value in fixed.items())


def test_a_fixed_replica_count_leaves_the_shapes_that_reach_it() -> None:
    found = rows(list(groups(job(), default_axes(job(), cluster(), Constraints(dp=4)))))
    assert {s.tp * s.pp for s in found} == {4}
    assert {s.dp for s in found} == {4}


def test_wide_axes_vary_every_switch() -> None:
    table = wide_axes(job(), cluster(), Constraints()).table()
    switches = (
        "overlap_grad_reduce",
        "overlap_param_gather",
        "overlap_p2p",
        "tp_overlap",
        "grad_dtype",
        "bucket_bytes",
    )
    assert all(len(table[name]) > 1 for name in switches)


def test_every_field_of_a_strategy_can_be_fixed() -> None:
    assert set(Strategy.__struct_fields__) <= set(Constraints.__struct_fields__)
