"""What a round of each method costs a site, as it was measured when the method's page was made.

`method_help/costs.py` measures it; the file comes with the product.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

SAMPLES = 64
"""Of the site that was measured: two batches of 32."""


@dataclass(frozen=True)
class Network:
    """A backbone and the size of its pictures."""

    backbone: str
    shape: tuple[int, int, int] = (3, 32, 32)
    classes: int = 10

    @property
    def words(self) -> str:
        """As a person reads it."""
        channels, height, width = self.shape
        return f"{self.backbone} on {height}×{width}×{channels}, {self.classes} classes"


NETWORKS = (Network("cnn"), Network("resnet18"))
"""Those the pages tell of."""


@dataclass(frozen=True)
class Figures:
    """The cost of one round for one site."""

    down: int
    up: int
    """Bytes of a parcel of the round."""
    kept: int
    """Bytes that stay at the site from round to round."""
    model: int
    """Bytes of the plain network: encoder and one head, with running statistics."""
    held: int
    """Most bytes of tensors at one time, batches of two: what is counted are models and copies of them."""
    peak: int
    """The same with the method's own batch size: the samples' way through the network comes on top."""
    products: int
    """Multiply-adds of matrix products and convolutions, forward and backward, in `learn`."""

    @property
    def sets(self) -> float:
        """The memory for models while training, in multiples of the plain network."""
        return self.held / self.model

    @property
    def products_per_sample(self) -> float:
        """Of a whole round, for each training sample the site has."""
        return self.products / SAMPLES


KEPT = Path(__file__).with_name("figures.json")
"""What was measured of every method with its defaults when its page was made, by network and method."""


def read_kept() -> dict[str, dict[str, Figures]]:
    """The file that comes with the product."""
    plain = json.loads(KEPT.read_text(encoding="utf-8"))
    return {words: {name: Figures(**row) for name, row in rows.items()} for words, rows in plain.items()}
