"""Print the extent of the published runs that state a step time: ``src/linkscale/profile/data/checked.yaml``.

python benchmarks/accuracy/checked.py RUNS.csv
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable

from linkscale.cost.offload import offloads
from linkscale.plan.precision import FORMATS
from linkscale.plan.resolve import Case, resolve
from linkscale.profile.checked import width_class
from linkscale.readers.runs import read_runs

ORDER = ("volta", "ampere", "ada", "hopper", "blackwell")


def main(path: str) -> None:
    """Write the table of every generation, oldest first."""
    cases: dict[str, list[Case]] = defaultdict(list)
    for record in read_runs(path).records:
        case = resolve(record)
        if isinstance(case, Case) and case.measured_step_s is not None:
            cases[case.cluster.gpu.arch].append(case)
    for arch in sorted(cases, key=ORDER.index):
        print("\n".join([f"{arch}:", *_extent(cases[arch])]))


def _extent(cases: Iterable[Case]) -> list[str]:
    cases = list(cases)

    def names(take: Callable[[Case], str]) -> str:
        return f"[{', '.join(sorted({take(case) for case in cases}))}]"

    return [
        f"  gpus: {names(lambda c: c.cluster.gpu.name)}",
        f"  stacks: {names(lambda c: c.strategy.stack)}",
        f"  precisions: {names(lambda c: width_class(FORMATS[c.strategy.precision].peak))}",
        f"  scaleups: {names(lambda c: c.cluster.scaleup.kind)}",
        f"  largest_domain: {max(c.cluster.scaleup.domain_gpus for c in cases)}",
        f"  most_gpus: {max(c.cluster.gpus for c in cases)}",
        f"  longest_seq: {max(c.seq_len for c in cases)}",
        f"  offload: {str(any(offloads(c.strategy) for c in cases)).lower()}",
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
