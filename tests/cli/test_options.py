"""The table of options knows every field of a strategy and what each may hold."""

from __future__ import annotations

from typing import get_args

import msgspec

from linkscale.cli.options import FLAGS
from linkscale.plan.strategy import Strategy

TYPES = {field.name: field.type for field in msgspec.structs.fields(Strategy)}


def test_every_field_has_one_option():
    assert sorted(flag.field for flag in FLAGS) == sorted(Strategy.__struct_fields__)


def test_the_values_are_those_of_the_type():
    for flag in FLAGS:
        assert set(flag.values) == set(get_args(TYPES[flag.field])), flag.field
        if not flag.values:
            assert flag.kind is (bytes if flag.field == "bucket_bytes" else TYPES[flag.field])


def test_spellings_are_distinct():
    names = [part for flag in FLAGS for name in flag.names for part in name.split("/")]
    assert len(set(names)) == len(names)
