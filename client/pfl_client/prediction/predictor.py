"""The Python interface to a finished model: load it once, then predict files, folders or arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from pfl_client.prediction.find_model import Which, find_model
from pfl_client.prediction.inputs import Block, Inputs, Unread, Wanted, list_inputs
from pfl_client.prediction.serving import Served, read_served
from pfl_client.trainer.device import choose, settle
from pfl_client.trainer.tasks import EVALUATION_BATCH
from pfl_common.errors import DataError
from pfl_common.learning.arithmetic import widen
from pfl_common.learning.method import Samples
from pfl_common.learning.pixels import Pixels
from pfl_common.randomness import generators

COMBINED = "combined"
"""The view that is the method's own prediction."""


@dataclass(frozen=True)
class View:
    """What one head says of one sample."""

    label: str
    probabilities: Mapping[str, float]
    """By class: the softmax of its scores."""


@dataclass(frozen=True)
class Answer:
    """The prediction for one sample."""

    file: Path
    row: int | None
    """Its place in a file of several samples, from 1."""
    label: str
    probabilities: Mapping[str, float]
    heads: Mapping[str, View] = field(default_factory=dict)
    """Each head's own view, where the method has more than one: global, personal."""


class Predictor:
    """A site's finished model and the preprocessing of its run. It needs no coordinator and no network."""

    def __init__(self, served: Served, *, device: str = "cpu") -> None:
        self.served = served
        self._device = choose(device).name
        served.participant.to(self._device)

    @classmethod
    def load(cls, place: str | Path, *, which: Which = "last", device: str = "cpu") -> Predictor:
        """The model of a site: its file, its run's folder, the site's folder, or the site's name on this machine;
        `which` says whether that after the last round, or the best where the run kept it.
        """
        return cls(read_served(find_model(place, which)), device=device)

    @property
    def classes(self) -> tuple[str, ...]:
        """The run's classes, in the order of the scores."""
        return self.served.spec.model.classes

    @property
    def heads(self) -> tuple[str, ...]:
        """The method's views beside its prediction; none where it has one head."""
        model = self.served.spec.model
        x = torch.zeros((1, *model.shape), dtype=torch.int32 if model.kind == "tokens" else torch.float32)
        scores = next(self.score(Samples(x, torch.zeros(1, dtype=torch.int64))))
        return tuple(name for name in scores if name != COMBINED)

    def predict(
        self,
        paths: str | Path | Sequence[str | Path],
        *,
        unread: Callable[[Unread], None] | None = None,
        like: str | Path | None = None,
    ) -> Iterator[Answer]:
        """The predictions for files and folders, batch by batch.

        What cannot be read is an error, or is handed to `unread`. `like` is the data folder whose data.json and
        vocabulary.json say how arrays are to be read; without it those beside each file do.
        """
        several = [paths] if isinstance(paths, str | Path) else paths
        wanted = Wanted(None if like is None else Path(like))
        for block in self.read(list_inputs(several), wanted, unread=unread or _refuse):
            yield from self.answer(block)

    def read(
        self, files: Sequence[Path], wanted: Wanted, *, unread: Callable[[Unread], None]
    ) -> Iterator[Block]:
        """The samples of some files, as this model takes them."""
        inputs = Inputs(
            self.served.spec,
            self.served.site,
            wanted=wanted,
            unread=unread,
            dicom_window=self.served.dicom_window,
        )
        return inputs.blocks(files, EVALUATION_BATCH)

    def answer(self, block: Block) -> Iterator[Answer]:
        """The predictions for samples that were read."""
        unknown = torch.zeros(len(block), dtype=torch.int64)
        scores = next(self.score(Samples(block.x, unknown)))
        views = {name: self._name(values) for name, values in scores.items()}
        for place, (file, row) in enumerate(zip(block.files, block.rows, strict=True)):
            own = views[COMBINED][place]
            heads = {name: named[place] for name, named in views.items() if name != COMBINED}
            yield Answer(file, row, own.label, own.probabilities, heads)

    def score(self, samples: Samples) -> Iterator[dict[str, Tensor]]:
        """Each head's scores, in batches of the size a site's own evaluation uses: then its bits are the same."""
        spec = self.served.spec
        settle(spec.threads)
        scaled = replace(samples, pixels=Pixels.of(spec.model))
        for number, (x, _) in enumerate(scaled.batches(EVALUATION_BATCH)):
            # A few methods draw when they predict (FedCP with gumbel noise): twice the same.
            with torch.no_grad(), generators.scope(spec.seed, self.served.site, "predict", number):
                yield {name: widen(s).cpu() for name, s in self._views(x.to(self._device)).items()}

    def _views(self, x: Tensor) -> dict[str, Tensor]:
        """In the run's own precision: then a site's predictions are those that its evaluation scored."""
        participant = self.served.participant
        with participant.arithmetic.autocast(x.device):
            return participant.views(x)

    def _name(self, scores: Tensor) -> list[View]:
        best = scores.argmax(1).tolist()
        shares = scores.double().softmax(1).tolist()
        return [
            View(self.classes[place], dict(zip(self.classes, own, strict=True)))
            for place, own in zip(best, shares, strict=True)
        ]


def _refuse(unread: Unread) -> None:
    where = f"row {unread.row} of file {unread.place}" if unread.row is not None else f"file {unread.place}"
    raise DataError(
        f"{where} cannot be read: {unread.why}",
        expected="files that the model's data were like",
        advice="repair it or leave it out, or take such files with predict(..., unread=...)",
        file=str(unread.file),
    )
