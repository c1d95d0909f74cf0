"""What a loss consists of, each part by itself: for methods that have more than one to tell."""

from __future__ import annotations

from torch import Tensor


class Means:
    """Means over all samples of a round's training, of numbers that come batch by batch."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._seen = 0

    def note(self, samples: int, **means: Tensor) -> None:
        """Take the means of one batch; nothing waits for the device they lie on."""
        self._seen += samples
        for name, mean in means.items():
            weighted = mean.detach().double() * samples
            self._sums[name] = self._sums[name] + weighted if name in self._sums else weighted

    def told(self, family: str) -> dict[str, float]:
        """Each mean as `family/name`: numbers of one family are one picture in the report."""
        return {f"{family}/{name}": float(total) / self._seen for name, total in self._sums.items()}
