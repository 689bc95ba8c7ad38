"""How long a user waits before anything happens: ``import linkscale``, ``--help``, the first answer of ``predict``.

Each is the median wall time of seven fresh processes, after one that warms the file cache. The package is compiled
first, as `pip install` does. An empty interpreter is timed too, since it is part of every figure.
"""

from __future__ import annotations

import compileall
import statistics
import subprocess
import sys
import time
from pathlib import Path

import linkscale

from evidence import record

RUNS = 7
PREDICT = "predict llama-3.1-70b dgx-h100:64 --tp 8 --pp 2 --global-batch 128 --seq 8192 --json"
CASES: dict[str, tuple[list[str], float | None]] = {
    "empty interpreter": (["-c", "pass"], None),
    "import linkscale": (["-c", "import linkscale"], 0.15),
    "linkscale --help": (["-m", "linkscale.cli", "--help"], 0.3),
    "first answer of predict": (["-m", "linkscale.cli", *PREDICT.split()], 0.5),
}
"""What is timed: arguments of the interpreter, and the seconds that it may take at most."""


def median_s(arguments: list[str]) -> float:
    """Return the median wall time of a fresh interpreter with these arguments."""
    command = [sys.executable, *arguments]
    times: list[float] = []
    for _ in range(RUNS + 1):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def main() -> None:
    """Measure, print, and record."""
    compileall.compile_dir(Path(linkscale.__file__).parent, quiet=1)
    rows = [
        {"what": name, "seconds": round(median_s(arguments), 4), "at_most": limit}
        for name, (arguments, limit) in CASES.items()
    ]
    for row in rows:
        print(f"{row['what']:24s} {row['seconds']:.3f} s")
    files = [f"src/linkscale/{name}" for name in ("__init__.py", "api.py", "base", "cli")]
    record("startup", {"rows": rows, "predict": PREDICT}, files=[*files, "pyproject.toml"])


if __name__ == "__main__":
    main()
