"""Cut a table of published runs down to the rows that the tests hold: the Megatron tables whole, a draw of the rest.

python benchmarks/accuracy/sample.py RUNS.csv tests/data/runs_sample.csv
"""

from __future__ import annotations

import argparse
import csv
import random
from pathlib import Path

WHOLE = ("korthikanti2022", "megatron_sc21_t1", "megatron_sc21_t2", "megatron_readme_2020", "megatron_readme_2021_01")
SEED = 20261201
PER_SOURCE = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("sample", type=Path)
    args = parser.parse_args()
    with args.runs.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
        columns = reader.fieldnames or []
    chosen = sample(rows)
    with args.sample.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in rows if row["id"] in chosen)
    print(f"{len(chosen)} of {len(rows)} rows, seed {SEED}")


def sample(rows: list[dict[str, str]]) -> set[str]:
    """Return the ids of the rows to keep; the draw depends on the seed and the ids only."""
    by_source: dict[str, list[str]] = {}
    for row in rows:
        by_source.setdefault(row["source_key"], []).append(row["id"])
    chosen: set[str] = set()
    for source, ids in sorted(by_source.items()):
        draw = random.Random(f"{SEED} {source}")
        chosen.update(ids if source in WHOLE else draw.sample(sorted(ids), min(PER_SOURCE, len(ids))))
    return chosen


if __name__ == "__main__":
    main()
