"""Messages of the wire with a few fields that nobody would fill in so."""

from __future__ import annotations

import json
from typing import Any  # a message's fields are of any type

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from pfl_common.spec import status_json
from pfl_common.wire import convert
from tests.fuzz import odd
from tests.fuzz.shape import Shape, as_json, shape
from tests.fuzz.targets.agreements import SEPARATOR, TEXTS, WINDOWS
from tests.fuzz.targets.calls import NUMBERS, PICTURES, STATUS, TABLE, messages

_BITS = {
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_ENUM: (-(2**31), 2**31 - 1),
}
_HOW_MANY = (0, 1, 2, 17, 65, 400)


@st.composite
def messages_nearly(draw: DrawFn, message: Message, *, most: int = 3) -> Message:
    """A message with a few fields changed, at any depth."""
    changed = type(message).FromString(message.SerializeToString())
    for _ in range(draw(st.integers(0, most))):
        _change(draw, changed)
    return changed


def _change(draw: DrawFn, message: Message) -> None:
    fields = list(message.DESCRIPTOR.fields)
    # What is set says more about what is read than what is not.
    there = [field for field, _ in message.ListFields()]
    field = draw(st.sampled_from(there if there and draw(st.integers(0, 3)) else fields)) if fields else None
    if field is None:
        return
    if not draw(st.integers(0, 9)):
        message.ClearField(field.name)
    elif field.is_repeated:
        _change_list(draw, message, field)
    elif field.message_type is not None:
        inner = getattr(message, field.name)
        inner.SetInParent()
        _change(draw, inner)
    else:
        setattr(message, field.name, draw(_value_of(field)))


def _change_list(draw: DrawFn, message: Message, field: FieldDescriptor) -> None:
    found = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = found[draw(odd.words)]
        if draw(st.booleans()):
            _change(draw, inner)
    elif field.message_type is not None:
        if found and draw(st.booleans()):
            _change(draw, found[draw(st.integers(0, len(found) - 1))])
        else:
            kept = list(found[:1])
            found.extend((kept or [found.add()]) * draw(st.sampled_from(_HOW_MANY)))
    elif found and draw(st.booleans()):
        found[draw(st.integers(0, len(found) - 1))] = draw(_value_of(field))
    else:
        found.extend([draw(_value_of(field))] * draw(st.sampled_from(_HOW_MANY)))


def _value_of(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.type in _BITS:
        low, high = _BITS[field.type]
        return odd.numbers.map(lambda number: max(low, min(high, number)))
    return {
        FieldDescriptor.TYPE_DOUBLE: odd.reals,
        FieldDescriptor.TYPE_STRING: odd.words,
        FieldDescriptor.TYPE_BOOL: st.booleans(),
        FieldDescriptor.TYPE_BYTES: st.binary(max_size=40) | odd.words.map(str.encode),
    }[field.type]


@shape("calls")
def build_message() -> Shape:
    """Each kind of message."""
    return odd.one_of(messages()).flatmap(messages_nearly).map(_write)


@shape("agreement")
def build_sites() -> Shape:
    """What two sites say of data that are alike, but for a few fields of one."""
    said = odd.one_of([*map(convert.say_description, (PICTURES, TABLE, NUMBERS, TEXTS, WINDOWS))])
    pairs = said.flatmap(lambda one: st.tuples(messages_nearly(one), messages_nearly(one, most=1)))
    return pairs.map(lambda pair: SEPARATOR.join(map(_write, pair)))


@shape("status")
def build_status() -> Shape:
    """What a coordinator of another release, or a hostile one, would tell the operator."""
    return odd.nearly(json.loads(status_json.write(STATUS))).map(as_json)


def _write(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)
