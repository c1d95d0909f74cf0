"""How far an update went: the Euclidean norm of its difference from what it began with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite, sqrt

import torch
from torch import Tensor

from pfl_common.spec.manifest import Manifest
from pfl_common.tensors.layout import Source, Stretch, Window, lay_out, stretches
from pfl_common.tensors.mapped import BLOCK


class Change:
    """The norm over all blocks so far; tensors that nothing was sent for add nothing."""

    def __init__(self, sent: Mapping[str, Tensor]) -> None:
        self._sent, self._square = sent, 0.0
        self._gap = torch.empty(BLOCK if sent else 0)

    @property
    def norm(self) -> float:
        """The Euclidean norm."""
        return sqrt(self._square)

    def add(self, stretch: Stretch, start: int, block: Tensor) -> None:
        """Take the numbers of a stretch from this place on."""
        if not self._sent:
            return
        for part, piece, begin in stretch.pieces(start, block):
            sent = self._sent.get(part.entry.name)
            # A method from outside may sum something else under a name of its state.
            if sent is not None and sent.numel() == part.count:
                norm = self._apart(piece, sent.detach().reshape(-1)[begin : begin + len(piece)])
                self._square += norm * norm

    def _apart(self, piece: Tensor, sent: Tensor) -> float:
        gap = self._gap[: len(piece)]
        # The last place counts for nothing here, and a block in single precision stays in the cache.
        norm = float(torch.linalg.vector_norm(torch.sub(piece.float(), sent.float(), out=gap)))
        # Squares overflow long before numbers do.
        return norm if isfinite(norm) else float(torch.linalg.vector_norm(piece.double() - sent.double()))


def measure_change(
    source: Source, manifest: Manifest, groups: Iterable[str], sent: Mapping[str, Tensor]
) -> float:
    """The change of an update that was checked before, block by block."""
    change, window = Change(sent), Window(source)
    for stretch in stretches(lay_out(manifest, groups)):
        if any(part.entry.name in sent for part in stretch.parts):
            for start, block in window.blocks(stretch.whole):
                change.add(stretch, start, block)
    return change.norm
