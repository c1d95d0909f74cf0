"""The scaling of pictures by channel: the last step before a network, the same for training, prediction and export."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pfl_common.spec.run import Model


@dataclass(frozen=True)
class Pixels:
    """What is taken away from each channel of a picture of values 0..1, and what it is then divided by."""

    mean: Tensor
    deviation: Tensor
    """Of shape (channels, 1, 1), so that both fit one picture and many."""

    @classmethod
    def of(cls, model: Model) -> Pixels | None:
        """As the run agreed; None: pixels stay as they are."""
        if not model.pixel_mean:
            return None
        mean, deviation = (
            torch.tensor(own, dtype=torch.float32).reshape(-1, 1, 1)
            for own in (model.pixel_mean, model.pixel_deviation)
        )
        return cls(mean, deviation)

    def scale(self, x: Tensor) -> Tensor:
        """Pictures of values 0..1 as the network takes them."""
        return (x - self.mean.to(x.device)) / self.deviation.to(x.device)
