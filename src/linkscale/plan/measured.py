"""What a published run measured: seconds a step and bytes, whatever the source printed.

Seconds come from the step time, else from tokens/s, else from FLOP/s or a utilisation under the convention that the
row names:

- SC21 eq. 3: ``96 B s l h^2 (1 + s/(6h) + V/(16 l h))`` per step, the recomputed forward included
  (Narayanan et al. 2021)
- 8N: ``8 N`` per token (BigScience's first estimate: recompute included, no attention)
- 6N + full attention: ``6 N + 12 l h s`` per token (PaLM appendix B; Korthikanti et al. appendix A)
"""

from __future__ import annotations

from linkscale.hardware.types import Gpu
from linkscale.plan.run_training import adapters
from linkscale.readers.runs import RunRecord

GIB = 2.0**30


def measured_step_s(record: RunRecord, params: float, gpu: Gpu) -> float | None:
    """Return the measured seconds of one step, or None where the row states nothing that gives it."""
    if record.step_time_s:
        return record.step_time_s
    if not (record.num_gpus and record.global_batch_seqs and record.seq_len):
        return None
    tokens = float(record.global_batch_seqs * record.seq_len)
    if record.tokens_per_s_per_gpu:
        return tokens / (record.tokens_per_s_per_gpu * record.num_gpus)
    achieved = _flops_per_s(record, gpu)
    flops = flops_per_token(record, params)
    return tokens * flops / (achieved * record.num_gpus) if achieved and flops else None


def _flops_per_s(record: RunRecord, gpu: Gpu) -> float | None:
    if record.tflops_per_gpu:
        return record.tflops_per_gpu * 1e12
    if record.mfu_pct and record.precision in ("bf16", "fp16"):
        return record.mfu_pct / 100.0 * gpu.peak_flops_per_s[record.precision]
    return None


def flops_per_token(record: RunRecord, params: float) -> float | None:
    """Return FLOPs per token as the row's convention counts them, or None where the convention is not stated."""
    if adapters(record):  # what each convention leaves out of frozen weights nobody prints
        return None
    named = record.flops_convention
    if not (record.layers and record.hidden and record.seq_len):
        return None
    layers, hidden, seq = float(record.layers), float(record.hidden), float(record.seq_len)
    if "96*B*s*l*h^2" in named or "96Bslh^2" in named:
        vocab = float(record.vocab or 51200)
        return 96.0 * layers * hidden * hidden * (1.0 + seq / (6.0 * hidden) + vocab / (16.0 * layers * hidden))
    if "4*2*N" in named:
        return 8.0 * params
    if "6N+12LHQT" in named or "6N+full attention" in named:
        return 6.0 * params + 12.0 * layers * hidden * seq
    return None


def measured_memory_bytes(record: RunRecord) -> float | None:
    """Return the stated peak memory of one GPU."""
    return record.peak_mem_gib * GIB if record.peak_mem_gib else None
