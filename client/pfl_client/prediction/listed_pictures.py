"""Reads the pictures that a list names, block by block, as a data folder's list is read for training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from pfl_client.data import image_decoding
from pfl_client.data.image_decoding import Target
from pfl_client.data.picture import Picture

Bad: TypeAlias = Callable[[Path, int, str], None]
"""Called with the file, the row that names it, from 1, and the reason why it cannot be read."""


def read_listed(
    pictures: Iterable[Picture], target: Target, *, most: int, bad: Bad
) -> Iterator[tuple[list[Picture], Tensor]]:
    """Pictures that can be read and their pixels, at most `most` at a time."""
    numbered = enumerate(pictures, start=1)
    while some := list(islice(numbered, most)):
        read: list[tuple[Picture, Tensor]] = []
        for row, picture in some:
            try:
                read.append((picture, image_decoding.read(picture.path, target)))
            except image_decoding.Unreadable as error:
                bad(picture.path, row, str(error))
        if read:
            yield [picture for picture, _ in read], torch.stack([x for _, x in read])
