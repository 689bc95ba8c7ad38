"""One training step of megatron-core on CPU: GPTModel, its schedules, data parallelism and distributed optimizer.

Needs megatron-core 0.16; its layers written in PyTorch need neither Apex nor Transformer Engine. Stand-ins, none of
which communicates: devices, streams and random states of a GPU; a norm, since megatron-core's PyTorch norm refuses
sequence parallelism although the same norm of a rank's own tokens is what the fused ones compute; and of a router the
choice of experts, so that every expert gets as many tokens as the next.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from linkscale.plan.strategy import Strategy
from linkscale.workload import Architecture
from tests.oracles.block import SEQ, tokens
from tests.oracles.recorder import Recorder, torch, world

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that Apex and Transformer Engine are missing
    pytest.importorskip("megatron.core", reason="megatron-core is not installed: its collectives cannot be recorded")
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.moe import moe_utils, router, token_dispatcher

from torch.overrides import TorchFunctionMode

__all__ = ["stand_in", "step"]


class Norm(torch.nn.RMSNorm):
    """A plain norm with megatron-core's arguments."""

    def __init__(self, config, hidden_size, eps=1e-5, **_):
        super().__init__(hidden_size, eps=eps)
        for param in self.parameters():
            param.sequence_parallel = config.sequence_parallel


class Stream:
    """A stream on which everything is done at once."""

    def __init__(self, *_, **__):
        pass

    def wait_stream(self, _):
        pass

    def record_event(self):
        return SimpleNamespace(synchronize=lambda: None)


class OnCpu(TorchFunctionMode):
    """Puts on the CPU what is asked for on a GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            return func(*args).replace("torch.", "torch.cuda.")  # the optimizer takes no other
        return func(*args, **kwargs)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the GPU out of megatron-core."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: Stream())
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    states = SimpleNamespace(fork=lambda *_: nullcontext(), get_states=dict, set_states=lambda _: None)
    monkeypatch.setattr(random, "_get_cuda_rng_state", lambda **_: None)
    monkeypatch.setattr(random, "_set_cuda_rng_state", lambda *_, **__: None)
    for name, module in list(sys.modules.items()):
        if name.startswith("megatron."):
            for attribute, other in (("get_cuda_rng_tracker", lambda *_, **__: states), ("LayerNormImpl", Norm)):
                if hasattr(module, attribute):
                    monkeypatch.setattr(module, attribute, other)
    monkeypatch.setattr(moe_utils, "te_general_gemm", None, raising=False)
    monkeypatch.setattr(token_dispatcher, "maybe_move_tensor_to_cpu", _moved)
    monkeypatch.setattr(router, "apply_random_logits", _even)


def _moved(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
    return tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor


def _even(logits: Any) -> Any:
    """In place of the random logits of ``moe_router_force_load_balancing``: token t prefers experts t, t + 1 and on."""
    experts = logits.shape[-1]
    token = torch.arange(logits[..., 0].numel()).reshape(*logits.shape[:-1], 1)
    return logits.nan_to_num() * 0.0 - ((torch.arange(experts) - token) % experts).to(logits.dtype)


def step(arch: Architecture, strategy: Strategy, micro_batches: int, rank: int = 0, **more: Any) -> Recorder:
    """Record what one rank asks of its groups in a training step, the second: the first gathers no parameters.

    ``more``: further fields of megatron-core's configuration. Parameters are bf16, gradients accumulated in fp32.
    """
    with _placed(strategy, rank), OnCpu():
        chunks = _model(arch, strategy, _config(arch, strategy, **more))
        optimizer = get_megatron_optimizer(
            OptimizerConfig(
                optimizer="adam", lr=1e-4, bf16=True, params_dtype=torch.bfloat16, clip_grad=1.0,
                use_distributed_optimizer=strategy.sharding == "zero1",
                overlap_param_gather=strategy.sharding == "zero1",
            ),
            chunks, use_gloo_process_groups=False,
        )  # fmt: skip
        for recorder in (Recorder(), last := Recorder()):
            with recorder:
                for chunk in chunks:
                    chunk.zero_grad_buffer()
                optimizer.zero_grad()
                _forward_and_backward(chunks, strategy, micro_batches)
                optimizer.step()
    return last


@contextmanager
def _placed(strategy: Strategy, rank: int) -> Iterator[None]:
    """Stand as one rank of the strategy's groups."""
    with world(strategy.gpus, rank):
        parallel_state.initialize_model_parallel(
            strategy.tp, strategy.pp, strategy.vpp if strategy.vpp > 1 else None,
            expert_model_parallel_size=strategy.ep, expert_tensor_parallel_size=strategy.etp,
            create_gloo_process_groups=False,
        )  # fmt: skip
        try:
            yield
        finally:
            parallel_state.destroy_model_parallel()


def _config(arch: Architecture, strategy: Strategy, **more: Any) -> TransformerConfig:
    return TransformerConfig(
        num_layers=arch.layers, hidden_size=arch.hidden, num_attention_heads=arch.heads,
        num_query_groups=arch.kv_heads, ffn_hidden_size=arch.ffn_hidden, gated_linear_unit=arch.gated_mlp,
        add_bias_linear=False, tensor_model_parallel_size=strategy.tp, pipeline_model_parallel_size=strategy.pp,
        virtual_pipeline_model_parallel_size=strategy.vpp if strategy.vpp > 1 else None,
        expert_model_parallel_size=strategy.ep, expert_tensor_parallel_size=strategy.etp,
        sequence_parallel=strategy.sequence_parallel and strategy.tp > 1, pipeline_dtype=torch.bfloat16,
        use_cpu_initialization=True, params_dtype=torch.bfloat16, bf16=True, hidden_dropout=0.0, attention_dropout=0.0,
        gradient_accumulation_fusion=False, masked_softmax_fusion=False, bias_dropout_fusion=False,
        bias_activation_fusion=False, batch_p2p_comm=False, overlap_p2p_comm=strategy.vpp > 1,
        finalize_model_grads_func=finalize_model_grads, mtp_num_layers=arch.prediction_modules or None,
        **_routed(arch, strategy), **more,
    )  # fmt: skip


def _routed(arch: Architecture, strategy: Strategy) -> dict[str, Any]:
    """What the configuration says of experts. The router works in fp32, as megatron-core recommends."""
    if not (found := arch.routed()):
        return {}
    moe = found[0]
    return {
        "num_moe_experts": moe.experts, "moe_router_topk": moe.top_k, "moe_ffn_hidden_size": moe.hidden,
        "moe_shared_expert_intermediate_size": moe.shared or None, "moe_token_dispatcher_type": strategy.dispatcher,
        "moe_router_dtype": "fp32", "moe_router_load_balancing_type": "none", "moe_router_force_load_balancing": True,
        "moe_expert_capacity_factor": moe.capacity, "moe_pad_expert_input_to_capacity": moe.capacity is not None,
    }  # fmt: skip


def _model(arch: Architecture, strategy: Strategy, config: TransformerConfig) -> list[DistributedDataParallel]:
    """Return this rank's chunks; as in Megatron-LM's training loop, chunks after the first have one bucket."""
    sharded = strategy.sharding == "zero1"
    chunks = []
    for chunk in range(strategy.vpp):
        place = {"ignore_virtual": False, "vp_stage": chunk if strategy.vpp > 1 else None}
        spec = get_gpt_layer_local_spec(num_experts=config.num_moe_experts)
        spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = Norm
        gpt = GPTModel(
            config, spec, vocab_size=arch.vocab, max_sequence_length=SEQ, position_embedding_type="rope",
            share_embeddings_and_output_weights=arch.tied_embeddings, vp_stage=place["vp_stage"],
            mtp_block_spec=_further_tokens(config, spec, place["vp_stage"]),
            pre_process=parallel_state.is_pipeline_first_stage(**place),
            post_process=parallel_state.is_pipeline_last_stage(**place),
        ).to(torch.bfloat16)  # fmt: skip
        exchange = DistributedDataParallelConfig(
            grad_reduce_in_fp32=True, overlap_grad_reduce=True, use_distributed_optimizer=sharded,
            overlap_param_gather=sharded, bucket_size=strategy.bucket_bytes // 4 or None,
        )  # fmt: skip
        chunks.append(DistributedDataParallel(config, exchange, gpt, disable_bucketing=chunk > 0))
    held_back = [chunk.no_sync for chunk in chunks]
    config.no_sync_func = held_back if len(chunks) > 1 else held_back[0]
    return chunks


def _further_tokens(config: TransformerConfig, spec: Any, chunk: int | None) -> Any:
    """Return the layers that predict further tokens, of a stage that has any."""
    block = get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False, vp_stage=chunk)
    for layer in block.layer_specs if block else ():
        layer.submodules.enorm = layer.submodules.hnorm = layer.submodules.layer_norm = Norm
    return block


def _forward_and_backward(chunks: list[DistributedDataParallel], strategy: Strategy, micro_batches: int) -> None:
    ids, positions = tokens(strategy.micro_batch), torch.arange(SEQ).expand(strategy.micro_batch, -1)
    mask = torch.ones(1, 1, SEQ, SEQ, dtype=torch.bool).triu(1)

    def forward(_: Any, model: Any) -> Any:
        return model(ids, positions, mask, labels=ids), lambda losses: (losses.mean(), {})

    get_forward_backward_func()(
        forward_step_func=forward, data_iterator=[None] * len(chunks), model=chunks, num_microbatches=micro_batches,
        seq_length=SEQ, micro_batch_size=strategy.micro_batch, forward_only=False,
    )  # fmt: skip
