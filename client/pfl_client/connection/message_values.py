"""Turns any message of the wire into plain values, for the list of what leaves a site."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from pfl_common.spec.run import Json


def spell(message: Message) -> dict[str, Json]:
    """All fields that are set, by name; of bytes only how many and which."""
    return {field.name: _spell(field, value) for field, value in message.ListFields()}


def _spell(field: FieldDescriptor, value: object) -> Json:
    if isinstance(value, Mapping):
        return {str(name): _spell_one(field, inner) for name, inner in sorted(value.items())}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        # An evaluation has hundreds of numbers, and each is what it says.
        if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
            return [*value]
        return [_spell_one(field, inner) for inner in value]
    return _spell_one(field, value)


def _spell_one(field: FieldDescriptor, value: object) -> Json:
    if isinstance(value, Message):
        return dict(spell(value))
    if isinstance(value, bytes):
        return {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    if field.enum_type is not None and isinstance(value, int):
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    return value if isinstance(value, bool | int | float | str) else str(value)
