"""The token table and the output projection: counted once where they are one, exchanged where they are copies."""

from __future__ import annotations

import msgspec
import pytest

from linkscale.workload import load_architecture
from linkscale.workload.counts import params
from tests.estimate.clusters import GPT, estimate, message

TIED = msgspec.structs.replace(GPT, tied_embeddings=True)


@pytest.mark.parametrize("arch", [GPT, TIED, *map(load_architecture, ("gpt2", "llama-3.2-1b", "falcon-7b"))])
def test_one_gpu_holds_every_parameter_once(arch) -> None:
    alone = {"tp": 1, "dp": 1, "sequence_parallel": False, "seq_len": 1024, "stack": "ddp", "sharding": "none"}
    found = estimate(1, arch=arch, **alone)
    assert found.memory.optimizer[0] == pytest.approx(8.0 * params(arch), rel=1e-12)
    assert 4.0 * params(arch) <= found.memory.weights[0] <= (1.0 + 1e-12) * 6.0 * params(arch)


def test_the_last_stage_holds_a_copy_of_a_tied_table() -> None:
    layout = {"tp": 4, "pp": 4, "dp": 1, "sharding": "none"}
    wide = {"vocab": 10 * GPT.vocab}
    tied, untied = (msgspec.structs.replace(a, **wide) for a in (TIED, GPT))
    assert estimate(8, arch=tied, **layout).memory.weights[0] == estimate(8, arch=untied, **layout).memory.weights[0]


def test_both_copies_of_a_tied_table_sum_their_gradients() -> None:
    """One all-reduce of the table between the first and the last stage, all of it exposed, in the breakdown's pp."""
    layout = {"tp": 4, "pp": 4, "dp": 2, "global_batch": 8}
    tied, untied = estimate(arch=TIED, **layout), estimate(**layout)
    size, count, one, exposed = message(tied, "pp", "embedding gradients")
    assert (size, count) == (GPT.vocab * GPT.hidden / 4 * 4, 1.0)
    assert exposed == one > 0
    assert tied.breakdown_s["pp"][0] == pytest.approx(untied.breakdown_s["pp"][0] + one)
    with pytest.raises(LookupError):
        message(untied, "pp", "embedding gradients")


def test_a_stage_alone_sums_nothing() -> None:
    assert message(estimate(8, arch=TIED, tp=4, pp=1, dp=2), "pp", "embedding gradients")[1:] == (0.0, 0.0, 0.0)
