"""How far an update went: the Euclidean norm of its difference from what it began with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite, sqrt

import torch
from torch import Tensor

from pfl_common.spec.manifest import Manifest
from pfl_common.tensors.layout import Source, Stretch, Window, lay_out, stretches
from pfl_common.tensors.mapped import BLOCK


class Sent(Mapping[str, Tensor]):
    """What the sites of a round were sent, by the names of their updates' parcels: one object for all of them, so that
    what is laid out to compare one update with is there for the next.
    """

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        self._values = values
        self._rows: dict[int, tuple[Stretch, Tensor | None]] = {}

    def __getitem__(self, name: str) -> Tensor:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def row(self, stretch: Stretch) -> Tensor | None:
        """A stretch's tensors as they were sent, in a row; None if it is long, or not all of it was sent."""
        # By the stretch itself, which is held beside its row: while it lives no other has its number.
        held = self._rows.get(id(stretch))
        if held is None:
            held = self._rows[id(stretch)] = stretch, self._lay_out(stretch)
        return held[1]

    def _lay_out(self, stretch: Stretch) -> Tensor | None:
        found = [self._values.get(part.entry.name) for part in stretch.parts]
        sent = [value.detach().reshape(-1).float() for value in found if value is not None]
        fits = [value.numel() for value in sent] == [part.count for part in stretch.parts]
        return torch.cat(sent) if fits and stretch.whole.count <= BLOCK else None


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
        if not self._sent or self._add_at_once(stretch, block):
            return
        for part, piece, begin in stretch.pieces(start, block):
            sent = self._sent.get(part.entry.name)
            # A method from outside may sum something else under a name of its state.
            if sent is not None and sent.numel() == part.count:
                norm = self._apart(piece, sent.detach().reshape(-1)[begin : begin + len(piece)])
                self._square += norm * norm

    def _add_at_once(self, stretch: Stretch, block: Tensor) -> bool:
        """Take a stretch that is one block; the numbers are those of its tensors one by one, to the bit."""
        row = self._sent.row(stretch) if isinstance(self._sent, Sent) else None
        if row is None or len(row) != len(block):
            return False
        gap = torch.sub(block.float(), row, out=self._gap[: len(block)])
        gaps = gap.split_with_sizes(stretch.counts)
        norms: list[float] = torch.stack(torch._foreach_norm(gaps)).tolist()
        if not all(map(isfinite, norms)):
            return False
        for norm in norms:
            self._square += norm * norm
        return True

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
