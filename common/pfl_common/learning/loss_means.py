"""Means of the parts of a loss, for methods whose loss has several."""

from __future__ import annotations

from torch import Tensor

from pfl_common.learning.arithmetic import in_double


class Means:
    """Weighted means over all samples of a round's training, updated batch by batch."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._seen = 0

    def note(self, samples: int, **means: Tensor) -> None:
        """Take the means of one batch; nothing waits for the device they lie on."""
        self._seen += samples
        for name, mean in means.items():
            weighted = in_double(mean.detach()) * samples
            self._sums[name] = self._sums[name] + weighted if name in self._sums else weighted

    def told(self, family: str) -> dict[str, float]:
        """Each mean as `family/name`: numbers of one family are one picture in the report."""
        return {f"{family}/{name}": float(total) / self._seen for name, total in self._sums.items()}
