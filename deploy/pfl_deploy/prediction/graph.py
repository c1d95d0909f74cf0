"""A finished model as one graph: from samples in the run's size to scores and probabilities, preprocessing inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pfl_client.data import scaling
from pfl_client.prediction import Predictor
from pfl_client.prediction.predictor import COMBINED
from pfl_common.learning.method import Samples
from pfl_common.learning.pixels import Pixels
from pfl_common.randomness import generators
from pfl_common.spec.data_description import kind_of
from pfl_common.spec.run import InputKind, Model

INPUT, PROBABILITIES, SCORES = "samples", "probabilities", "scores"
_CHANNELS: tuple[InputKind, ...] = ("image", "windows")


@dataclass(frozen=True)
class Form:
    """The form of the graph's input: samples in the run's size, before they are scaled."""

    model: Model

    @property
    def kind(self) -> InputKind:
        """The kind of the samples."""
        shape = self.model.shape
        return kind_of(self.model, "image" if len(shape) == 3 and shape[0] in (1, 3) else "array")

    @property
    def dtype(self) -> torch.dtype:
        """The type of their numbers: bytes of pictures, numbers of words, floats."""
        if self.kind == "tokens":
            return torch.int32
        pictures = self.kind == "image" and self.model.values in ("bytes", "wide")
        return torch.uint8 if pictures else torch.float32

    @property
    def has_channels(self) -> bool:
        """Whether the first number of a sample's shape counts channels, which are standardised one by one."""
        return self.kind in _CHANNELS

    def draw(self, count: int) -> Tensor:
        """Samples as they could occur, the same ones each time."""
        chance, shape = generators.generator("export", count), (count, *self.model.shape)
        if self.dtype == torch.uint8:
            return torch.randint(256, shape, generator=chance, dtype=torch.uint8)
        if self.kind == "tokens":
            return torch.randint(self.model.tokens, shape, generator=chance, dtype=torch.int32)
        drawn = torch.randn(shape, generator=chance, dtype=torch.float64)
        mean, deviation = self.moments()
        return (drawn * deviation + mean).float()

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation in the shape of a sample; 0 and 1 where samples are not standardised."""
        values = (self.model.mean or (0.0,), self.model.deviation or (1.0,))
        axes = [-1, *[1] * (len(self.model.shape) - 1)] if self.has_channels and len(values[0]) > 1 else [-1]
        mean, deviation = (torch.tensor(own, dtype=torch.float64).reshape(axes) for own in values)
        return mean, deviation

    def prepare(self, samples: Tensor) -> Tensor:
        """The same samples as the site's own code prepares them."""
        if self.dtype != torch.float32:
            return samples
        return torch.from_numpy(scaling.standardise(samples.numpy(), self.model, channels=self.has_channels))


class Graph(nn.Module):
    """Scores as the participant gives them, from samples before they are scaled."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.participant = predictor.served.participant
        self.form, self.heads = Form(predictor.served.spec.model), predictor.heads
        mean, deviation = self.form.moments()
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)
        self.pixels = Pixels.of(self.form.model)

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return [PROBABILITIES, SCORES, *(f"{SCORES}_{head}" for head in self.heads)]

    def forward(self, samples: Tensor) -> tuple[Tensor, ...]:
        """Probabilities, the method's own scores, then each head's."""
        x = samples
        if self.form.dtype == torch.uint8:
            x = samples.float() / 255
        elif self.form.model.mean:
            # In float64 and back, as the site's own code does it.
            x = ((samples.double() - self.mean) / self.deviation).float()
        if self.pixels is not None:
            x = self.pixels.scale(x)
        views = self.participant.views(x)
        return (views[COMBINED].softmax(1), views[COMBINED], *(views[head] for head in self.heads))


def expect(predictor: Predictor, form: Form, samples: Tensor) -> tuple[Tensor, ...]:
    """The outputs of `pfl predict` for these samples, in the graph's order."""
    unknown = torch.zeros(len(samples), dtype=torch.int64)
    [scores] = predictor.score(Samples(form.prepare(samples), unknown))
    heads = [scores[head] for head in predictor.heads]
    return (scores[COMBINED].softmax(1), scores[COMBINED], *heads)


def differ(got: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference, relative to the largest number where that is above 1; infinities have to agree."""
    largest = 0.0
    for one, other in zip(got, expected, strict=True):
        finite = torch.isfinite(other)
        if one.shape != other.shape or not torch.equal(one[~finite], other[~finite]):
            return float("inf")
        if finite.any():
            gap = (one[finite] - other[finite]).abs().max() / max(1.0, float(other[finite].abs().max()))
            largest = max(largest, float(gap.nan_to_num(float("inf"))))
    return largest


def draws(graph: Graph, samples: Tensor) -> bool:
    """Whether a model's predictions are random: its graph could never be compared."""
    said = []
    for turn in range(2):
        with torch.no_grad(), generators.scope("export", turn):
            said.append(graph(samples)[1])
    return not torch.equal(*said)
