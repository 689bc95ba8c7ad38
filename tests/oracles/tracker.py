"""Peak memory of real training steps: PyTorch's own tracker over fake tensors, on one rank of a fake process group."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import msgspec
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: no model can be tracked")

import torch.distributed as dist  # noqa: E402 - only where torch is installed
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker  # noqa: E402
from torch.distributed._tools.mem_tracker import MemTracker  # noqa: E402
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (  # noqa: E402
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts  # noqa: E402

from tests.oracles.llama import Llama  # noqa: E402

aten = torch.ops.aten


class Run(msgspec.Struct, frozen=True):
    """One setting of a real training step."""

    family: Literal["written", "llama", "gpt2"] = "written"
    sharding: Literal["none", "ddp", "zero2", "zero3", "hsdp"] = "zero3"
    recompute: Literal["none", "selective", "full"] = "none"
    reduce: Literal["fp32", "bf16"] = "fp32"
    ranks: int = 8
    vocab: int = 32000
    hidden: int = 2048
    layers: int = 4
    heads: int = 16
    kv_heads: int = 4
    ffn: int = 7168
    seq: int = 4096
    micro_batch: int = 1
    micro_batches: int = 1


class Peak(msgspec.Struct, frozen=True):
    """Bytes by cause at the fullest moment of forward and backward, once optimizer states exist."""

    params: float
    unsharded: float
    gradients: float
    optimizer: float
    activations: float
    total: float


@contextmanager
def fake_group(ranks: int) -> Iterator[None]:
    """A process group of so many ranks of which only this one exists."""
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


@cache
def tracked(run: Run) -> Peak:
    """Run two real steps under the tracker and return the second one's peak before its optimizer step."""
    real = run.sharding == "ddp"  # its reducer reads gradients' addresses
    with fake_group(run.ranks):
        mesh = mesh_of(run)
        with nullcontext() if real else FakeTensorMode():
            peak, buckets = two_steps(run, mesh)
    return by_cause(peak, buckets)


def two_steps(run: Run, mesh: Any) -> tuple[dict[Any, int], float]:
    """Warm up, then track."""
    model, parts = built(run)
    if run.recompute != "none":
        checkpointed(model, type(parts.blocks[0]), run.recompute)
    model = sharded(model, parts, run, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids = torch.zeros(run.micro_batch, run.seq, dtype=torch.long)
    tracker: Any = FSDPMemTracker(model, optimizer) if isinstance(model, FSDPModule) else MemTracker()
    if not isinstance(model, FSDPModule):
        tracker.track_external(model, optimizer)
    with tracker:
        step(model, ids, run, tracker)
        optimizer.step()
        optimizer.zero_grad()
        forget_peak(tracker)
        step(model, ids, run, tracker)
        (peak,) = tracker.get_tracker_snapshot("peak").values()
    buckets = reducer_bytes(model) if isinstance(model, DistributedDataParallel) else 0.0
    return peak, buckets


class Parts(NamedTuple):
    """What is sharded as a unit: tables before the layers, the layers, what follows them."""

    tables: list[Any]
    blocks: Any
    head: list[Any]


def built(run: Run) -> tuple[Any, Parts]:
    """Return a model and its parts: written for these tests, or a class of transformers."""
    if run.family == "written":
        model: Any = Llama(run.vocab, run.hidden, run.layers, run.heads, run.kv_heads, run.ffn, run.seq)
        return model, Parts([model.embedding], model.layers, [model.norm, model.output])
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: no real model classes")
    if run.family == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=run.vocab, n_positions=run.seq, n_embd=run.hidden, n_layer=run.layers, n_head=run.heads,
            n_inner=run.ffn, activation_function="gelu_pytorch_tanh", resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
            tie_word_embeddings=False, attn_implementation="sdpa",
        )  # fmt: skip
        model = transformers.GPT2LMHeadModel(config)
        body = model.transformer
        return model, Parts([body.wte, body.wpe], body.h, [body.ln_f, model.lm_head])
    config = transformers.LlamaConfig(
        vocab_size=run.vocab, hidden_size=run.hidden, num_hidden_layers=run.layers, num_attention_heads=run.heads,
        num_key_value_heads=run.kv_heads, intermediate_size=run.ffn, max_position_embeddings=run.seq,
        attn_implementation=unmasked(transformers),
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    return model, Parts([model.model.embed_tokens], model.model.layers, [model.model.norm, model.lm_head])


def unmasked(transformers: Any) -> str:
    """Register attention without a mask, as it runs on a GPU: under fake tensors transformers would write one out."""
    transformers.AttentionInterface.register(
        "unmasked", transformers.integrations.sdpa_attention.sdpa_attention_forward
    )
    return "unmasked"


def forget_peak(tracker: Any) -> None:
    """Start the search for the fullest moment anew."""
    tracker.reset_mod_stats()
    tracker._peak_mem = dict.fromkeys(tracker._peak_mem, 0)


def reducer_bytes(model: Any) -> float:
    """Bytes of the reducer's buckets, which the tracker takes for activations once the hook touches them."""
    sizes = model._get_ddp_logging_data()["bucket_sizes"]
    return float(sum(int(size) for size in sizes.split(",")))


def step(model: Any, ids: Any, run: Run, tracker: Any) -> None:
    """Forward and backward of one global batch."""
    wrapped = run.sharding in ("none", "ddp")
    for last in range(run.micro_batches):
        if isinstance(model, FSDPModule):
            model.set_is_last_backward(last == run.micro_batches - 1)
        with torch.autocast("cpu", torch.bfloat16) if wrapped else nullcontext():
            found = model(ids) if run.family == "written" else model(ids, use_cache=False).logits
            logits = found.flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(logits.float(), ids.flatten())
        del found, logits
        loss.backward()
        tracker.reset_mod_stats()


def mesh_of(run: Run) -> Any:
    """Return the ranks that shard, and under HSDP those that replicate."""
    shape, names = ((2, run.ranks // 2), ("replica", "shard")) if run.sharding == "hsdp" else ((run.ranks,), ("shard",))
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def sharded(model: Any, parts: Parts, run: Run, mesh: Any) -> Any:
    """Return the model wrapped as its users wrap it; fully sharded, as torchtitan does, tables by themselves."""
    if run.sharding == "none":
        return model
    if run.sharding == "ddp":
        model = DistributedDataParallel(model)
        model.register_comm_hook(None, unreduced)
        return model
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32 if run.reduce == "fp32" else torch.bfloat16)
    wrap = partial(fully_shard, mesh=mesh, mp_policy=policy, reshard_after_forward=run.sharding != "zero2")
    for layer in (*parts.tables, *parts.blocks):
        wrap(layer)
    fully_shard(parts.head, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def unreduced(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    """Stand in for the exchange: a fake group returns no tensors to the reducer."""
    done: Any = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def checkpointed(model: Any, kind: type, recompute: str) -> None:
    """Recompute whole layers, or all but every second product and attention."""
    contexts = {"context_fn": selective_contexts} if recompute == "selective" else {}
    wrapper = partial(checkpoint_wrapper, preserve_rng_state=False, **contexts)
    apply_activation_checkpointing(model, wrapper, check_fn=lambda module: isinstance(module, kind))


def selective_contexts() -> Any:
    """Save the outputs of attention and of every second matrix product."""
    counts = {False: 0, True: 0}

    def policy(ctx: Any, func: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        product = func in (aten.mm.default, aten.addmm.default)
        counts[ctx.is_recompute] += product
        saved = func is aten._scaled_dot_product_flash_attention_for_cpu.default or (
            product and counts[ctx.is_recompute] % 2 == 1
        )
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def by_cause(snapshot: dict[Any, int], buckets: float) -> Peak:
    """Sum a snapshot's categories."""
    named = {str(getattr(key, "value", key)).split(".")[-1]: float(size) for key, size in snapshot.items()}

    def of(*names: str) -> float:
        return sum(named.get(name, 0.0) for name in names)

    return Peak(
        params=of("Sharded Param", "Parameter"),
        unsharded=of("Unsharded Param", "All Gather"),
        gradients=of("Sharded Grad", "Unsharded Grad", "Reduce Scatter", "Gradient") + buckets,
        optimizer=of("OptState", "Optstate"),
        activations=of("Activation", "Temp", "Inputs", "Buffer") - buckets,
        total=named["Total"],
    )
