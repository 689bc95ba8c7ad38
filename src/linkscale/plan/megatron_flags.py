"""Megatron-LM flags with their types: which bear on time and memory, which do not, and which nothing here prices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from linkscale.base.errors import InputError
from linkscale.readers.megatron import Flag, MegatronArgs

T = TypeVar("T")

_UNDERSTOOD = """
    num-layers hidden-size num-attention-heads ffn-hidden-size kv-channels group-query-attention num-query-groups
    swiglu position-embedding-type max-position-embeddings untie-embeddings-and-output-weights disable-bias-linear
    normalization vocab-size padded-vocab-size make-vocab-size-divisible-by seq-length micro-batch-size
    global-batch-size tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size cp-comm-type
    expert-model-parallel-size num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank
    sequence-parallel use-distributed-optimizer use-megatron-fsdp use-custom-fsdp overlap-grad-reduce
    overlap-param-gather no-overlap-p2p-communication no-async-tensor-model-parallel-allreduce tp-comm-overlap
    recompute-activations recompute-granularity recompute-method recompute-num-layers recompute-modules
    activations-checkpoint-method checkpoint-activations fp16 bf16 fp8-format fp8 fp8-param-gather
    accumulate-allreduce-grads-in-fp32
    rotary-percent use-rotary-position-embeddings add-qkv-bias qk-layernorm squared-relu attention-dropout
    hidden-dropout grad-reduce-in-bf16 attention-backend use-flash-attn transformer-impl ddp-bucket-size
    nproc-per-node nnodes optimizer fp8-recipe fp4-format fp4-recipe cuda-graph-impl cuda-graph-scope enable-cuda-graph
    external-cuda-graph pipeline-model-parallel-layout account-for-embedding-in-pipeline-split
    account-for-loss-in-pipeline-split
    num-experts moe-layer-freq moe-ffn-hidden-size moe-shared-expert-intermediate-size moe-shared-expert-gate
    moe-latent-size moe-router-topk moe-router-num-groups moe-router-group-topk moe-router-enable-expert-bias
    moe-expert-capacity-factor moe-pad-expert-input-to-capacity moe-token-dispatcher-type moe-flex-dispatcher-backend
    moe-enable-deepep moe-grouped-gemm moe-shared-expert-overlap overlap-moe-expert-parallel-comm
    expert-tensor-parallel-size multi-latent-attention q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim
    v-head-dim mtp-num-layers use-transformer-engine-op-fuser optimizer-cpu-offload optimizer-offload-fraction
"""
UNDERSTOOD = frozenset(_UNDERSTOOD.split())
"""Flags whose meaning reaches the plan."""

NO_EFFECT = re.compile(
    r"(?:train-|eval-|lr|min-lr|weight-decay|adam-|sgd-|clip-grad|init-method|seed|split\Z|start-weight-decay"
    r"|data-|vocab-file|merge-file|tokenizer-|num-workers|no-mmap|mock-data|dataloader-|no-create-attention-mask"
    r"|save|load|ckpt-|auto-detect-ckpt|dist-ckpt|no-load-|no-save-|exit-|finetune\Z|use-checkpoint-"
    r"|log-|tensorboard-|wandb-|timing-|no-log|manual-gc|distributed-timeout|distributed-backend|no-check-for-nan"
    r"|node-rank|master-|rdzv|standalone|use-mcore-models|loss-scale|initial-loss-scale|min-loss-scale|hysteresis"
    r"|norm-epsilon|layernorm-epsilon|apply-layernorm-1p|rotary-|no-position-embedding|override-opt"
    r"|step-batch-size-schedule|rampup-batch-size|attention-softmax-in-fp32|enable-experimental|fp8-amax|fp8-margin"
    r"|fp8-interval|kv-cache|inference-|mscale|mtp-loss|moe-aux-loss|moe-z-loss|moe-input-jitter|moe-permute-fusion"
    r"|moe-router-(?:load-balancing|pre-softmax|score|topk-scaling|bias-update|dtype|fusion|force-load)"
    r"|moe-token-drop-policy|moe-per-layer-logging|te-rng-tracker|cuda-graph-warmup|norm-eps|logging-level)"
)
"""Data, learning rates, checkpoints, logs, numerics of the same cost: they do not change the steady step.

A ramped batch (``step-batch-size-schedule``, ``rampup-batch-size``) ends at ``--global-batch-size``, which is priced.
"""

UNPRICED = {
    "hybrid-override-pattern": "a hybrid of Mamba and attention layers is not read from flags",
    "hybrid-layer-pattern": "a hybrid of Mamba and attention layers is not read from flags",
    "is-hybrid-model": "a hybrid of Mamba and attention layers is not read from flags",
    "experimental-attention-variant": "sparse and linear attention are not read from flags",
    "heterogeneous-layers-config-path": "layers of different widths are not read from flags",
    "moe-extended-tp": "experts cut over all ranks are not priced; --expert-tensor-parallel-size would be",
    "moe-layer-recompute": "the flag of old; --recompute-granularity selective --recompute-modules moe is priced",
}
"""Flags that change a step in a way that no field of a plan names, and what would be right."""
_UNSET = re.compile(r"\$\{?(\w+)")


class Flags:
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
        """Return a flag's one word, or the default."""
        flag = self.flags.get(name)
        if flag is None:
            return default
        if not flag.values:
            raise self.wrong(flag, "its value is missing")
        return flag.values[0]

    def whole(self, name: str, default: int) -> int:
        """Return a positive whole number, or the default."""
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
        """Return a positive whole number, or None where the flag is not given."""
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
        """Return a positive whole number that a launch has to give."""
        if name not in self.flags:
            raise InputError(f"{self.args.where}: --{name} is missing; a training launch gives it")
        return self.whole(name, 0)

    def wrong(self, flag: Flag, what: str) -> InputError:
        """Return the error that says what is wrong with a flag, and where."""
        return InputError(f"{self.args.where}:{flag.line}: --{flag.name}: {what}")

    def choice(self, name: str, known: Mapping[str, T], default: str) -> T:
        """Return what a flag's word means here."""
        word = self.text(name, default)
        if word not in known:
            *most, last = known
            raise self.wrong(self.flags[name], f"{word[:40]!r} is not priced; {', '.join(most)} or {last} would be")
        return known[word]

    def values(self, name: str) -> list[str]:
        """Return the words of a flag, however they are parted."""
        return re.findall(r"[\w-]+", " ".join(self.flags[name].values)) if name in self.flags else []

    def refuse_unpriced(self) -> None:
        """Refuse what nothing here prices yet, before anything is asked of the rest."""
        for name, flag in self.flags.items():
            if name in UNPRICED and self.on(name):
                raise self.wrong(flag, UNPRICED[name])

    def not_understood(self) -> list[str]:
        """Return a sentence for every flag that bears on nothing known."""
        strange = [f for f in self.flags.values() if f.name not in UNDERSTOOD and not NO_EFFECT.match(f.name)]
        return [f"--{flag.name} (line {flag.line}) is not understood and has no effect here" for flag in strange]
