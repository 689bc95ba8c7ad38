"""What a strategy is where its user says nothing: one table by stack, and the numbers that follow from the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from linkscale.base.errors import InputError, unknown_name
from linkscale.plan.legality import MOST, shown
from linkscale.plan.strategy import LEAST, NUMBERS, Choices, CommDtype, Precision, Sharding, Stack, Strategy, modules

FIELDS = (*Choices.__struct_fields__, *NUMBERS)

STACK_DEFAULTS: dict[Stack, dict[str, object]] = {
    # Megatron-LM's arguments for large runs: --use-distributed-optimizer, --sequence-parallel,
    # --recompute-activations, --overlap-grad-reduce, --overlap-param-gather, flash attention.
    "megatron": {"sharding": "zero1", "recompute": "selective", "tp_overlap": "async"},
    # torchtitan's Llama 3 configurations: fully_shard that reshards after forward, selective checkpointing,
    # sequence parallelism whenever there is tensor parallelism, gradients reduced in fp32.
    "fsdp2": {"sharding": "zero3", "recompute": "selective", "tp_overlap": "none"},
    # LLM Foundry's: FULL_SHARD with mixed_precision PURE (gradients reduced in the type of the parameters) and
    # activation checkpointing of whole blocks.
    "fsdp1": {"sharding": "zero3", "recompute": "full", "tp_overlap": "none", "sequence_parallel": False},
    # ZeRO-3 with checkpointing of whole blocks; gradients travel in the type of the model.
    "deepspeed": {
        "sharding": "zero3",
        "recompute": "full",
        "tp_overlap": "none",
        "sequence_parallel": False,
        "flat_gradients": True,
    },
    # DistributedDataParallel under autocast: parameters and gradients stay fp32.
    "ddp": {"sharding": "none", "recompute": "none", "tp_overlap": "none", "sequence_parallel": False},
}

# DeepSpeed's pipeline engine refuses ZeRO-2 and 3; torchtitan keeps layers gathered under a pipeline.
SHARDING_UNDER_PIPELINE: dict[Stack, Sharding] = {"deepspeed": "zero1", "fsdp2": "zero2"}

_GRADS_LIKE_PARAMETERS: tuple[Stack, ...] = ("fsdp1", "deepspeed")


def default_choices(stack: Stack, precision: Precision = "bf16") -> Choices:
    """Return what a stack does unless told otherwise.

    Gradients are reduced in fp32, except where the stack keeps them in the type of the parameters; Megatron does so
    for fp16 only (accumulate_allreduce_grads_in_fp32 comes with --bf16).

    >>> default_choices("fsdp2").sharding
    'zero3'
    """
    if stack not in STACK_DEFAULTS:
        raise unknown_name("stack", str(stack), STACK_DEFAULTS)
    wide: CommDtype = "fp16" if precision == "fp16" else "bf16"
    narrow_grads = stack in _GRADS_LIKE_PARAMETERS or (stack == "megatron" and precision == "fp16")
    types = {"precision": precision, "param_dtype": wide, "grad_dtype": wide if narrow_grads else "fp32"}
    return Choices(**{"stack": stack, **types, **STACK_DEFAULTS[stack]})  # type: ignore[arg-type]


def complete(
    stated: Mapping[str, Any], gpus: int, domain_gpus: int, precision: Precision = "bf16", *, experts: bool = False
) -> Strategy:
    """Return the strategy that the stated fields mean on so many GPUs; ``precision`` is for when none is stated.

    dp is what the other degrees leave of the GPUs. HSDP shards over what is left of a scale-up domain. Routed experts
    (``experts``: whether the model has any) that no ranks divide are cut like the rest, others left whole.
    """
    fields = {name: value for name, value in stated.items() if value is not None}
    for name, value in fields.items():
        check_field(name, value)
    choices = default_choices(fields.get("stack", "megatron"), fields.get("precision", precision))
    if fields.get("pp", 1) > 1 and choices.stack in SHARDING_UNDER_PIPELINE:
        fields.setdefault("sharding", SHARDING_UNDER_PIPELINE[choices.stack])
    if choices.stack == "megatron" and fields.get("overlap_grad_reduce") is False:
        fields.setdefault("overlap_param_gather", False)
    if experts:
        fields.setdefault("etp", 1 if fields.get("ep", 1) > 1 else fields.get("tp", 1))
    fields.setdefault("dp", _remaining(fields, gpus))
    if fields.get("sharding", choices.sharding) == "hsdp":
        fields.setdefault("shard_domain", _domain(fields, domain_gpus))
    return Strategy(**{**msgspec.structs.asdict(choices), **fields})


def check_field(name: str, value: object) -> None:
    """Raise when a field does not exist or holds a value of the wrong kind."""
    if name not in FIELDS:
        raise unknown_name("field of a strategy", name, FIELDS)
    if name in NUMBERS:
        check_count(name, value, least=LEAST[name])
        return
    if name == "recompute_modules" and isinstance(value, str):
        modules(value)
        return
    kind = _CHOICE_TYPES[name]
    allowed = get_args(kind) or (True, False)
    if isinstance(value, bool) is (kind is not bool) or value not in allowed:
        if isinstance(value, str) and kind is not bool:
            raise unknown_name(name.replace("_", " "), value, allowed)
        raise InputError(f"{name} = {value!r}; it must be one of {', '.join(map(str, allowed))}")


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raise when a value is no whole number that a run may have."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} = {value!r}; it must be a whole number")
    if not least <= value <= MOST:
        raise InputError(f"{name} = {shown(value)}; it must be from {least} to {MOST}")


_CHOICE_TYPES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Choices)}


def _remaining(fields: Mapping[str, int], gpus: int) -> int:
    """Return dp = gpus / (tp*cp*pp), or say why there is none."""
    model = 1
    for name in ("tp", "cp", "pp"):
        model *= fields.get(name, 1)
    if gpus % model == 0:
        return gpus // model
    degrees = [name for name in ("tp", "cp", "pp") if fields.get(name, 1) > 1]
    product = "*".join(degrees)
    values = "*".join(str(fields[name]) for name in degrees)
    below, above = gpus // model * model, -(-gpus // model) * model
    sizes = f"{below} or {above}" if below else f"{above}"
    shown = f"{product} = {model}" if len(degrees) == 1 else f"{product} = {values} = {model}"
    raise InputError(f"{gpus} GPUs do not divide by {shown}; use {sizes} GPUs, or other degrees")


def _domain(fields: Mapping[str, int], domain_gpus: int) -> int:
    """Return the largest group of replicas that divides dp and lies in a scale-up domain (1 where none does)."""
    replicas = fields["dp"] * fields.get("cp", 1)
    room = max(1, domain_gpus // (fields.get("tp", 1) * fields.get("cp", 1)))
    return max(size for size in range(1, min(room, replicas) + 1) if replicas % size == 0)
