"""One strategy with everything behind it: the batch of length one, told in words and tables."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linkscale.cost.collectives import ALGORITHMS
from linkscale.cost.memory import REPEATED_PRODUCTS
from linkscale.cost.network import PROTOCOLS
from linkscale.cost.offload import host, offloads
from linkscale.cost.routing import expected_peak, peak_quantile
from linkscale.estimate.interval import interval_width, unchecked
from linkscale.estimate.replicas import Message
from linkscale.estimate.result import Breakdown, Communication, Estimate, Level, Memory
from linkscale.estimate.step import BatchEstimate, evaluate
from linkscale.plan.precision import FORMATS
from linkscale.plan.strategy import Strategy, modules
from linkscale.profile import Profile, shipped_profile
from linkscale.topology.cluster import Cluster
from linkscale.workload.architecture import Architecture
from linkscale.workload.counts import (
    Decoder,
    attention_flops_per_token,
    decoder,
    layer_matmul_flops_per_token,
    modules_flops_per_token,
    trained_params,
    training_flops_per_token,
)
from linkscale.workload.ops import Experts

LOAD_TAIL = 0.9
TIGHT = 0.03
"""Share of the memory that a plan should leave free: allocators and libraries differ by so much between versions."""


def estimate_step(
    arch: Architecture,
    cluster: Cluster,
    strategy: Strategy,
    seq_len: int,
    global_batch: int,
    profile: Profile | None = None,
) -> Estimate:
    """Estimate one step of a strategy: time, interval, breakdown, messages, memory, warnings.

    ``global_batch`` counts sequences of ``seq_len`` tokens. MFU counts model FLOPs (6N + full attention, no
    recompute) over the dense peak of the strategy's precision.
    """
    profile = profile or shipped_profile(cluster.gpu.arch)
    model = decoder(arch)
    found = evaluate(model, cluster, strategy.batch(), seq_len, global_batch, profile)
    step = float(found.step_s[0])
    tokens = float(global_batch) * seq_len
    peak = cluster.gpu.peak_flops_per_s[FORMATS[strategy.precision].peak]
    offered = peak * cluster.gpus * step
    full = training_flops_per_token(arch, seq_len, causal=False) * tokens
    causal = training_flops_per_token(arch, seq_len, causal=True) * tokens
    breakdown = {key: float(seconds[0]) for key, seconds in found.breakdown_s.items()}
    width = interval_width(cluster, strategy, seq_len, profile)
    return Estimate(
        step_s=step, p10_s=step / width, p90_s=step * width,
        tokens_per_s_per_gpu=tokens / step / cluster.gpus,
        mfu=full / offered, mfu_causal=causal / offered, mfu_peak_flops=peak,
        hfu=(full + repeated_flops_per_token(arch, strategy, seq_len) * tokens) / offered,
        breakdown_s=Breakdown(**breakdown),
        communication=_communication(found),
        memory_bytes=_memory(found),
        allocated_bytes=float(found.memory.allocated[0]),
        reserved_bytes=float(found.memory.reserved[0]),
        device_bytes=float(found.memory.device[0]),
        device_capacity_bytes=found.capacity_bytes,
        fits=bool(found.fits[0]),
        assumptions=(*cluster.assumptions, *_assumptions(arch, cluster, strategy, seq_len)),
        warnings=_warnings(arch, model, cluster, strategy, seq_len, found),
    )  # fmt: skip


def repeated_flops_per_token(arch: Architecture, strategy: Strategy, seq_len: int) -> float:
    """Return the forward FLOPs per token that recomputation repeats, attention in full.

    All of the layers that are recomputed; under ``selective`` the modules named in Megatron, elsewhere every second
    product. (The formula of Korthikanti et al. 2022, appendix A, counts repeated attention three times over.)
    """
    attention = attention_flops_per_token(arch, seq_len)
    products = layer_matmul_flops_per_token(arch)
    match strategy.recompute:
        case "none":
            return 0.0
        case "full":
            layers = strategy.recompute_layers * strategy.pp
            return (products + attention) * (min(1.0, layers / arch.layers) if layers else 1.0)
        case "selective":
            if strategy.stack != "megatron":
                return REPEATED_PRODUCTS * products
            return modules_flops_per_token(arch, seq_len, modules(strategy.recompute_modules))


def _communication(found: BatchEstimate) -> tuple[Communication, ...]:
    rows = (m for m in found.messages if m.count[0] > 0 and m.geometry.size[0] > 1 and m.one.time_s[0] > 0)
    return tuple(_row(m) for m in rows)


def _row(message: Message) -> Communication:
    one, geometry = message.one, message.geometry
    level: Level = "domain" if geometry.domains[0] == 1 else "fabric"
    return Communication(
        group=message.group_name, what=message.what, ranks=int(geometry.size[0]), collective=message.kind,
        algorithm=ALGORITHMS[int(one.algorithm[0])], protocol=PROTOCOLS[int(one.protocol[0])], level=level,
        size_bytes=float(message.size_bytes[0]), count=float(message.count[0]), time_s=float(message.time_s[0]),
        exposed_s=float(message.exposed_s[0]), hbm_bytes=float(message.count[0] * one.hbm_bytes[0]),
        sms=float(one.sms[0]),
    )  # fmt: skip


def _memory(found: BatchEstimate) -> Memory:
    memory = found.memory
    total = float(memory.device[0])
    parts = {
        name: float(getattr(memory, name)[0])
        for name in ("weights", "gradients", "optimizer", "activations", "logits", "buffers")
    }
    return Memory(**parts, other=total - sum(parts.values()), total=total)


def _assumptions(arch: Architecture, cluster: Cluster, strategy: Strategy, seq_len: int) -> tuple[str, ...]:
    modules = arch.prediction_modules
    notes = [
        "MFU counts 6N (output logits included) + full attention, no recompute, over the dense "
        f"{strategy.precision} peak; mfu_causal halves attention",
        "rank order tp-cp-dp-pp (tensor parallelism fastest)",
    ]
    if modules:
        notes.append(
            f"{modules} module{'s' if modules > 1 else ''} that predict{'' if modules > 1 else 's'} further tokens "
            "trained on the last stage; MFU leaves them out"
        )
    notes += _tuning(arch, strategy)
    notes += _load(arch, strategy, seq_len)
    if offloads(strategy):
        notes.append(_host_said(cluster))
    if strategy.compression != "none" or strategy.hierarchical:
        notes.append("gradient compression and hierarchical exchange are recorded but not priced yet")
    return tuple(notes)


def _host_said(cluster: Cluster) -> str:
    found, gpu = host(cluster), cluster.gpu
    link = "chip-to-chip link" if gpu.chip_to_chip_bandwidth_bytes_per_s else "PCIe"
    memory = f", {found.memory_bytes_per_s / 1e9:.3g} GB/s of host memory" if found.memory_bytes_per_s else ""
    return (
        f"each GPU copies {found.link_bytes_per_s / 1e9:.3g} GB/s each way to its host ({link}){memory}: its share "
        "of what the GPUs of a node have"
    )


def _tuning(arch: Architecture, strategy: Strategy) -> Iterator[str]:
    training = arch.training
    if training.packed_tokens:
        yield (
            f"sequences packed with documents of {training.packed_tokens:,} tokens on average, of exponential lengths, "
            "that attend within themselves; MFU counts what they attend to"
        )
    if training.adapters:
        trained = trained_params(arch, apart=strategy.stack != "megatron")
        yield (
            f"LoRA of rank {training.lora_rank} on {training.lora_targets}: {trained:,} "
            "parameters in 16 bits beside frozen weights; MFU leaves out the weight gradients that nobody computes"
        )


def _load(arch: Architecture, strategy: Strategy, seq_len: int) -> Iterator[str]:
    """Say how unevenly the ranks of experts are loaded: the fullest one, on average and in the worst tenth."""
    experts = next((op for group in decoder(arch).groups for op in group.ops if isinstance(op, Experts)), None)
    if experts is None or strategy.ep == 1:
        return
    if experts.capacity:
        yield f"tokens beyond {experts.capacity:g} times an expert's fair share are dropped, free places padded"
        return
    together = strategy.micro_batch * seq_len / (strategy.cp * strategy.tp) * strategy.etp * strategy.ep
    tokens, ranks = np.array([together]), np.array([float(strategy.ep)])
    mean = float(expected_peak(experts, tokens, ranks)[0])
    tail = float(peak_quantile(experts, tokens, ranks, LOAD_TAIL)[0])
    liked = f"popularity spread by {experts.spread:.0%}" if experts.spread else "equally popular, tokens fall at random"
    yield (
        f"experts {liked}: the fullest of {strategy.ep} ranks, which all wait for, has {mean:.2f} times the mean load, "
        f"{tail:.2f} in a tenth of the layers"
    )


def _tight(found: BatchEstimate) -> Iterator[str]:
    spare = found.capacity_bytes - float(found.memory.device[0])
    if spare < TIGHT * found.capacity_bytes:
        yield (
            f"only {spare / 1e9:.1f} GB of the GPU's {found.capacity_bytes / 1e9:.0f} GB to spare, less than memory "
            "estimates err by; recompute more, or hold some back with --max-memory of `linkscale plan`"
        )


def _warnings(
    arch: Architecture, model: Decoder, cluster: Cluster, strategy: Strategy, seq_len: int, found: BatchEstimate
) -> tuple[str, ...]:
    notes = []
    if strategy.tp * strategy.cp > (domain := cluster.scaleup.domain_gpus):
        kinds = "tensor- and context-parallel" if strategy.cp > 1 else "tensor-parallel"
        notes.append(
            f"{kinds} group of {strategy.tp * strategy.cp} GPUs leaves the scale-up domain of "
            f"{domain} GPU{'s' if domain > 1 else ''}"
        )
    if not found.fits[0]:
        over = (float(found.memory.device[0]) - found.capacity_bytes) / 1e9
        notes.append(f"does not fit: {over:.1f} GB more than the GPU's {found.capacity_bytes / 1e9:.0f} GB")
    else:
        notes.extend(_tight(found))
    layers = sum(g.count for g in model.groups)
    if layers % (strategy.pp * strategy.vpp):
        notes.append(f"{layers} layers do not split evenly over pp*vpp = {strategy.pp * strategy.vpp} stages")
    if 0 < arch.max_positions < seq_len:
        notes.append(f"sequences of {seq_len:,} tokens, but the model states {arch.max_positions:,} positions")
    new = unchecked(cluster, strategy, seq_len)
    if new:
        notes.append(f"outside what the profile was checked on: {'; '.join(new)}; the interval is wider")
    return tuple(notes)
