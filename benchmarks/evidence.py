"""Evidence: a measured claim, the command and commit behind it, and the files it depends on.

A script in this folder ends with two lines::

    from evidence import record
    record("startup", result, files=["src/linkscale/cli"])

which write ``docs/evidence/startup.json``. A test compares the hashes in every such file with the tree: a claim whose
code has changed since must be measured again. The file holds no date, so the same tree and result give the same bytes.
`make evidence` runs all the scripts, and ``tables.py`` puts the figures into the documentation.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "evidence"
KEPT_SUFFIXES = {".py", ".yaml", ".json", ".csv", ".md", ".toml", ".sh"}


def record(name: str, result: Mapping[str, Any], files: Iterable[str], root: Path = ROOT) -> Path:
    """Write ``docs/evidence/NAME.json``; ``files`` are files or folders that the result depends on."""
    script = Path(sys.argv[0]).resolve()
    if root == ROOT and (changed := _changed_since_start()):
        raise SystemExit(f"{', '.join(changed[:3])} changed while this was measured; measure again")
    inputs = sorted({*files, *([_relative(script, root)] if script.is_relative_to(root) else [])})
    document = {
        "name": name,
        "command": " ".join(["python", _relative(script, root), *map(_argument, sys.argv[1:])]),
        "commit": _commit(root),
        "machine": machine(),
        "inputs": inputs,
        "files": hashes(inputs, root),
        "result": result,
    }
    path = root / "docs" / "evidence" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".json.new")
    beside.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")
    beside.replace(path)
    print(f"wrote {_relative(path, root)}", file=sys.stderr)
    return path


def stale(path: Path, root: Path = ROOT) -> list[str]:
    """Return the files that were changed, added or removed since the evidence was recorded."""
    document = json.loads(path.read_text())
    then: dict[str, str] = document["files"]
    now = hashes(document["inputs"], root)
    return sorted(name for name in {*then, *now} if then.get(name) != now.get(name))


def hashes(inputs: Iterable[str], root: Path = ROOT) -> dict[str, str]:
    """Map every file under the inputs to its SHA-256; an input that is gone is left out."""
    found: set[Path] = set()
    for name in inputs:
        place = root / name
        inside = (p for p in place.rglob("*") if p.suffix in KEPT_SUFFIXES and "__pycache__" not in p.parts)
        found.update(inside if place.is_dir() else [place] if place.is_file() else [])
    return {_relative(p, root): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(found)}


def _changed_since_start() -> list[str]:
    """Return the files of the package that are no longer those that this process has imported."""
    now = hashes(["src"])
    return sorted(name for name in {*_AT_START, *now} if _AT_START.get(name) != now.get(name))


def machine() -> dict[str, Any]:
    """Return the processor's name and core count: what a speed depends on."""
    return {"cpu": _cpu_name(), "cores": os.cpu_count(), "python": platform.python_version()}


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _commit(root: Path) -> str:
    """Return HEAD; the hashes say what the tree really held."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _argument(text: str) -> str:
    """Name a file by its name alone: where it lies on this machine is nobody's business."""
    return Path(text).name if Path(text).is_absolute() else text


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


_AT_START = hashes(["src"])
