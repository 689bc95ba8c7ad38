"""How long a user waits before anything happens: ``import linkscale``, ``--help``, the first answer of ``predict``.

Each is the median wall time of seven fresh processes, after one that warms the file cache. An empty interpreter is
timed too, since it is part of every figure.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from evidence import record

RUNS = 7
PREDICT = "predict llama-3.1-70b dgx-h100:64 --tp 8 --pp 2 --global-batch 128 --seq 8192 --json"
CASES = {
    "empty_interpreter_s": ["-c", "pass"],
    "import_linkscale_s": ["-c", "import linkscale"],
    "help_s": ["-m", "linkscale.cli", "--help"],
    "first_predict_s": ["-m", "linkscale.cli", *PREDICT.split()],
}


def median_s(arguments: list[str]) -> float:
    """Return the median wall time of a fresh interpreter with these arguments."""
    command = [sys.executable, *arguments]
    times: list[float] = []
    for _ in range(RUNS + 1):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


if __name__ == "__main__":
    result = {name: round(median_s(arguments), 4) for name, arguments in CASES.items()}
    for name, value in result.items():
        print(f"{name:24s} {value:.3f}")
    record("startup", result, files=["src/linkscale/__init__.py", "src/linkscale/cli"])
