"""Pictures with their labels, and the planned content of one site's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Form: TypeAlias = Literal["npz", "images"]
Images: TypeAlias = npt.NDArray[Any]  # Any: uint8 pictures or float32 rows, told apart when written
Labels: TypeAlias = npt.NDArray[np.int64]
Indices: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Labelled:
    """Examples `x` (one along the first axis) and the class index `y` of each."""

    x: Images
    y: Labels

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"{len(self.x)} examples but {len(self.y)} labels: there must be one label each")

    def __len__(self) -> int:
        return len(self.y)

    def take(self, indices: Indices) -> Labelled:
        """The chosen examples, in the order asked for."""
        return Labelled(self.x[indices], self.y[indices])


@dataclass(frozen=True)
class Source:
    """A published data set as its authors divided it; `test` is empty if they did not."""

    name: str
    classes: Sequence[str]
    train: Labelled
    test: Labelled
    licence: str

    def pooled(self) -> Labelled:
        """Training examples followed by test examples: the numbering every partition uses."""
        if not len(self.test):
            return self.train
        return Labelled(
            np.concatenate([self.train.x, self.test.x]), np.concatenate([self.train.y, self.test.y])
        )


@dataclass(frozen=True)
class ClientData:
    """The content of one site's folder; `origin` says where it comes from and is stored beside the data."""

    classes: Sequence[str]
    train: Labelled
    test: Labelled
    validation: Labelled | None = None
    origin: Mapping[str, object] = field(default_factory=dict)
    shifted: Labelled | None = None
    """A second test part, made otherwise than all the others."""

    def splits(self) -> dict[str, Labelled]:
        """The non-empty parts by name."""
        parts = {
            "train": self.train,
            "validation": self.validation,
            "test": self.test,
            "shifted": self.shifted,
        }
        return {name: part for name, part in parts.items() if part is not None and len(part)}
