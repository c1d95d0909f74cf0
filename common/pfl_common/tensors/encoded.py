"""Encoded tensors on their way: writes an update's changes, and reads an encoded parcel as if it were plain.

How a run's parcels are encoded, and why so, stands in `spec.encoding`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor

from pfl_common.errors import Refused
from pfl_common.spec.encoded_form import Form, read_form
from pfl_common.spec.manifest import Entry, Manifest, decode_manifest
from pfl_common.tensors.layout import Place, Source, fit, lay_out
from pfl_common.tensors.packing import CHUNK, pack, unpack
from pfl_common.tensors.state import State


class Sink(Protocol):
    """The destination of a parcel's bytes: a file, or a buffer in memory."""

    def write(self, content: memoryview, /) -> object:
        """Take the next bytes, all of them."""


class Changes:
    """Writes what an update changed, and keeps what did not cross of it."""

    def __init__(
        self,
        sent: State,
        before: State,
        chance: Callable[[str], torch.Generator] | None = None,
        *,
        keeps_rest: bool = True,
    ) -> None:
        """By the names of the parcel: what the site was sent, and what did not cross of its last change. With
        `chance`, by a tensor's name, numbers are rounded up or down by it. A download's rest is not kept: it is in the
        next difference again.
        """
        self.sent, self._before, self._chance, self._keeps_rest = sent, before, chance, keeps_rest
        self.rest: dict[str, Tensor] = {}
        """What did not cross this time, by the names of the parcel."""

    def write(self, entry: Entry, form: Form, value: Tensor, out: Sink) -> None:
        """Write how far a tensor went from what was sent."""
        change = (value - self.sent[entry.name].to(value.device)).cpu().reshape(-1)
        if form.keeps_rest and entry.name in self._before:
            change += self._before[entry.name].reshape(-1)
        chance = self._chance(entry.name) if self._chance and form.keeps_rest else None
        rest = torch.empty_like(change) if form.keeps_rest and self._keeps_rest else None
        for start in range(0, len(change), CHUNK):
            block = change[start : start + CHUNK]
            raw = pack(form, block, chance)
            out.write(raw.numpy().data)
            if rest is not None:
                torch.sub(block, unpack(form, raw, len(block)), out=rest[start : start + len(block)])
        if rest is not None:
            self.rest[entry.name] = rest.view(value.shape)


def write_values(form: Form, value: Tensor, out: Sink) -> None:
    """Write a tensor's numbers, in a form that is no change."""
    numbers = value.reshape(-1)
    for start in range(0, len(numbers), CHUNK):
        out.write(pack(form, numbers[start : start + CHUNK]).numpy().data)


def read_values(form: Form, raw: Tensor, entry: Entry, base: Tensor | None = None) -> Tensor:
    """A whole tensor from its bytes; changes are added to their `base`."""
    value = torch.empty(entry.shape)
    numbers, before = value.view(-1), None if base is None else base.reshape(-1)
    for start in range(0, len(numbers), CHUNK):
        stop = min(start + CHUNK, len(numbers))
        with _named(entry.name):
            part = unpack(
                form, raw[form.size(start) : form.size(start) + form.size(stop - start)], stop - start
            )
        numbers[start:stop] = part if before is None else part.add_(before[start:stop])
    return value


def open_plain(
    source: Source, manifest: Manifest, groups: tuple[str, ...], base: Mapping[str, Tensor]
) -> Source:
    """A parcel as a source of its plain bytes, in the order of its decoded manifest; itself if nothing is encoded."""
    if decode_manifest(manifest) is manifest:
        return source
    return Decoded(source, manifest, groups, base)


class Decoded:
    """An encoded parcel, read as if it were plain: decoded where it is read, a chunk at a time. Read in order, each of
    its bytes is read once and in order.
    """

    def __init__(
        self, source: Source, manifest: Manifest, groups: tuple[str, ...], base: Mapping[str, Tensor]
    ) -> None:
        """`base` is what changes are added to, by the names of the parcel."""
        self._source, self._base = source, base
        crossing = lay_out(manifest, groups)
        fit(source.size, crossing)
        self._crossing = list(crossing.values())
        self._plain = list(lay_out(decode_manifest(manifest), groups).values())
        self._ends = list(accumulate(place.size for place in self._plain))
        self._chunk: tuple[int, int, memoryview] = -1, 0, memoryview(b"")

    @property
    def size(self) -> int:
        """The number of plain bytes."""
        return self._ends[-1] if self._ends else 0

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill the target with the plain bytes from this place on."""
        done = 0
        while done < len(target):
            at = bisect_right(self._ends, offset + done)
            inside = offset + done - self._plain[at].offset
            part = target[done : done + self._plain[at].size - inside]
            done += self._read(at, inside, part)

    def _read(self, at: int, inside: int, target: memoryview) -> int:
        """Fill the target from one tensor, as far as its next chunk ends; gives how many bytes that were."""
        place = self._crossing[at]
        form = read_form(place.entry.dtype)
        if form is None:
            self._source.read_into(place.offset + inside, target)
            return len(target)
        number, skip = divmod(inside, CHUNK * 4)
        if self._chunk[:2] != (at, number):
            self._chunk = at, number, self._decode(place, form, number * CHUNK)
        found = self._chunk[2][skip : skip + len(target)]
        target[: len(found)] = found
        return len(found)

    def _decode(self, place: Place, form: Form, start: int) -> memoryview:
        count = min(CHUNK, place.count - start)
        begin, size = place.offset + form.size(start), form.size(count)
        raw = torch.empty(size, dtype=torch.uint8)
        self._source.read_into(begin, raw.numpy().data)
        with _named(place.entry.name):
            numbers = unpack(form, raw, count)
        if form.is_change:
            numbers += self._base[place.entry.name].detach().reshape(-1)[start : start + count]
        return memoryview(numbers.view(torch.uint8).numpy().data)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """While open, bytes that are refused are refused by the name of their tensor."""
    try:
        yield
    except Refused as refused:
        raise Refused(refused.code, f"{name!r}: {refused.words}") from None
