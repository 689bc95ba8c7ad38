"""What is trained: adapters against real classes with real linear layers hung on them, and keys in packed documents."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscale.base.errors import InputError
from linkscale.workload import Architecture, decoder, from_config, load_architecture, packaged_models, params
from linkscale.workload.counts import (
    flops_per_token,
    trained_params,
    training_flops_per_token,
)
from linkscale.workload.ops import Attention, Gemm, trained_ops
from linkscale.workload.training import TARGETS, LoraTargets, Training, frozen

LLAMA = {
    "model_type": "llama", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}  # fmt: skip
NEOX = {
    "model_type": "gpt_neox", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 3,
    "num_attention_heads": 4, "max_position_embeddings": 64, "rotary_pct": 0.25, "tie_word_embeddings": False,
    "hidden_dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip
MODULES: dict[LoraTargets, tuple[str, ...]] = {
    "qkv": ("q_proj", "k_proj", "v_proj", "query_key_value"),
    "attention": ("q_proj", "k_proj", "v_proj", "query_key_value", "o_proj", "attention.dense"),
    "all-linear": ("q_proj", "k_proj", "v_proj", "query_key_value", "o_proj", "attention.dense", "gate_proj", "up_proj",
                   "down_proj", "dense_h_to_4h", "dense_4h_to_h"),
}  # fmt: skip
"""What the classes call the layers that each choice adapts."""


def tuned(arch: Architecture, rank: int, targets: LoraTargets) -> Architecture:
    return msgspec.structs.replace(arch, training=Training(lora_rank=rank, lora_targets=targets))


def adapted_class(data: dict[str, Any], rank: int, targets: LoraTargets, *, device: str = "meta") -> Any:
    """Build the real class, freeze it, and hang two linear layers on each of its layers that are adapted."""
    torch = pytest.importorskip("torch")
    from tests.workload.classes import config_of, transformers

    class Adapted(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base = base
            self.down = torch.nn.Linear(base.in_features, rank, bias=False, device=device)
            self.up = torch.nn.Linear(rank, base.out_features, bias=False, device=device)

        def forward(self, x: Any) -> Any:
            return self.base(x) + self.up(self.down(x))

    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config_of(data), attn_implementation="eager")
    model.requires_grad_(False)
    for name, module in list(model.named_modules()):
        if name.endswith(MODULES[targets]):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, Adapted(module))
    return model


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("data", [LLAMA, NEOX], ids=["llama", "neox"])
@pytest.mark.parametrize("rank", [1, 16])
def test_adapters_have_the_parameters_of_the_real_ones(data: dict[str, Any], rank: int, targets: LoraTargets) -> None:
    real = adapted_class(data, rank, targets)
    found = tuned(from_config(data, "tiny"), rank, targets)
    # GPT-NeoX has one product for queries, keys and values, and one up projection.
    trained = trained_params(found, apart=data is LLAMA)
    assert trained == sum(p.numel() for p in real.parameters() if p.requires_grad)
    assert params(from_config(data, "tiny")) + trained == sum(p.numel() for p in real.parameters())


def test_megatron_shares_an_adapter_between_queries_keys_and_values() -> None:
    """Llama 2 70B, rank 16 on all linear layers of Megatron: A and B of each of the four products."""
    found = tuned(load_architecture("llama-2-70b"), 16, "all-linear")
    products = ((8192, 8192 + 2 * 8 * 128), (8192, 8192), (8192, 2 * 28672), (28672, 8192))
    assert trained_params(found) == 80 * 16 * sum(k + n for k, n in products)


@pytest.mark.parametrize("targets", TARGETS)
def test_training_flops_are_those_that_run(targets: LoraTargets) -> None:
    """All but what the first layer leaves out: nothing before its first adapter needs a gradient."""
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    tokens, rank = 24, 5
    model = adapted_class(NEOX, rank, targets, device="cpu")
    with FlopCounterMode(display=False) as counter:
        model(input_ids=torch.arange(tokens).unsqueeze(0), use_cache=False).logits.sum().backward()
    counts = counter.get_flop_counts()
    tables = sum(sum(ops.values()) for name, ops in counts.items() if "rotary" in name.rsplit(".", maxsplit=1)[-1])
    first = [
        op for op in decoder(tuned(from_config(NEOX, "tiny"), rank, targets)).groups[0].ops if isinstance(op, Gemm)
    ]
    unneeded = sum(2 * op.n * op.k for op in first if op.name in ("qkv", "qkv A"))
    if targets == "all-linear":  # the parallel residual's other half reads the same input
        unneeded += sum(2 * op.n * op.k for op in first if op.name in ("up", "up A"))
    elif targets in ("qkv", "attention"):  # and has nothing to train
        unneeded += sum(2 * op.n * op.k for op in first if op.name in ("up", "down"))
    found = training_flops_per_token(tuned(from_config(NEOX, "tiny"), rank, targets), tokens)
    assert tokens * (found - unneeded) == sum(counts["Global"].values()) - tables


def test_all_weights_trained_cost_three_forwards() -> None:
    arch = load_architecture("llama-3.1-8b")
    assert training_flops_per_token(arch, 4096) == 3.0 * flops_per_token(arch, 4096)
    assert trained_params(arch) == params(arch)


@pytest.mark.parametrize("name", random.Random(3).sample(packaged_models(), 12))
def test_what_is_trained_are_adapters_alone(name: str) -> None:
    arch = load_architecture(name)
    model = decoder(tuned(arch, 8, "all-linear"))
    every = [op for group in model.groups for op in group.ops]
    assert {type(op) for op in trained_ops(every)} == {Gemm}
    assert not trained_ops((*model.embeddings, *model.final, model.head))
    assert not any(op.saves_input for op in every if isinstance(op, Gemm) and not op.trained and op.target is None)
    assert params(tuned(arch, 8, "all-linear")) - params(arch) == trained_params(tuned(arch, 8, "all-linear"))


def test_freezing_leaves_what_has_no_parameters() -> None:
    attention = Attention(heads=2, kv_heads=2, qk_dim=8, v_dim=8)
    assert frozen(attention) is attention


@pytest.mark.parametrize("values", [{"lora_rank": -1}, {"lora_rank": 10**6}, {"packed_tokens": -1}])
def test_nonsense_cannot_be_built(values: dict[str, int]) -> None:
    with pytest.raises(InputError):
        Training(**values)  # type: ignore[arg-type]


KINDS = {
    "full": {}, "window": {"window": 24}, "chunk": {"chunk": 32}, "selected": {"selected": 40},
    "compressed": {"window": 16, "compressed": 4}, "compressed and selected": {"compressed": 4, "selected": 8},
}  # fmt: skip


def attention(documents: int = 0, **kind: int) -> Attention:
    return Attention(heads=1, kv_heads=1, qk_dim=8, v_dim=8, documents=documents, **kind)  # type: ignore[arg-type]


@given(st.sampled_from(sorted(KINDS)), st.integers(8, 4096), st.integers(1, 10_000), st.booleans())
def test_longer_documents_meet_more_keys_up_to_a_whole_sequence(kind: str, seq: int, mean: int, causal: bool) -> None:
    fields = KINDS[kind]
    shorter, longer = (attention(m, **fields).keys(seq, causal=causal) for m in (mean, mean + 1))
    assert 0.0 < shorter <= longer * (1 + 1e-9)
    whole = attention(**fields).keys(seq, causal=True) * (1.0 if causal else 2.0)
    assert longer <= whole * (1 + 1e-9)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_one_document_is_a_long_one(kind: str) -> None:
    fields = KINDS[kind]
    assert attention(10**9, **fields).keys(96, causal=True) == pytest.approx(
        attention(**fields).keys(96, causal=True), rel=1e-6
    )


@pytest.mark.parametrize("window", [None, 50])
def test_keys_in_packed_documents_by_brute_force(window: int | None) -> None:
    """Documents drawn one token after the other, queries counted one by one."""
    draw, seq, mean, met, queries = random.Random(5), 400, 60, 0, 0
    for _ in range(400):
        start = 0
        for place in range(seq):
            met += min(place - start + 1, window or seq)
            queries += 1
            if draw.random() < 1 / mean:
                start = place + 1
    expected = attention(mean, **({"window": window} if window else {})).keys(seq, causal=True)
    assert met / queries == pytest.approx(expected, rel=0.02)
