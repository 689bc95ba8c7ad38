"""Runs every console block of the documentation and writes what it really printed: `python docs/refresh.py [FILE...]`.

A block is::

    ```console
    $ linkscale model gpt2
    output
    ```

Commands of one page run in order, in one scratch folder that holds a copy of ``examples/``, at 80 columns without
colour. Standard error is shown after standard output when a command fails, and then its exit code. A test compares
the pages with what the commands print; only the seconds that a search took may differ.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SEARCH_SECONDS = re.compile(r"(?<=\bin )\d+(\.\d+)? (s|ms)\b")
TIMEOUT_S = 120
CLOSED_PIPE = 141
"""What a command before ``| head`` ends with."""


def pages() -> list[Path]:
    """Return the pages that hold console blocks."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if "_build" not in page.parts and BLOCK.search(page.read_text())]


def refreshed(page: Path) -> str:
    """Return the page's text with every block's output as the commands print it now."""
    text = page.read_text()
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(ROOT / "examples", Path(scratch) / "examples")
        return BLOCK.sub(lambda block: f"```console\n{_session(block[1], Path(scratch))}```", text)


def same(one: str, other: str) -> bool:
    """Whether two texts agree but for the time that a search took."""
    return SEARCH_SECONDS.sub("_", one) == SEARCH_SECONDS.sub("_", other)


def _session(block: str, folder: Path) -> str:
    return "".join(f"$ {command}\n{_output(command, folder)}" for command in _commands(block))


def _commands(block: str) -> Iterator[str]:
    """Yield the commands of a block; one that ends in a backslash goes on in the next line."""
    lines = iter(block.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command += "\n" + next(lines)
            yield command


def _output(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    quiet = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "LINKSCALE_DEBUG")}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env={**quiet, "PATH": path, "COLUMNS": "80", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    shown = done.stdout
    if done.returncode not in (0, CLOSED_PIPE):
        shown += f"{done.stderr}[exit code {done.returncode}]\n"
    return "".join(f"{line.rstrip()}\n" for line in shown.rstrip("\n").splitlines())


def main() -> None:
    """Rewrite the pages named, or all of them."""
    for page in [Path(name).resolve() for name in sys.argv[1:]] or pages():
        before, after = page.read_text(), refreshed(page)
        if not same(before, after):
            page.write_text(after)
            print(f"refreshed {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
