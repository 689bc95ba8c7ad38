"""What the shipped profiles were compared with, and what of a question lies outside of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import msgspec

from linkscale.base.model import Model
from linkscale.base.yaml import load_packaged

OUTSIDE_SIGMA = 1.5
"""How much wider the interval is there (chosen: no run says; the factor of a borrowed generation)."""


class Checked(Model, frozen=True):
    """Extent of the published runs of one GPU generation whose step time is known."""

    gpus: tuple[str, ...]
    stacks: tuple[str, ...]
    precisions: tuple[str, ...]
    scaleups: tuple[str, ...]
    largest_domain: int
    most_gpus: int
    longest_seq: int
    offload: bool
    """Whether some kept what they hold in host memory."""


class Extent(Model, frozen=True):
    """The features of one question that runs may or may not have shown."""

    gpu: str
    arch: str
    stack: str
    arithmetic: str
    """The entry of a GPU's peaks that its products run at."""
    scaleup: str
    domain_gpus: int
    gpus: int
    seq_len: int
    offload: bool = False


@cache
def checked() -> dict[str, Checked]:
    """Return what was checked, by GPU generation."""
    return msgspec.convert(load_packaged("linkscale.profile", "data/checked.yaml"), dict[str, Checked])


def width_class(arithmetic: str) -> str:
    """Name the arithmetic of products as the table does.

    >>> width_class("bf16"), width_class("fp8")
    ('16-bit', 'fp8')
    """
    return "16-bit" if arithmetic in ("bf16", "fp16") else arithmetic


def outside(asked: Extent) -> tuple[str, ...]:
    """Say what of a question no checked run showed; empty where all of it was."""
    seen = checked().get(asked.arch)
    return (f"GPUs of generation {asked.arch}",) if seen is None else tuple(_outside(asked, seen))


def _outside(asked: Extent, seen: Checked) -> Iterator[str]:
    if asked.gpu not in seen.gpus:
        yield f"GPU {asked.gpu}"
    if asked.stack not in seen.stacks:
        yield f"stack {asked.stack} on {asked.arch}"
    if width_class(asked.arithmetic) not in seen.precisions:
        yield f"{asked.arithmetic} on {asked.arch}"
    if asked.gpus > 1 and asked.scaleup not in seen.scaleups:
        yield f"scale-up {asked.scaleup} on {asked.arch}"
    elif asked.domain_gpus > seen.largest_domain:
        yield f"a scale-up domain of {asked.domain_gpus} GPUs, where {seen.largest_domain} was the largest"
    if asked.gpus > seen.most_gpus:
        yield f"{asked.gpus:,} GPUs, where {seen.most_gpus:,} were the most"
    if asked.offload and not seen.offload:
        yield f"offload to host memory on {asked.arch}"
    if asked.seq_len > seen.longest_seq:
        yield f"sequences of {asked.seq_len:,} tokens, where {seen.longest_seq:,} were the longest"
