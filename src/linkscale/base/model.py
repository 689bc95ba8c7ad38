"""The frozen base of every value that crosses a room."""

from __future__ import annotations

import msgspec


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen value that can be saved, diffed and replayed.

    msgspec's constructor does not check types (mypy does); limits live in ``__post_init__``, which
    runs for the constructor, for decoding and for ``msgspec.structs.replace`` alike.
    """
