"""Arrays too large for memory: streamed out of their archive into the site's cache, block by block, and mapped."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from pfl_client.data import forms
from pfl_client.data.array_file import read_rows
from pfl_client.data.disk_cache import DiskCache, Layout, Rows, make_rows
from pfl_client.data.forms import Column, Form
from pfl_client.trainer_process.api import DataFolder
from pfl_common.app.code_digest import digest_of

BLOCK = 1024
"""Samples in the run's form at a time; fewer where they are large."""
BLOCK_BYTES = 32 << 20


class ArrayRows:
    """The cache as arrays use it; without one every array is read into memory."""

    def __init__(self, folder: DataFolder) -> None:
        self._cache = None if folder.cache is None else DiskCache(folder.cache, folder.cache_bytes)
        self._most = folder.in_memory

    def is_large(self, path: Path) -> bool:
        """Whether the samples of this file go through the cache."""
        if self._cache is None:
            return False
        try:
            with zipfile.ZipFile(path) as archive:
                return archive.getinfo("x.npy").file_size > self._most
        except (OSError, KeyError, zipfile.BadZipFile):
            return False  # said in words by who reads it

    def arrange(self, outline: Column, path: Path, form: Form) -> tuple[Column, str]:
        """A file's samples as `forms.arrange` gives them, mapped, and the digest of the file."""

        def blocks() -> Iterator[Rows]:
            for rows in read_rows(path, labelled=False, most=len(outline)):
                where = f"{path.name}, in the samples from {rows.first} on,"
                yield forms.arrange(rows.x, form, file=where)

        with path.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        sample = forms.arrange(outline[:1], form, file=path.name)
        recipe = {"of": digest, "form": asdict(form)}
        return self._make(recipe, sample, len(outline), blocks), digest

    def fit(self, x: Column, recipe: Mapping[str, object], fit: Callable[[Column], Rows]) -> Rows:
        """Mapped samples as `fit` brings them into the run's form, mapped as well."""
        first = fit(x[:1])
        step = max(1, min(BLOCK, BLOCK_BYTES // max(1, first.nbytes, x[:1].nbytes)))

        def blocks() -> Iterator[Rows]:
            for start in range(0, len(x), step):
                yield fit(x[start : start + step])

        return self._make(recipe, first, len(x), blocks)

    def drop_others(self) -> None:
        """Remove what was not asked for here: the run needs nothing else."""
        if self._cache is not None:
            self._cache.drop_others()

    def _make(
        self, recipe: Mapping[str, object], sample: Column, count: int, blocks: Callable[[], Iterator[Rows]]
    ) -> Rows:
        if self._cache is None:
            raise ValueError("an array is mapped without a cache")
        layout = Layout(sample.shape[1:], sample.dtype.name)
        code = digest_of(Path(__file__).parent)
        return make_rows(self._cache, {**recipe, "code": code}, layout, count, blocks)


def is_mapped(x: Column) -> bool:
    """Whether samples lie in the cache and are not to be copied whole."""
    return isinstance(x, np.memmap)
