"""Decoded pictures as rows: in memory, or in a slab of the site's cache, where a picture is decoded once.

Either gives the same bytes. In a slab a picture is known by the digest of its file's content, so one that was changed,
added or removed costs nothing but itself.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol  # Any: an exception's three parts

import torch
from torch import Tensor

from pfl_client.data.dicom import Window
from pfl_client.data.disk_cache import DiskCache, Index, Layout, Rows, Writer
from pfl_common.app.code_digest import digest_of
from pfl_common.spec.run import Model

SETTLED_NS = 2_000_000_000
"""A file that was changed this short a time before it was read may change again within the same tick of the clock."""


class PictureRows(AbstractContextManager["PictureRows"], Protocol):
    """Takes pictures in one by one; used in a `with` block, which leaves nothing half written behind."""

    mapped: bool
    """Whether they lie in a file that is never copied whole."""

    def add(self, path: Path, read: Callable[[Path], Tensor]) -> None:
        """One picture more; what `read` raises leaves nothing behind."""

    def finish(self) -> Tensor:
        """All of them."""


class InMemory(PictureRows):
    """Pictures in memory."""

    mapped = False

    def __init__(self, shape: tuple[int, ...], most: int) -> None:
        self._x, self._count = torch.empty((most, *shape), dtype=torch.uint8), 0

    def __exit__(self, *raised: object) -> None:
        """Nothing was opened."""

    def add(self, path: Path, read: Callable[[Path], Tensor]) -> None:
        """One picture more."""
        self._x[self._count] = read(path)
        self._count += 1

    def finish(self) -> Tensor:
        """All of them."""
        return self._x[: self._count]


class InCache(PictureRows):
    """Pictures in a slab. As long as they come in the order of the last time, nothing is written."""

    mapped = True

    def __init__(self, cache: DiskCache, model: Model, most: int, *, window: Window | None = None) -> None:
        self._cache, self._most = cache, most
        self._layout = Layout(model.shape, "uint8")
        self._name = cache.name(_recipe(model, window))
        self._last = cache.find(self._name, self._layout)
        self._rows = cache.map(self._name, self._layout, self._last.count)
        self._places = {key: place for place, key in enumerate(self._last.keys) if key}
        self._stamps: dict[str, str] = {}
        self._keys: list[str] = []
        self._open = ExitStack()
        self._writer: Writer | None = None

    def __exit__(self, *raised: Any) -> None:
        """What was not finished is removed."""
        self._open.__exit__(*raised)

    def add(self, path: Path, read: Callable[[Path], Tensor]) -> None:
        """One picture more: taken over if its content was decoded before."""
        key, count = self._key(path), len(self._keys)
        if self._writer is None and key and key == next(iter(self._last.keys[count : count + 1]), None):
            self._keys.append(key)
            return
        place = self._places.get(key)
        row: Rows = read(path).numpy() if place is None else self._rows[place]
        self._begin().write(row[None])
        self._keys.append(key)

    def finish(self) -> Tensor:
        """All of them, mapped."""
        index = Index(len(self._keys), tuple(self._keys), self._stamps)
        self._open.close()
        if self._writer is not None or index != self._last:
            self._cache.note(self._name, index)
        self._cache.drop_others()
        return torch.from_numpy(self._cache.map(self._name, self._layout, index.count))

    def _begin(self) -> Writer:
        """The slab that is being written; what came so far is copied from the last one."""
        if self._writer is None:
            self._writer = self._open.enter_context(self._cache.writing(self._name, self._layout, self._most))
            self._writer.write(self._rows[: len(self._keys)])
        return self._writer

    def _key(self, path: Path) -> str:
        """The digest of a file's content; empty where it cannot be read, which `read` then says in words."""
        try:
            with path.open("rb") as content:
                stamp, settled = _stamp(os.fstat(content.fileno()))
                key = self._last.stamps.get(stamp) or hashlib.file_digest(content, "sha256").hexdigest()
        except OSError:
            return ""
        if settled:
            self._stamps[stamp] = key
        return key


def _stamp(found: os.stat_result) -> tuple[str, bool]:
    """A file's place on the disk, size and times; whether those would show a change."""
    newest = max(found.st_mtime_ns, found.st_ctime_ns)
    words = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return ":".join(map(str, words)), time.time_ns() - newest > SETTLED_NS


def _recipe(model: Model, window: Window | None) -> dict[str, object]:
    """All that decides which bytes a file becomes, this release's code among it."""
    return {
        "shape": model.shape,
        "low": model.low,
        "high": model.high,
        "per_picture": model.per_picture,
        "window": window and asdict(window),
        "pillow": version("pillow"),
        "pydicom": version("pydicom") if find_spec("pydicom") else "",
        "code": digest_of(Path(__file__).parent),
    }
