"""Configurations: a Hugging Face ``config.json``, or the name of a packaged one, → Architecture."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from linkscale.base.errors import InputError, nearest, unknown_name
from linkscale.base.json import load_json
from linkscale.workload.architecture import Architecture
from linkscale.workload.fields import Fields
from linkscale.workload.layout import Shape
from linkscale.workload.packaged import packaged_config, packaged_models, packaged_name
from linkscale.workload.registry import FAMILIES, NESTED, TOWERS
from linkscale.workload.understood import not_understood

# What an error repeats of a name.
LONGEST = 80


def load_architecture(text: str) -> Architecture:
    """Return the architecture of a packaged name, a ``config.json``, or a directory that holds one.

    A bare name means the packaged model; anything that exists and is spelt as a path is read.
    """
    path = Path(text)
    name = packaged_name(text)
    spelt_as_path = "/" in text or "\\" in text or path.suffix.lower() == ".json"
    if name is not None and not (spelt_as_path and _exists(path)):
        return packaged_architecture(name)
    if text.strip() and (_exists(path) or path.suffix.lower() == ".json"):
        return _read(path)
    raise unknown_name("model", text if len(text) <= LONGEST else text[:LONGEST] + "…", packaged_models())


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # names that no file can have: too long, or with a null character
        return False


def _read(path: Path) -> Architecture:
    path = path / "config.json" if path.is_dir() else path
    data = load_json(path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: expected the fields of a model configuration, found a {type(data).__name__}")
    stem = path.absolute().parent.name if path.name == "config.json" else path.name
    return from_config(data, name=stem.removesuffix(".json").removesuffix(".config"), where=str(path))


def from_config(data: dict[str, Any], name: str, where: str = "config", source: str = "") -> Architecture:
    """Return the architecture that a configuration states; raise InputError for what it leaves out.

    What no family here understands is refused with the fields in the way: nothing is guessed.
    """
    kind = data.get("model_type")
    if not isinstance(kind, str) or not kind:
        raise InputError(f"{where}: model_type is missing; a Hugging Face config.json names its family, as 'llama'")
    if kind in NESTED:
        return _multimodal(data, kind, name, where, source)
    shape, fields = _read_family(data, kind, where)
    _refuse_rest(kind, data, fields, where)
    return Architecture(name=name, model_type=kind, source=source or where, **shape)


def _multimodal(data: dict[str, Any], kind: str, name: str, where: str, source: str) -> Architecture:
    """Read the nested text model, and the tower beside it where the file describes one."""
    outer = Fields(data, where)
    text = outer.part("text_config", "llm_config")
    if not text.data:
        raise InputError(f"{where}: text_config is missing; every {kind} configuration nests its text model")
    tied = data.get("tie_word_embeddings")
    inner = text.data if tied is None else {**text.data, "tie_word_embeddings": tied}
    family = str(text.data.get("model_type") or NESTED[kind])
    shape, fields = _read_family(inner, family, f"{where}: text_config")
    _refuse_rest(family, inner, fields, f"{where}: text_config")
    vision = outer.part("vision_config")
    towers = (TOWERS[kind](vision, shape["hidden"]),) if vision.data else ()
    unread = not_understood(data, outer.used | {f"text_config.{n}" for n in text.data} | _under(vision))
    if unread:
        raise InputError(f"{where}: {_listed(unread)} is not understood in a {kind} configuration")
    notes = (*shape.pop("notes", ()), *(() if towers else ("vision_config is left out: the text model alone",)))
    return Architecture(name=name, model_type=family, source=source or where, towers=towers, notes=notes, **shape)


def _under(part: Fields) -> set[str]:
    return {part.prefix + name for name in part.data}


def _read_family(data: dict[str, Any], kind: str, where: str) -> tuple[Shape, Fields]:
    family = FAMILIES.get(kind)
    if family is None:
        raise InputError(f"{where}: model_type {kind!r} is not understood yet; {_closest(data, kind, where)}")
    fields = Fields(data, where)
    return family(fields), fields


def _refuse_rest(kind: str, data: dict[str, Any], fields: Fields, where: str) -> None:
    """Refuse fields that change a layer and that the family did not ask for."""
    rest = not_understood(data, fields.used)
    if not rest:
        return
    better = [other for other, unread, _ in _readers(data, where) if len(unread) < len(rest)]
    hint = f"; the closest family that reads more of it is {better[0]!r}" if better else ""
    raise InputError(f"{where}: {_listed(rest)} is not understood in a {kind} configuration{hint}")


def _listed(fields: dict[str, str]) -> str:
    """Name fields with what they mean: 'num_experts (a mixture of experts)'."""
    meanings = dict.fromkeys(fields.values())
    said = (f"{', '.join(n for n, m in fields.items() if m == meaning)} ({meaning})" for meaning in meanings)
    return ", ".join(said)


def _closest(data: dict[str, Any], kind: str, where: str) -> str:
    """Say which known family reads a configuration best, and what it would leave unread."""
    found = _readers(data, where)
    hint = nearest(kind, FAMILIES)
    if not found:
        known = "known: " + ", ".join(sorted(FAMILIES))
        return f"did you mean {hint!r}?" if hint else f"no known family reads its fields; {known}"
    best, unread, read = found[0]
    if any((other, len(rest), fields) == (hint, len(unread), read) for other, rest, fields in found):
        return f"did you mean {hint!r}?"
    left = f", all but {_listed(unread)}" if unread else ""
    return f"{best!r} reads its fields{left}: set model_type to it if the layers are the same"


def _readers(data: dict[str, Any], where: str) -> list[tuple[str, dict[str, str], int]]:
    """Return the families that read a configuration, the fields each leaves (fewest first), and how many it reads."""
    found = []
    for kind, family in FAMILIES.items():
        fields = Fields(data, where)
        try:
            family(fields)
        except InputError:
            continue
        found.append((kind, not_understood(data, fields.used), len(fields.used & set(data))))
    return sorted(found, key=lambda item: (len(item[1]), -item[2]))


@cache
def packaged_architecture(name: str) -> Architecture:
    """Return a packaged model's architecture."""
    data = packaged_config(name)
    return from_config(data, name=name, where=f"packaged model {name}", source=data["_source"])
