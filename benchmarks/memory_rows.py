"""Predicted against published peak memory, row by row and by source: allocated, reserved or device, like with like.

Run: ``python benchmarks/memory_rows.py RUNS.csv``.
"""

from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np

from linkscale.estimate import estimate_step
from linkscale.plan.resolve import Case, resolve
from linkscale.readers.runs import read_runs

GIB = 2.0**30


def predicted_bytes(case: Case) -> float:
    """Return what is expected of the quantity that a run's source measured."""
    found = estimate_step(case.architecture, case.cluster, case.strategy, case.seq_len, case.global_batch)
    by_kind = {"allocated": found.allocated_bytes, "reserved": found.reserved_bytes, "device": found.device_bytes}
    return by_kind[case.memory_kind]


def main(path: str) -> None:
    """Print every row that states a peak, and the median error of each source."""
    errors: dict[str, list[float]] = defaultdict(list)
    for record in read_runs(path).records:
        if not record.peak_mem_gib:
            continue
        case = resolve(record)
        if not isinstance(case, Case) or case.measured_memory_bytes is None:
            print(f"{record.id:32} not predicted: {getattr(case, 'reason', '')}")
            continue
        predicted, measured = predicted_bytes(case), case.measured_memory_bytes
        errors[case.source_key].append(predicted / measured - 1.0)
        print(
            f"{record.id:32} {case.memory_kind:9} {measured / GIB:7.2f} GiB measured {predicted / GIB:7.2f} predicted "
            f"{predicted / measured - 1.0:+7.1%}"
        )
    for source, found in sorted(errors.items()):
        size, bias = float(np.median(np.abs(found))), float(np.median(found))
        print(f"{source:24} {len(found):3} rows, median error {size:.1%}, bias {bias:+.1%}")


if __name__ == "__main__":
    main(sys.argv[1])
