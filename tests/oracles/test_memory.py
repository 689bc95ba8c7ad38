"""Peak memory against PyTorch itself: real training steps under its tracker, by sharding, recompute and precision.

The tracker sees every storage that a step allocates on fake tensors, so that models have their real sizes. It is read
at the fullest moment of forward and backward once optimizer states exist.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from linkscale.estimate.memory import MemoryBytes
from linkscale.workload import Architecture
from tests.estimate.clusters import estimate
from tests.oracles.tracker import Run, tracked

WITHIN = 0.05

RECOMPUTE = ("none", "selective", "full")
LLAMA_8B = {"vocab": 128256, "hidden": 4096, "layers": 4, "heads": 32, "kv_heads": 8, "ffn": 14336, "seq": 8192}
# The reducer of DistributedDataParallel takes no fake tensors: a small model runs for real.
SMALL = {"vocab": 1024, "hidden": 256, "layers": 4, "heads": 8, "kv_heads": 2, "ffn": 896, "seq": 256}
GPT2 = {"family": "gpt2", "vocab": 50257, "hidden": 1024, "layers": 4, "heads": 16, "kv_heads": 16, "ffn": 4096,
        "seq": 1024, "micro_batch": 4}  # fmt: skip

GRID = [
    *(Run(sharding=s, recompute=r, reduce=d) for s in ("zero3", "zero2", "hsdp") for r in RECOMPUTE
      for d in ("fp32", "bf16")),
    *(Run(sharding=s, recompute=r, vocab=8000, micro_batch=2) for s in ("zero3", "hsdp", "none") for r in RECOMPUTE),
    *(Run(sharding=s, recompute=r, vocab=8000, micro_batches=2) for s in ("zero3", "zero2") for r in RECOMPUTE),
    *(Run(sharding=s, recompute=r, **LLAMA_8B) for s in ("zero3", "zero2", "hsdp", "none") for r in RECOMPUTE),
    *(Run(sharding="zero3", recompute=r, ranks=64, **LLAMA_8B) for r in RECOMPUTE),
    *(Run(sharding="ddp", recompute=r, **SMALL) for r in RECOMPUTE),
    *(Run(sharding=s, recompute=r, **GPT2) for s in ("zero3", "zero2", "none") for r in RECOMPUTE),
    *(Run(sharding=s, recompute=r, family="llama") for s in ("zero3", "hsdp") for r in RECOMPUTE),
]  # fmt: skip


SEED = 20261207


def drawn() -> list[Run]:
    """Return a setting of every sharding, the same in every run of the tests."""
    luck = random.Random(SEED)
    shardings = ("zero3", "zero2", "hsdp", "none", "ddp")
    return [luck.choice([run for run in GRID if run.sharding == sharding]) for sharding in shardings]


def architecture(run: Run) -> Architecture:
    """Return what a run's model is."""
    gpt: dict[str, Any] = {
        "gated_mlp": False, "activation": "gelu", "norm": "layernorm", "norm_bias": True, "positions": "learned",
        "max_positions": run.seq, "qkv_bias": True, "attention_out_bias": True, "mlp_bias": True,
    }  # fmt: skip
    return Architecture(
        name="tracked", model_type="tracked", vocab=run.vocab, hidden=run.hidden, layers=run.layers, heads=run.heads,
        kv_heads=run.kv_heads, head_dim=run.hidden // run.heads, ffn_hidden=run.ffn,
        **(gpt if run.family == "gpt2" else {"gated_mlp": True}),
    )  # fmt: skip


def estimated(run: Run) -> MemoryBytes:
    """Return what is expected of a run."""
    plain = run.sharding in ("none", "ddp")
    ranks = 1 if run.sharding == "none" else run.ranks
    return estimate(
        run.micro_batch * run.micro_batches * ranks, arch=architecture(run), seq_len=run.seq, dp=ranks,
        stack="ddp" if plain else "fsdp2", sharding="none" if plain else run.sharding, recompute=run.recompute,
        grad_dtype=run.reduce, micro_batch=run.micro_batch, sequence_parallel=False,
        shard_domain=run.ranks // 2 if run.sharding == "hsdp" else 1,
    ).memory  # fmt: skip


def named(run: Run) -> str:
    changed = {
        f: getattr(run, f) for f in ("family", "sharding", "recompute", "reduce", "hidden", "micro_batch", "ranks")
    }
    return "-".join(map(str, changed.values()))


def check(run: Run) -> None:
    found, expected = tracked(run), estimated(run)
    assert float(expected.optimizer[0]) == pytest.approx(found.optimizer, rel=0.01)
    assert float(expected.allocated[0]) == pytest.approx(found.total, rel=WITHIN)


@pytest.mark.parametrize("run", drawn(), ids=named)
def test_peak_of_a_real_step(run: Run) -> None:
    check(run)


@pytest.mark.evidence
@pytest.mark.parametrize("run", GRID, ids=named)
def test_peak_of_every_setting(run: Run) -> None:
    check(run)


def test_states_and_gathered_weights_are_those_of_the_tracker() -> None:
    """At the loss only the head is gathered and no gradient exists: parameters must agree to a percent."""
    run = Run(sharding="zero3")
    found, expected = tracked(run), estimated(run)
    assert float(expected.weights[0]) == pytest.approx(found.params + found.unsharded, rel=0.01)
    assert found.gradients == float(expected.gradients[0]) == 0.0


def test_what_recomputation_saves_is_what_it_saves() -> None:
    """The difference between two ways of recomputing, where everything else cancels."""
    runs = [Run(sharding="zero3", recompute=way) for way in ("none", "selective")]
    saved = [tracked(run).total for run in runs]
    expected = [float(estimated(run).allocated[0]) for run in runs]
    assert expected[0] - expected[1] == pytest.approx(saved[0] - saved[1], rel=0.03)
