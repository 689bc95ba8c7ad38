"""Tensor parallelism against megatron-core's own GPTModel on CPU: every exchange of a step, exactly.

Runs where megatron-core (0.16) is installed; its layers written in PyTorch need neither Apex nor Transformer Engine.
Stand-ins, none of which communicates: the random states of a GPU, and a norm, since megatron-core's PyTorch norm
refuses sequence parallelism although the same norm of a rank's own tokens is what the fused ones compute.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from tests.oracles.block import ARCH, SEQ, tokens
from tests.oracles.recorder import Recorder, torch, world
from tests.oracles.table import table

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that Apex and Transformer Engine are missing
    pytest.importorskip("megatron.core", reason="megatron-core is not installed: its collectives cannot be recorded")
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig

# What megatron-core and torch warn about themselves.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("on_cpu")]

TP, MICRO_BATCH, MICRO_BATCHES = 8, 2, 3


class Norm(torch.nn.LayerNorm):
    """A plain norm with megatron-core's arguments."""

    def __init__(self, config, hidden_size, eps=1e-5, **_):
        super().__init__(hidden_size, eps=eps)


@pytest.fixture
def on_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    states = SimpleNamespace(fork=lambda *_: nullcontext())
    for name, module in list(sys.modules.items()):
        if name.startswith("megatron."):
            for attribute, stand_in in (("get_cuda_rng_tracker", lambda *_, **__: states), ("LayerNormImpl", Norm)):
                if hasattr(module, attribute):
                    monkeypatch.setattr(module, attribute, stand_in)


def model(*, sequence):
    config = TransformerConfig(
        num_layers=ARCH.layers, hidden_size=ARCH.hidden, num_attention_heads=ARCH.heads,
        ffn_hidden_size=ARCH.ffn_hidden, gated_linear_unit=True, add_bias_linear=False, tensor_model_parallel_size=TP,
        sequence_parallel=sequence, use_cpu_initialization=True, params_dtype=torch.bfloat16, bf16=True,
        hidden_dropout=0.0, attention_dropout=0.0, gradient_accumulation_fusion=False, masked_softmax_fusion=False,
        bias_dropout_fusion=False,
    )  # fmt: skip
    spec = get_gpt_layer_local_spec()
    spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = Norm
    return GPTModel(
        config, spec, vocab_size=ARCH.vocab, max_sequence_length=SEQ, position_embedding_type="rope",
        share_embeddings_and_output_weights=False,
    ).to(torch.bfloat16)  # fmt: skip


def recorded(*, sequence):
    ids, positions = tokens(MICRO_BATCH), torch.arange(SEQ).expand(MICRO_BATCH, -1)
    mask = torch.ones(1, 1, SEQ, SEQ, dtype=torch.bool).triu(1)
    with world(TP):
        parallel_state.initialize_model_parallel(TP, create_gloo_process_groups=False)
        try:
            gpt = model(sequence=sequence)
            with Recorder() as recorder:
                for _ in range(MICRO_BATCHES):
                    gpt(ids, positions, mask, labels=ids).mean().backward()
        finally:
            parallel_state.destroy_model_parallel()
    return recorder.table()


@pytest.mark.parametrize("sequence", [True, False], ids=["sequence", "plain"])
def test_exchanges(sequence):
    found = table(
        MICRO_BATCH * MICRO_BATCHES, tp=TP, micro_batch=MICRO_BATCH, stack="megatron", sharding="none",
        sequence_parallel=sequence, groups=("tp",),
    )  # fmt: skip
    assert found == recorded(sequence=sequence)
