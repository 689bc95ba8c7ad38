"""One option per field of a strategy, the same for every verb that takes one.

This table is read by ``--help``, so it knows the fields by name only and loads no other room. What an option may hold
is checked where strategies are made.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer


class Flag(NamedTuple):
    """One option: the field it sets, its spelling, what it means, and its values where they are names."""

    field: str
    kind: type
    names: tuple[str, ...]
    help: str
    values: tuple[str, ...] = ()


_DTYPES = ("fp32", "bf16", "fp16", "fp8", "int8", "int4")

FLAGS: tuple[Flag, ...] = (
    Flag("stack", str, ("--stack",), "Software that runs it.", ("megatron", "fsdp2", "fsdp1", "deepspeed", "ddp")),
    Flag("tp", int, ("--tp",), "Tensor-parallel ranks."),
    Flag("pp", int, ("--pp",), "Pipeline stages."),
    Flag("vpp", int, ("--vpp",), "Virtual stages per pipeline stage (1: not interleaved)."),
    Flag("dp", int, ("--dp",), "Data-parallel replicas (default: what the GPUs leave)."),
    Flag("cp", int, ("--cp",), "Context-parallel ranks."),
    Flag("ep", int, ("--ep",), "Expert-parallel ranks."),
    Flag("etp", int, ("--etp",), "Ranks that one expert is cut over."),
    Flag("micro_batch", int, ("--micro-batch",), "Sequences that pass a stage together."),
    Flag("sequence_parallel", bool, ("--sp/--no-sp",), "Sequence parallelism beside tensor parallelism."),
    Flag("sharding", str, ("--sharding",), "What replicas keep only a part of.",
         ("none", "zero1", "zero2", "zero3", "hsdp")),
    Flag("shard_domain", int, ("--shard-domain", "--hsdp-domain"), "Ranks over which hsdp shards."),
    Flag("recompute", str, ("--recompute",), "Activations computed again.", ("none", "selective", "full")),
    Flag("recompute_modules", str, ("--recompute-modules",),
         "What selective recompute repeats in Megatron, as 'moe_act,layernorm'."),
    Flag("recompute_layers", int, ("--recompute-layers",), "Layers per stage under full recompute (0: all)."),
    Flag("schedule", str, ("--schedule",), "Order of micro-batches in a pipeline.",
         ("1f1b", "gpipe", "zb-h1", "zb-v", "dualpipe")),
    Flag("precision", str, ("--precision",), "Type of the matrix products.",
         ("fp16", "bf16", "fp8", "fp8-block", "mxfp8", "nvfp4")),
    Flag("attention", str, ("--attention",), "How attention runs.", ("flash", "unfused")),
    Flag("compile", bool, ("--compile/--no-compile",), "Memory-bound operations fused by a compiler."),
    Flag("fused_loss", bool, ("--fused-loss/--no-fused-loss",), "Cross entropy in one kernel, without fp32 logits."),
    Flag("cuda_graphs", str, ("--cuda-graphs",), "How much of a step is launched as recorded graphs.",
         ("none", "partial", "full")),
    Flag("optimizer", str, ("--optimizer",), "What updates the weights.",
         ("adamw", "adamw-bf16", "adamw-8bit", "sgd", "muon")),
    Flag("grad_dtype", str, ("--grad-dtype",), "Type in which gradients are reduced.", _DTYPES),
    Flag("flat_gradients", bool, ("--flat-gradients/--no-flat-gradients",),
         "Gradients copied to buffers as long as all of them, as DeepSpeed does."),
    Flag("planned_memory", bool, ("--planned-memory/--no-planned-memory",),
         "Tensors placed by a compiler, so that no memory lies between them."),
    Flag("param_dtype", str, ("--param-dtype",), "Type in which parameters are gathered.", _DTYPES),
    Flag("compression", str, ("--compression",), "Compression of gradients.",
         ("none", "bf16", "fp16", "fp8", "int8", "int4", "topk", "powersgd")),
    Flag("hierarchical", bool, ("--hierarchical/--no-hierarchical",), "Exchange gradients node by node."),
    Flag("bucket_bytes", bytes, ("--bucket-bytes",), "Gradient bucket, as '25 MB' (default: the stack's own)."),
    Flag("tp_overlap", str, ("--tp-overlap",), "What tensor-parallel exchange hides behind.",
         ("none", "async", "bulk", "ring")),
    Flag("overlap_grad_reduce", bool, ("--overlap-grad-reduce/--no-overlap-grad-reduce",),
         "Gradient exchange behind backward."),
    Flag("overlap_param_gather", bool, ("--overlap-param-gather/--no-overlap-param-gather",),
         "Parameter gathering behind forward."),
    Flag("cp_comm", str, ("--cp-comm",), "How context-parallel ranks share keys and values.",
         ("p2p", "all_gather", "a2a")),
    Flag("no_sync", bool, ("--no-sync/--sync",), "Sharded gradients: reduce after the last micro-batch only."),
    Flag("dispatcher", str, ("--dispatcher",), "How tokens reach their experts.",
         ("alltoall", "allgather", "deepep", "hybridep")),
    Flag("a2a_overlap", str, ("--a2a-overlap",), "What the exchange of tokens hides behind.",
         ("none", "shared-expert", "1f1b")),
    Flag("expert_gemm", str, ("--expert-gemm",),
         "Experts' products together, one by one, or fused with the activation.",
         ("grouped", "sequential", "fused")),
    Flag("dispatch_dtype", str, ("--dispatch-dtype",), "Type in which tokens go to experts.", _DTYPES),
    Flag("combine_dtype", str, ("--combine-dtype",), "Type in which experts' results come back.", _DTYPES),
    Flag("offload_optimizer", bool, ("--offload-optimizer/--no-offload-optimizer",),
         "Optimizer states and the update on the host."),
    Flag("offload_params", bool, ("--offload-params/--no-offload-params",), "Sharded weights in host memory."),
    Flag("offload_layers", int, ("--offload-layers",), "Layers per stage with activations in host memory (0: none)."),
    Flag("overlap_p2p", bool, ("--overlap-p2p/--no-overlap-p2p",), "Pipeline sends behind compute."),
)  # fmt: skip

TRAINING: tuple[Flag, ...] = (
    Flag("lora_rank", int, ("--lora-rank",), "Train adapters of this rank, not all weights."),
    Flag("lora_targets", str, ("--lora-targets",), "Layers with adapters (all-linear).",
         ("qkv", "attention", "all-linear")),
    Flag("packed_tokens", int, ("--packed-tokens",), "Mean length of documents packed in a sequence."),
    Flag("expert_spread", float, ("--expert-spread",),
         "Spread of experts' shares of tokens over the mean share (uniform)."),
    Flag("capacity_factor", float, ("--capacity-factor",), "Multiple of its fair share that an expert takes at most."),
)  # fmt: skip
"""What a job says of its training, beside the model and the batch."""

Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
GlobalBatch = Annotated[int | None, typer.Option("--global-batch", metavar="N", help="Sequences in a step.")]
SeqLen = Annotated[int | None, typer.Option("--seq", metavar="N", help="Tokens in a sequence.")]
ScaleUp = Annotated[
    str | None, typer.Option("--scaleup", metavar="DOMAIN", help="Other scale-up domain: nvl8, nvl72, pcie, none.")
]
ScaleOut = Annotated[
    str | None,
    typer.Option("--scaleout", metavar="FABRIC", help="Other network: ib-400 (a port per GPU), ib-400x1/node, …"),
]
Catalog = Annotated[str | None, typer.Option("--catalog", metavar="FILE", help="YAML with hardware of your own.")]


def model_names() -> list[str]:
    """Complete the names of packaged models."""
    from linkscale.workload import packaged_models

    return list(packaged_models())


def with_strategy(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options of the tables; what the user stated arrives as its ``stated`` and ``training``."""
    signature = inspect.signature(verb, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name not in ("stated", "training")]
    added = [inspect.Parameter(f.field, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(f))
             for f in (*TRAINING, *FLAGS)]  # fmt: skip

    @functools.wraps(verb)
    def command(**arguments: Any) -> None:
        def taken(flags: tuple[Flag, ...]) -> dict[str, Any]:
            values = {flag.field: _value(flag, arguments.pop(flag.field)) for flag in flags}
            return {name: value for name, value in values.items() if value is not None}

        stated, training = taken(FLAGS), taken(TRAINING)
        verb(**arguments, stated=stated, training=training)

    command.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in (*own, *added)} | {"return": None}
    return command


def _annotation(flag: Flag) -> Any:
    metavar = {int: "N", float: "X", bytes: "SIZE", str: "|".join(flag.values), bool: None}[flag.kind]
    complete = (lambda: list(flag.values)) if flag.values else None
    option = typer.Option(*flag.names, help=flag.help, metavar=metavar, autocompletion=complete, show_default=False)
    kind: Any = str if flag.kind is bytes else flag.kind
    return Annotated[kind | None, option]


def _value(flag: Flag, given: Any) -> Any:
    return parse_size(flag.names[0], given) if flag.kind is bytes and given is not None else given


def parse_size(name: str, text: str) -> int:
    """Return a size given as ``25 MB``, ``1 GiB`` or a plain number of bytes."""
    from linkscale.base.errors import InputError
    from linkscale.base.units import parse_bytes

    try:
        size_bytes = parse_bytes(text)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    if not 0 <= size_bytes < 2**53:
        raise InputError(f"{name} = {text!r}; it must be a size like '25 MB', not negative")
    return round(size_bytes)
