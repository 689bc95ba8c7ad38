"""Megatron-LM arguments → Plan. Defaults are the program's own; what is not understood is said, not dropped.

Source of flags and defaults: NVIDIA/Megatron-LM megatron/training/arguments.py.
"""

from __future__ import annotations

import re
from pathlib import Path

from linkscale.base.errors import InputError
from linkscale.plan.megatron_flags import NO_EFFECT, UNDERSTOOD
from linkscale.plan.plan import Plan
from linkscale.plan.strategy import (
    AttentionKernel,
    CommDtype,
    CpComm,
    Precision,
    Recompute,
    Sharding,
    Strategy,
    TpOverlap,
)
from linkscale.readers.megatron import Flag, MegatronArgs, read_megatron
from linkscale.workload.architecture import Architecture, Positions

# The GPT-2 vocabulary, which Megatron's examples train with.
GPT2_VOCAB = 50257
# Megatron's names of how context-parallel ranks meet each other's keys and values.
CP_COMM: dict[str, CpComm] = {"p2p": "p2p", "all_gather": "all_gather", "allgather": "all_gather", "a2a": "a2a"}
_UNSET = re.compile(r"\$\{?(\w+)")


def plan_from_megatron(path: str | Path, gpus: int | None = None) -> Plan:
    """Read launch arguments into a Plan; ``gpus`` overrides the number that the launcher's flags give."""
    return plan_from_args(read_megatron(path), gpus)


def plan_from_args(args: MegatronArgs, gpus: int | None = None) -> Plan:
    """Turn arguments into a Plan without a cluster; its assumptions name every flag that was not understood."""
    flags = _Flags(args)
    _refuse_unpriced(flags)
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


class _Flags:
    """The flags with the types that the program gives them."""

    def __init__(self, args: MegatronArgs) -> None:
        self.args = args
        self.flags = args.last()
        self.assumptions: list[str] = []

    def on(self, name: str) -> bool:
        """Whether a switch is given (``--flag: false`` in YAML turns it off)."""
        flag = self.flags.get(name)
        return flag is not None and [v.lower() for v in flag.values[:1]] not in (["false"], ["0"])

    def text(self, name: str, default: str = "") -> str:
        flag = self.flags.get(name)
        if flag is None:
            return default
        if not flag.values:
            raise self.wrong(flag, "its value is missing")
        return flag.values[0]

    def whole(self, name: str, default: int) -> int:
        flag = self.flags.get(name)
        if flag is None:
            return default
        text = self.text(name)
        unset = _UNSET.search(text)
        if unset:
            raise self.wrong(flag, f"{text} is not set in the file; put a line {unset[1]}=<number> above it")
        if not (text.isascii() and text.isdigit() and 0 < len(text) <= 12 and int(text) > 0):
            raise self.wrong(flag, f"{text[:40]!r} is no positive whole number")
        return int(text)

    def optional(self, name: str) -> int | None:
        return self.whole(name, 0) or None

    def share(self, name: str, default: float = 1.0) -> float:
        """Return a number from 0 to 1."""
        if name not in self.flags:
            return default
        text = self.text(name)
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0.0 <= value <= 1.0:
            raise self.wrong(self.flags[name], f"{text[:40]!r} is no number from 0 to 1")
        return value

    def required(self, name: str) -> int:
        if name not in self.flags:
            raise InputError(f"{self.args.where}: --{name} is missing; a training launch gives it")
        return self.whole(name, 0)

    def wrong(self, flag: Flag, what: str) -> InputError:
        return InputError(f"{self.args.where}:{flag.line}: --{flag.name}: {what}")

    def not_understood(self) -> list[str]:
        strange = [f for f in self.flags.values() if f.name not in UNDERSTOOD and not NO_EFFECT.match(f.name)]
        return [f"--{flag.name} (line {flag.line}) is not understood and has no effect here" for flag in strange]


def _refuse_unpriced(flags: _Flags) -> None:
    """Refuse what nothing here prices yet, before anything is asked of the rest."""
    for name, flag in flags.flags.items():
        if name.startswith("moe-") or name in ("num-experts", "expert-tensor-parallel-size"):
            raise flags.wrong(flag, "mixture-of-experts models are not priced yet; a dense model would be right")
        if name in ("multi-latent-attention", "mtp-num-layers", "hybrid-override-pattern"):
            raise flags.wrong(flag, f"{name.replace('-', ' ')} is not priced yet; a plain decoder would be right")
    if flags.text("expert-model-parallel-size", "1") != "1":
        raise flags.wrong(flags.flags["expert-model-parallel-size"], "expert parallelism is not priced yet")


def _strategy(flags: _Flags, gpus: int | None) -> Strategy:
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
        cp_comm=_cp_comm(flags),
        micro_batch=flags.whole("micro-batch-size", 1),
        sequence_parallel=flags.on("sequence-parallel") and tp > 1,
        sharding=_sharding(flags, sharded),
        recompute=recompute, recompute_layers=layers,
        precision=precision,
        attention=_attention(flags),
        grad_dtype=grad_dtype,
        param_dtype="fp8" if flags.on("fp8-param-gather") else "fp16" if precision == "fp16" else "bf16",
        overlap_grad_reduce=flags.on("overlap-grad-reduce"),
        overlap_param_gather=flags.on("overlap-param-gather"),
        overlap_p2p=not flags.on("no-overlap-p2p-communication"),
        tp_overlap=_tp_overlap(flags, tp),
        bucket_bytes=flags.whole("ddp-bucket-size", 0) * (4 if grad_dtype == "fp32" else 2),
    )  # fmt: skip


def _sharding(flags: _Flags, sharded: bool) -> Sharding:
    return "zero3" if flags.on("use-megatron-fsdp") or flags.on("use-custom-fsdp") else "zero1" if sharded else "none"


def _cp_comm(flags: _Flags) -> CpComm:
    kind = flags.text("cp-comm-type", "p2p")
    if kind not in CP_COMM:
        raise flags.wrong(flags.flags["cp-comm-type"], f"{kind[:40]!r} is not priced; p2p, all_gather or a2a would be")
    return CP_COMM[kind]


def _replicas(flags: _Flags, tp: int, pp: int, cp: int, gpus: int | None) -> int:
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


def _interleaving(flags: _Flags, pp: int) -> int:
    stages = flags.optional("num-virtual-stages-per-pipeline-rank")
    layers = flags.optional("num-layers-per-virtual-pipeline-stage")
    if stages or not layers or pp == 1:
        return stages or 1
    total = flags.required("num-layers")
    if total % (pp * layers):
        flag = flags.flags["num-layers-per-virtual-pipeline-stage"]
        raise flags.wrong(flag, f"{total} layers do not divide by {pp} stages of {layers}-layer chunks")
    return total // (pp * layers)


def _recompute(flags: _Flags, pp: int) -> tuple[Recompute, int]:
    granularity = flags.text("recompute-granularity")
    if flags.on("recompute-activations") or granularity == "selective":
        return "selective", 0
    method = flags.text("recompute-method") or flags.text("activations-checkpoint-method")
    if granularity == "full" or method or flags.on("checkpoint-activations"):
        # `block` recomputes that many layers of a stage; `uniform` all of them, in groups of that many.
        return "full", flags.whole("recompute-num-layers", 1) if method == "block" else 0
    return "none", 0


def _precision(flags: _Flags) -> Precision:
    if "fp8-format" in flags.flags or "fp8" in flags.flags:
        return "fp8"
    if flags.on("bf16"):
        return "bf16"
    if flags.on("fp16"):
        return "fp16"
    raise InputError(f"{flags.args.where}: neither --bf16 nor --fp16: 32-bit training is not priced; add one of them")


def _grad_dtype(flags: _Flags, precision: Precision) -> CommDtype:
    if flags.on("grad-reduce-in-bf16"):
        return "bf16"
    # --bf16 accumulates in 32 bits by default, --fp16 only when asked.
    wide = precision != "fp16" or flags.on("accumulate-allreduce-grads-in-fp32")
    return "fp32" if wide else "fp16"


def _attention(flags: _Flags) -> AttentionKernel:
    backend = flags.text("attention-backend", "")
    if backend in ("flash", "fused", "auto") or flags.on("use-flash-attn"):
        return "flash"
    if not backend and flags.text("transformer-impl", "transformer_engine") == "transformer_engine":
        flags.assumptions.append("attention = flash: Transformer Engine chooses a fused kernel by default")
        return "flash"
    return "unfused"


def _tp_overlap(flags: _Flags, tp: int) -> TpOverlap:
    if tp == 1 or flags.on("no-async-tensor-model-parallel-allreduce"):
        return "none"
    return "ring" if flags.on("tp-comm-overlap") and flags.on("sequence-parallel") else "async"


def _architecture(flags: _Flags, tp: int) -> Architecture:
    hidden = flags.required("hidden-size")
    heads = flags.required("num-attention-heads")
    gated = flags.on("swiglu")
    # Megatron's default: 4h, or for SwiGLU two thirds of it rounded down to a multiple of 64.
    ffn = flags.whole("ffn-hidden-size", int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden)
    positions = _positions(flags)
    rms = flags.text("normalization", "LayerNorm") == "RMSNorm"
    bias = not flags.on("disable-bias-linear")
    head_dim = flags.whole("kv-channels", max(1, hidden // heads))
    return Architecture(
        name=f"megatron-{flags.required('num-layers')}x{hidden}", model_type="megatron", vocab=_vocab(flags, tp),
        hidden=hidden, layers=flags.required("num-layers"), heads=heads,
        kv_heads=flags.whole("num-query-groups", heads) if flags.on("group-query-attention") else heads,
        head_dim=head_dim, ffn_hidden=ffn, gated_mlp=gated, activation=_activation(flags, gated),
        norm="rmsnorm" if rms else "layernorm", norm_bias=not rms,
        positions=positions, max_positions=flags.required("max-position-embeddings") if positions == "learned" else 0,
        rotary_dim=round(head_dim * flags.share("rotary-percent")) if positions == "rope" else 0,
        tied_embeddings=not flags.on("untie-embeddings-and-output-weights"),
        qkv_bias=bias or flags.on("add-qkv-bias"), attention_out_bias=bias, mlp_bias=bias,
        qk_norm="head" if flags.on("qk-layernorm") else "none", dropout=_dropout(flags),
        source=f"Megatron-LM arguments, {flags.args.where}",
    )  # fmt: skip


def _positions(flags: _Flags) -> Positions:
    kind = flags.text("position-embedding-type", "rope" if flags.on("use-rotary-position-embeddings") else "")
    known: dict[str, Positions] = {"": "learned", "learned_absolute": "learned", "rope": "rope", "none": "none"}
    if kind not in known:
        raise flags.wrong(flags.flags["position-embedding-type"], f"{kind[:40]!r} is not priced; rope would be right")
    return known[kind]


def _activation(flags: _Flags, gated: bool) -> str:
    return "silu" if gated else "relu2" if flags.on("squared-relu") else "gelu"


def _dropout(flags: _Flags) -> bool:
    """Whether any dropout runs; Megatron's own rates are 0.1."""
    return any(flags.share(name, 0.1) > 0.0 for name in ("attention-dropout", "hidden-dropout"))


def _vocab(flags: _Flags, tp: int) -> int:
    """Return the vocabulary padded as Megatron pads it: to a multiple of ``make-vocab-size-divisible-by * tp``."""
    stated = flags.optional("vocab-size") or flags.optional("padded-vocab-size")
    if not stated:
        stated = GPT2_VOCAB
        flags.assumptions.append(f"vocabulary = {GPT2_VOCAB}: the arguments name none, GPT-2's assumed")
    multiple = flags.whole("make-vocab-size-divisible-by", 128) * tp
    return -(-stated // multiple) * multiple
