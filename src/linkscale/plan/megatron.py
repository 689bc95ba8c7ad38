"""Megatron-LM arguments → Plan. Defaults are the program's own; what is not understood is said, not dropped.

Source of flags and defaults: NVIDIA/Megatron-LM megatron/training/arguments.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from linkscale.base.errors import InputError
from linkscale.plan.layer_pattern import layout_stages
from linkscale.plan.megatron_experts import expert_choices, layers_by_kind
from linkscale.plan.megatron_flags import Flags
from linkscale.plan.plan import Plan
from linkscale.plan.strategy import (
    DEFAULT_MODULES,
    MODULES,
    AttentionKernel,
    CommDtype,
    CpComm,
    CudaGraphs,
    Optimizer,
    Precision,
    Recompute,
    Sharding,
    Strategy,
    TpOverlap,
)
from linkscale.readers.megatron import MegatronArgs, read_megatron
from linkscale.workload.architecture import Architecture, Positions

# The GPT-2 vocabulary, which Megatron's examples train with.
GPT2_VOCAB = 50257
# Megatron's names of how context-parallel ranks meet each other's keys and values.
CP_COMM: dict[str, CpComm] = {"p2p": "p2p", "all_gather": "all_gather", "allgather": "all_gather", "a2a": "a2a"}
# Its recipes of 8-bit products; `delayed` is the default.
RECIPES: dict[str, Precision] = {"delayed": "fp8", "tensorwise": "fp8", "blockwise": "fp8-block", "mxfp8": "mxfp8"}
OPTIMIZERS: dict[str, Optimizer] = {"adam": "adamw", "sgd": "sgd", "muon": "muon", "dist_muon": "muon"}
POSITIONS: dict[str, Positions] = {"learned_absolute": "learned", "rope": "rope", "none": "none"}


def plan_from_megatron(path: str | Path, gpus: int | None = None) -> Plan:
    """Read launch arguments into a Plan; ``gpus`` overrides the number that the launcher's flags give."""
    return plan_from_args(read_megatron(path), gpus)


def plan_from_args(args: MegatronArgs, gpus: int | None = None) -> Plan:
    """Turn arguments into a Plan without a cluster; its assumptions name every flag that was not understood."""
    flags = Flags(args)
    flags.refuse_unpriced()
    strategy = _strategy(flags, gpus)
    global_batch = flags.whole("global-batch-size", strategy.micro_batch * strategy.dp)
    model = _architecture(flags, strategy.tp)
    return Plan(
        model=model,
        strategy=strategy,
        global_batch=global_batch,
        seq_len=flags.required("seq-length"),
        assumptions=(*flags.assumptions, *flags.not_understood()),
    )


def _strategy(flags: Flags, gpus: int | None) -> Strategy:
    tp = flags.whole("tensor-model-parallel-size", 1)
    pp = flags.whole("pipeline-model-parallel-size", 1)
    cp = flags.whole("context-parallel-size", 1)
    recompute, layers = _recompute(flags, pp)
    precision = _precision(flags)
    sharded = flags.on("use-distributed-optimizer") or flags.on("overlap-param-gather")
    grad_dtype = _grad_dtype(flags, precision)
    return Strategy(
        stack="megatron",
        tp=tp, pp=pp, cp=cp, dp=_replicas(flags, tp, pp, cp, gpus), vpp=_interleaving(flags, pp),
        cp_comm=flags.choice("cp-comm-type", CP_COMM, "p2p"),
        micro_batch=flags.whole("micro-batch-size", 1),
        sequence_parallel=flags.on("sequence-parallel") and tp > 1,
        sharding=_sharding(flags, sharded),
        recompute=recompute, recompute_layers=layers, recompute_modules=_modules(flags, recompute),
        precision=precision,
        attention=_attention(flags),
        grad_dtype=grad_dtype,
        param_dtype="fp8" if flags.on("fp8-param-gather") else "fp16" if precision == "fp16" else "bf16",
        overlap_grad_reduce=flags.on("overlap-grad-reduce"),
        overlap_param_gather=flags.on("overlap-param-gather"),
        overlap_p2p=not flags.on("no-overlap-p2p-communication"),
        tp_overlap=_tp_overlap(flags, tp),
        bucket_bytes=flags.whole("ddp-bucket-size", 0) * (4 if grad_dtype == "fp32" else 2),
        optimizer=flags.choice("optimizer", OPTIMIZERS, "adam"), cuda_graphs=_cuda_graphs(flags),
        offload_optimizer=_offload_optimizer(flags),
        **expert_choices(flags, tp),
    )  # fmt: skip


def _sharding(flags: Flags, sharded: bool) -> Sharding:
    return "zero3" if flags.on("use-megatron-fsdp") or flags.on("use-custom-fsdp") else "zero1" if sharded else "none"


def _offload_optimizer(flags: Flags) -> bool:
    """Whether the host updates: all of the optimizer, which is Megatron's default share."""
    offloaded = flags.on("optimizer-cpu-offload")
    if offloaded and flags.share("optimizer-offload-fraction") < 1.0:
        raise flags.wrong(
            flags.flags["optimizer-offload-fraction"], "a part of the optimizer is not priced; 1.0 would be"
        )
    return offloaded


def _cuda_graphs(flags: Flags) -> CudaGraphs:
    """Return how much is a graph: layers or the iteration in full, or the parts of a layer that a scope lists."""
    impl = flags.text("cuda-graph-impl", "none")
    if impl == "none" and not (flags.on("enable-cuda-graph") or flags.on("external-cuda-graph")):
        return "none"
    scope = flags.values("cuda-graph-scope")
    return "partial" if scope and not {"full", "full_iteration"} & set(scope) else "full"


def _replicas(flags: Flags, tp: int, pp: int, cp: int, gpus: int | None) -> int:
    model = tp * cp * pp
    degrees = f"tp*cp*pp = {tp}*{cp}*{pp}" if cp > 1 else f"tp*pp = {tp}*{pp}"
    if gpus is None and "nproc-per-node" in flags.flags:
        gpus = flags.whole("nproc-per-node", 1) * flags.whole("nnodes", 1)
        if gpus < model:
            # The published examples name one node and leave the rest to the reader.
            name = degrees.split(" = ", maxsplit=1)[0]
            flags.assumptions.append(f"the launcher names {gpus} GPUs, fewer than {name} = {model}: dp = 1 assumed")
            return 1
    if gpus is None:
        flags.assumptions.append("dp: the arguments name no number of GPUs, so it is what the cluster leaves")
        return 1
    if gpus % model:
        raise InputError(f"{flags.args.where}: {gpus} GPUs do not divide by {degrees}; change the GPUs or the degrees")
    return gpus // model


def _interleaving(flags: Flags, pp: int) -> int:
    if pp > 1 and "pipeline-model-parallel-layout" in flags.flags:
        return _laid_out(flags, pp)
    stages = flags.optional("num-virtual-stages-per-pipeline-rank")
    layers = flags.optional("num-layers-per-virtual-pipeline-stage")
    if stages or not layers or pp == 1:
        return stages or 1
    ends = ("account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split")
    total = flags.required("num-layers") + sum(flags.on(name) for name in ends)
    if total % (pp * layers):
        flag = flags.flags["num-layers-per-virtual-pipeline-stage"]
        raise flags.wrong(flag, f"{total} layers do not divide by {pp} stages of {layers}-layer chunks")
    return total // (pp * layers)


def _laid_out(flags: Flags, pp: int) -> int:
    name = "pipeline-model-parallel-layout"
    stages = layout_stages(flags.text(name))
    if stages % pp:
        raise flags.wrong(flags.flags[name], f"{stages} stages do not divide by pp = {pp}")
    return stages // pp


def _recompute(flags: Flags, pp: int) -> tuple[Recompute, int]:
    granularity = flags.text("recompute-granularity")
    if flags.on("recompute-activations") or granularity == "selective":
        return "selective", 0
    method = flags.text("recompute-method") or flags.text("activations-checkpoint-method")
    if granularity == "full" or method or flags.on("checkpoint-activations"):
        # `block` recomputes that many layers of a stage; `uniform` all of them, in groups of that many.
        return "full", flags.whole("recompute-num-layers", 1) if method == "block" else 0
    return "none", 0


def _modules(flags: Flags, recompute: Recompute) -> str:
    """Return what selective recomputation names: attention cores unless ``--recompute-modules`` says otherwise."""
    named = flags.values("recompute-modules")
    if recompute != "selective" or not named:
        return DEFAULT_MODULES
    for name in named:
        if name not in MODULES:
            known = ", ".join(MODULES)
            raise flags.wrong(flags.flags["recompute-modules"], f"{name[:40]!r} is not priced; of {known} each is")
    return ",".join(named)


def _precision(flags: Flags) -> Precision:
    if "fp4-format" in flags.flags:
        return "nvfp4"
    if "fp8-format" in flags.flags or "fp8" in flags.flags:
        return flags.choice("fp8-recipe", RECIPES, "delayed")
    if flags.on("bf16"):
        return "bf16"
    if flags.on("fp16"):
        return "fp16"
    raise InputError(f"{flags.args.where}: neither --bf16 nor --fp16: 32-bit training is not priced; add one of them")


def _grad_dtype(flags: Flags, precision: Precision) -> CommDtype:
    if flags.on("grad-reduce-in-bf16"):
        return "bf16"
    # --bf16 accumulates in 32 bits by default, --fp16 only when asked.
    wide = precision != "fp16" or flags.on("accumulate-allreduce-grads-in-fp32")
    return "fp32" if wide else "fp16"


def _attention(flags: Flags) -> AttentionKernel:
    backend = flags.text("attention-backend", "")
    if backend in ("flash", "fused", "auto") or flags.on("use-flash-attn"):
        return "flash"
    if not backend and flags.text("transformer-impl", "transformer_engine") == "transformer_engine":
        flags.assumptions.append("attention = flash: Transformer Engine chooses a fused kernel by default")
        return "flash"
    return "unfused"


def _tp_overlap(flags: Flags, tp: int) -> TpOverlap:
    if tp == 1 or flags.on("no-async-tensor-model-parallel-allreduce"):
        return "none"
    return "ring" if flags.on("tp-comm-overlap") and flags.on("sequence-parallel") else "async"


def _architecture(flags: Flags, tp: int) -> Architecture:
    hidden = flags.required("hidden-size")
    heads = flags.required("num-attention-heads")
    gated = flags.on("swiglu")
    # Megatron's default: 4h, or for SwiGLU two thirds of it rounded down to a multiple of 64.
    ffn = flags.whole("ffn-hidden-size", int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden)
    positions = _positions(flags)
    rms = flags.text("normalization", "LayerNorm") == "RMSNorm"
    bias = not flags.on("disable-bias-linear")
    head_dim = flags.whole("kv-channels", max(1, hidden // heads))
    shape: dict[str, Any] = {
        "vocab": _vocab(flags, tp), "hidden": hidden, "layers": flags.required("num-layers"), "heads": heads,
        "kv_heads": flags.whole("num-query-groups", heads) if flags.on("group-query-attention") else heads,
        "head_dim": head_dim, "ffn_hidden": ffn, "gated_mlp": gated, "activation": _activation(flags, gated),
        "norm": "rmsnorm" if rms else "layernorm", "norm_bias": not rms, "positions": positions,
        "max_positions": flags.required("max-position-embeddings") if positions == "learned" else 0,
        "rotary_dim": round(head_dim * flags.share("rotary-percent")) if positions == "rope" else 0,
        "tied_embeddings": not flags.on("untie-embeddings-and-output-weights"),
        "qkv_bias": bias or flags.on("add-qkv-bias"), "attention_out_bias": bias, "mlp_bias": bias,
        "qk_norm": "head" if flags.on("qk-layernorm") else "none", "dropout": _dropout(flags),
    }  # fmt: skip
    return Architecture(
        name=f"megatron-{shape['layers']}x{hidden}", model_type="megatron",
        source=f"Megatron-LM arguments, {flags.args.where}", **layers_by_kind(flags, shape),
    )  # fmt: skip


def _positions(flags: Flags) -> Positions:
    rotate = flags.on("use-rotary-position-embeddings")
    return flags.choice("position-embedding-type", POSITIONS, "rope" if rotate else "learned_absolute")


def _activation(flags: Flags, gated: bool) -> str:
    return "silu" if gated else "relu2" if flags.on("squared-relu") else "gelu"


def _dropout(flags: Flags) -> bool:
    """Whether any dropout runs; Megatron's own rates are 0.1."""
    return any(flags.share(name, 0.1) > 0.0 for name in ("attention-dropout", "hidden-dropout"))


def _vocab(flags: Flags, tp: int) -> int:
    """Return the vocabulary padded as Megatron pads it: to a multiple of ``make-vocab-size-divisible-by * tp``."""
    stated = flags.optional("vocab-size") or flags.optional("padded-vocab-size")
    if not stated:
        stated = GPT2_VOCAB
        flags.assumptions.append(f"vocabulary = {GPT2_VOCAB}: the arguments name none, GPT-2's assumed")
    multiple = flags.whole("make-vocab-size-divisible-by", 128) * tp
    return -(-stated // multiple) * multiple
