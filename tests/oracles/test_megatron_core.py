"""A whole training step of megatron-core on CPU against the communication table: every collective, exactly.

GPTModel under its own schedules, DistributedDataParallel and distributed optimizer, as one rank of 8 to 64. Rows of
tensor and expert parallelism are those of the slowest stage (here the last, for its head), of a pipeline's messages
what a middle stage sends, of data parallelism the first stage's: each is compared with a rank that has that part.
Known differences:

- Buckets are filled with whole tensors until they hold their size, chunks of an interleaved stage after the first have
  one bucket each, and stages after the first one a chunk; the table cuts the first stage's bytes into equal buckets.
  The bytes are equal; of buckets the table has at least as many, and at most twice as many.
- A distributed optimizer pads a bucket until its ranks divide it, and puts a tied table into a bucket of its own. The
  shapes here divide.
- Without a distributed optimizer the norm of experts' gradients is a second number; the table says one.
- The loss that balances experts sums their loads over tensor- and context-parallel ranks, a few numbers a layer; the
  table has no such loss, and none is on here.
"""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from linkscale.estimate import expert_parallel
from linkscale.plan.strategy import Strategy
from linkscale.workload.parts import Dense, LayerKind, Moe, SelfAttention
from tests.oracles.block import ARCH
from tests.oracles.megatron import stand_in, step
from tests.oracles.table import rows, table

# What megatron-core and torch warn about themselves.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("on_cpu")]

EXPERTS = ("EXPERT_MODEL_PARALLEL_GROUP", "EXPERT_TENSOR_PARALLEL_GROUP", "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP")
GROUPS = {
    "tp": ("TENSOR_MODEL_PARALLEL_GROUP",), "ep": EXPERTS, "world": ("INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP",),
    "model": ("MODEL_PARALLEL_GROUP",),
}  # fmt: skip
EXCHANGED = {"": "DATA_PARALLEL_GROUP_WITH_CP", "expert ": "EXPERT_DATA_PARALLEL_GROUP"}
FULL = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


ATTENTION = SelfAttention(heads=ARCH.heads, kv_heads=ARCH.kv_heads, head_dim=ARCH.head_dim)


def routed(**moe):
    kind = LayerKind("routed", mixer=ATTENTION, mlp=Moe(**{"experts": 16, "top_k": 2, "hidden": 128, **moe}))
    return msgspec.structs.replace(ARCH, name="routed", kinds=(kind,), order=(0,) * ARCH.layers)


DEEP = msgspec.structs.replace(ARCH, name="deep", layers=8)
FURTHER_LAYER = LayerKind("further", mixer=ATTENTION, mlp=Dense(512, gated=True))
FURTHER = msgspec.structs.replace(ARCH, name="further", prediction_modules=1, prediction_kinds=(FURTHER_LAYER,))
TIED = msgspec.structs.replace(ARCH, name="tied", tied_embeddings=True)


@pytest.fixture
def on_cpu(monkeypatch):
    stand_in(monkeypatch)
    # All experts get as much here; the table says what the fullest of ranks gets where tokens choose at random.
    monkeypatch.setattr(expert_parallel, "expected_peak", lambda *_: 1.0)


def of_stage(stage, arch, micro_batches, layout, **more):
    """Record the first rank of a stage (-1: the last one)."""
    strategy = Strategy(**layout)
    return step(arch, strategy, micro_batches, stage % strategy.pp * strategy.gpus // strategy.pp, **more)


def global_batch(micro_batches, layout):
    return micro_batches * layout.get("dp", 1) * layout.get("micro_batch", 1)


def named(case):
    return "-".join(f"{key}={value}" for key, value in case.items())


@pytest.mark.parametrize(
    "layout",
    [
        {"tp": 8, "sharding": "none", "micro_batch": 2},
        {"tp": 8, "sharding": "none", "micro_batch": 2, "sequence_parallel": False},
        {"tp": 4, "dp": 2, "recompute": "full"},
        {"tp": 4, "dp": 2, "recompute": "full", "sequence_parallel": False},
        {"tp": 2, "pp": 2, "dp": 4, "sharding": "none"},
        {"tp": 2, "pp": 4, "dp": 8},
    ],
    ids=named,
)
def test_dense(layout):
    """Exchanges of layers, embedding, head and loss, gradients of norms, and the gradient norm."""
    real = of_stage(-1, ARCH, 4, layout, **FULL if layout.get("recompute") == "full" else {})
    for group, names in GROUPS.items():
        assert table(global_batch(4, layout), groups=(group,), **layout) == real.table(*names), group


@pytest.mark.parametrize(
    ("moe", "layout"),
    [
        ({}, {"dp": 8, "ep": 8}),
        ({}, {"dp": 8, "ep": 8, "recompute": "full"}),
        ({}, {"dp": 8, "ep": 8, "dispatcher": "allgather"}),
        ({"capacity": 1.0}, {"dp": 8, "ep": 8}),
        ({"capacity": 2.0}, {"dp": 8, "ep": 8}),
        ({"experts": 32, "top_k": 4}, {"tp": 4, "dp": 4, "ep": 16, "micro_batch": 2}),
        ({"shared": 128}, {"tp": 2, "dp": 8, "ep": 4, "etp": 2}),
        ({}, {"tp": 2, "dp": 8, "ep": 4, "etp": 2, "dispatcher": "allgather"}),
        ({"experts": 64}, {"dp": 64, "ep": 64}),
        ({}, {"tp": 2, "pp": 2, "dp": 16, "ep": 8}),
    ],
    ids=named,
)
def test_experts(moe, layout):
    """Every exchange of tokens with their experts, beside those of attention and of shared experts."""
    arch = routed(**moe)
    real = of_stage(-1, arch, 2, layout, **FULL if layout.get("recompute") == "full" else {})
    for group, names in GROUPS.items():
        assert table(global_batch(2, layout), arch=arch, groups=(group,), **layout) == real.table(*names), group
    assert real.table(*EXPERTS)


@pytest.mark.parametrize(
    "layout",
    [
        {"tp": 2, "dp": 4},
        {"tp": 2, "dp": 4, "sharding": "none", "sequence_parallel": False},
        {"tp": 4, "dp": 2, "recompute": "full"},
        {"tp": 4, "dp": 2, "recompute": "full", "sequence_parallel": False},
        {"tp": 2, "pp": 2, "dp": 4},
    ],
    ids=named,
)
def test_further_tokens(layout):
    """A module that predicts a token more: its layer, the product before it; head, loss and lookup once more."""
    real = of_stage(-1, FURTHER, 4, layout, **FULL if layout.get("recompute") == "full" else {})
    for group, names in GROUPS.items():
        assert table(global_batch(4, layout), arch=FURTHER, groups=(group,), **layout) == real.table(*names), group
    ends = table(global_batch(4, layout), arch=FURTHER, groups=("pp",), **layout)
    assert real.table("EMBEDDING_GROUP") == {call: n for call, n in ends.items() if call.kind == "all_reduce"}


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("layout", [{"tp": 2, "pp": 4, "dp": 2}, {"tp": 2, "pp": 4, "dp": 2, "vpp": 2}], ids=named)
def test_boundary_messages(layout, stage):
    """Of every stage; the first sends no gradients out of its first chunk, the last no activations out of its last."""
    real = of_stage(stage, DEEP, 8, layout)
    ((row, count),) = table(global_batch(8, layout), arch=DEEP, groups=("pp",), **layout).items()
    sent = Counter(call for call in real.calls if call.kind == "send_recv")
    assert sent == {row._replace(ranks=4): count - (8 if stage in (0, 3) else 0)}


def test_tied_tables_are_summed_over_both_ends():
    layout = {"tp": 2, "pp": 2, "dp": 4, "sharding": "none"}
    found = table(global_batch(4, layout), arch=TIED, groups=("pp",), **layout)
    ends = {call: count for call, count in found.items() if call.kind == "all_reduce"}
    for stage in (0, 1):
        assert of_stage(stage, TIED, 4, layout).table("EMBEDDING_GROUP") == ends != {}


@pytest.mark.parametrize(
    ("arch", "layout"),
    [
        (ARCH, {"dp": 8}),
        (FURTHER, {"dp": 8}),
        (ARCH, {"tp": 2, "pp": 2, "dp": 8, "sharding": "none"}),
        (ARCH, {"tp": 2, "pp": 4, "dp": 8}),
        (DEEP, {"tp": 2, "pp": 4, "dp": 8, "vpp": 2}),
        (TIED, {"dp": 8, "sharding": "none"}),
        (routed(), {"dp": 64, "ep": 8}),
        (routed(), {"tp": 2, "pp": 2, "dp": 8, "ep": 4, "etp": 2}),
    ],
    ids=lambda case: named(case) if isinstance(case, dict) else case.name,
)
def test_gradients_and_parameters(arch, layout):
    """What the first stage reduces, scatters and gathers once a step, experts beside the rest."""
    layout = {**layout, "bucket_bytes": 1_000_000}
    real = of_stage(0, arch, 8, layout)
    ours = [row for row in rows(global_batch(8, layout), arch=arch, groups=("dp",), **layout) if row.ranks > 1]
    for row in ours:
        theirs = real.table(EXCHANGED["expert " if row.what.startswith("expert ") else ""])
        sizes = Counter({call: count for call, count in theirs.items() if call.kind == row.collective})
        assert {call.ranks for call in sizes} == {row.ranks}
        assert sum(call.size_bytes * count for call, count in sizes.items()) == round(row.size_bytes * row.count)
        assert sizes.total() <= row.count <= 2 * sizes.total()
    kinds = {(call.kind, call.ranks) for call in real.table(*EXCHANGED.values())}
    assert kinds == {(row.collective, row.ranks) for row in ours}
