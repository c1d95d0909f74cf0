"""The form in which a tensor's numbers cross if not as they are, and its exact size in bytes. Torch-free.

A manifest writes it where the type of the numbers stands; the numbers themselves are float32 on both sides:

    bf16               the upper half of each number, rounded to the nearest
    bf16-change        the same of what an update changed
    int8-change        of each 256 changes their scale, a float32, and 256 whole numbers from -127 to 127
    topk-change/0.05   of each 4,096 changes the largest 5 %: their places in order, two bytes each, then their values
                       as bf16

The last block of a tensor is shorter. Nothing of a block's size is told by its sender, so the size of a parcel follows
from its manifest, whatever is in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Literal

PLAIN = "float32"
"""The type of the numbers before they are encoded and after."""
LARGEST_SHARE = 0.5
"""Of `topk`: of more than half of the numbers it would take as much room as bf16."""
SCALE = 4
"""Bytes of an int8 block's scale."""
_BLOCKS = {"bf16": 1, "int8": 256, "topk": 4096}
_TEXT = re.compile(r"(bf16)(-change)?|(int8)-change|(topk)-change/(0\.[0-9]{1,6})")


@dataclass(frozen=True)
class Form:
    """How one tensor's numbers are encoded."""

    kind: Literal["bf16", "int8", "topk"]
    is_change: bool = True
    """Whether they are differences from what the site was sent."""
    share: float = 0.0
    """Of `topk`: how many of a block's numbers cross."""

    @property
    def block(self) -> int:
        """Numbers that are encoded together."""
        return _BLOCKS[self.kind]

    @property
    def keeps_rest(self) -> bool:
        """Whether so much is lost that the site keeps it and adds it to its next change."""
        return self.kind != "bf16"

    @property
    def text(self) -> str:
        """As a manifest says it."""
        return self.kind + "-change" * self.is_change + f"/{self.share:g}" * bool(self.share)

    def taken(self, count: int) -> int:
        """Numbers of a `topk` block of so many that cross: a share of them, at least one."""
        # The small term keeps 0.05 of 4,100 from being rounded up to 206.
        return max(1, ceil(self.share * count - 1e-9))

    def block_size(self, count: int) -> int:
        """Bytes of a block of so many numbers."""
        if self.kind == "bf16":
            return 2 * count
        return SCALE + count if self.kind == "int8" else 4 * self.taken(count)

    def size(self, count: int) -> int:
        """Bytes of a tensor of so many numbers, or of the first so many if they end with a block."""
        full, rest = divmod(count, self.block)
        return full * self.block_size(self.block) + (self.block_size(rest) if rest else 0)


@lru_cache(256)
def read_form(text: str) -> Form | None:
    """The form that a manifest names; None for a plain type, and for words that are neither."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    if found[4]:
        form = Form("topk", share=float(found[5]))
        return form if form.text == text and 0 < form.share <= LARGEST_SHARE else None
    return Form("int8") if found[3] else Form("bf16", is_change=bool(found[2]))
