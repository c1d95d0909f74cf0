"""The story of `pfl evaluate`: a model's predictions for labelled data, measured and told."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text
from torch import Tensor

from pfl_client import data
from pfl_client.data.layout import PARTS, PictureFolders, find
from pfl_client.prediction import Predictor, Wanted
from pfl_client.prediction.find_model import Which
from pfl_client.prediction.inputs import list_inputs
from pfl_client.prediction.predictor import COMBINED
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError, SettingError, nearest
from pfl_common.learning.method import Samples
from pfl_common.spec.run import Json
from pfl_deploy.prediction import charts
from pfl_deploy.prediction.measures import CONFIDENCE, Interval, Scored, bootstrap
from pfl_deploy.prediction.predict import Missing

EVERY = "all"
"""The word for all parts of a data folder together."""
TITLES = {"accuracy": "accuracy", "macro_f1": "macro-F1", "auc": "AUC, one class against the rest"}


@dataclass(frozen=True)
class Asked:
    """The command as it was typed."""

    model: str
    data: Path
    part: str = "test"
    label: str = ""
    group: str = ""
    like: Path | None = None
    plots: Path | None = None
    resamples: int = 1000
    seed: int = 0
    skip_bad: bool = False
    device: str = "auto"
    which: Which = "last"


@dataclass(frozen=True)
class Evaluated:
    """The result."""

    predictor: Predictor
    asked: Asked
    scored: Scored
    heads: Mapping[str, float]
    """The accuracy of each head by itself."""
    measures: Mapping[str, Interval]
    pictures: tuple[Path, ...]

    def to_json(self) -> dict[str, Json]:
        """Everything, for programs; a measure that does not exist is null."""
        served, scored, classes = self.predictor.served, self.scored, self.predictor.classes
        facts = dict(zip(classes, scored.class_facts(), strict=True))
        plain: dict[str, Json] = {
            "model": {
                "site": served.site,
                "run": served.spec.id,
                "method": served.spec.method,
                "sha256": served.sha256,
                "best": None if served.best is None else asdict(served.best),
            },
            "samples": len(scored),
            "groups": None if scored.groups is None else int(scored.groups.max()) + 1,
            "confidence": CONFIDENCE,
            "resamples": self.asked.resamples,
            "seed": self.asked.seed,
            "measures": {name: asdict(found) for name, found in self.measures.items()},
            "heads": dict(self.heads),
            "calibration": {"ece": scored.ece(), "bins": [asdict(one) for one in scored.bins()]},
            "classes": {name: asdict(found) for name, found in facts.items()},
            "confusion": [[int(cell) for cell in row] for row in scored.confusion()],
            "pictures": [str(path) for path in self.pictures],
        }
        return {name: _defined(value) for name, value in plain.items()}


def evaluate(asked: Asked, console: Console) -> tuple[Evaluated, Missing]:
    """Predict labelled samples and measure; `console` is for what is said on the way."""
    if asked.plots is not None:
        charts.check_drawing()
    predictor = Predictor.load(asked.model, which=asked.which, device=asked.device)
    missing = Missing(console, spared=asked.skip_bad)
    scored, heads = _score(predictor, _read(predictor, asked, missing))
    measures = _resample(scored, asked, console)
    drawn: list[Path] = []
    if asked.plots is not None:
        drawn = charts.draw(scored.confusion(), scored.bins(), predictor.classes, asked.plots)
    return Evaluated(predictor, asked, scored, heads, measures, tuple(drawn)), missing


def _resample(scored: Scored, asked: Asked, console: Console) -> Mapping[str, Interval]:
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("intervals", total=asked.resamples)
        return bootstrap(
            scored,
            resamples=asked.resamples,
            seed=asked.seed,
            progress=lambda done: bar.update(task, completed=done),
        )


Labelled: TypeAlias = tuple[Samples, tuple[str, ...]]
"""Samples with the run's class numbers, and the group of each, if there are groups."""


def _read(predictor: Predictor, asked: Asked, missing: Missing) -> Iterator[Labelled]:
    if asked.data.is_dir():
        if asked.label or asked.group or asked.like is not None:
            raise SettingError(
                "--label, --group and --like are for single files",
                expected="a table or an .npz, or no such option",
            )
        return iter([_read_folder(predictor, asked, missing)])
    wanted = Wanted(asked.like, labelled=True, label=asked.label, group=asked.group)
    return _read_file(predictor, asked, wanted, missing=missing)


def _read_folder(predictor: Predictor, asked: Asked, missing: Missing) -> Labelled:
    """A part of a data folder, by the code that reads it for training and for the site's own evaluation."""
    if asked.part not in (*PARTS, EVERY):
        raise SettingError(
            f"a data folder has no part {asked.part!r}", expected=nearest(asked.part, (*PARTS, EVERY))
        )
    served = predictor.served
    # How many are missing is told at the end; --skip-bad says whether that is an error.
    folder = DataFolder(asked.data, served.site, validation=served.validation, most_bad=1.0)
    local = data.load(folder, served.spec)
    parts = {
        "train": local.train,
        "validation": local.validation,
        "test": local.test,
        "shifted": local.shifted,
    }
    chosen = list(parts) if asked.part == EVERY else [asked.part]
    kept = [parts[name] for name in chosen if len(parts[name])]
    if not kept:
        raise DataError(
            f"the data folder has no samples in its part {asked.part!r}",
            expected="labelled samples",
            advice=f"choose another with --part: {', '.join(n for n, own in parts.items() if len(own)) or EVERY}",
        )
    found = find(folder)
    if isinstance(found, PictureFolders) and served.spec.model.kind == "image":
        # Which they are was said when they were read.
        missing.files += sum(len(found.parts[name]) - len(parts[name]) for name in chosen)
    return Samples(torch.cat([own.x for own in kept]), torch.cat([own.y for own in kept])), ()


def _read_file(predictor: Predictor, asked: Asked, wanted: Wanted, *, missing: Missing) -> Iterator[Labelled]:
    for block in predictor.read(list_inputs([asked.data]), wanted, unread=missing.note):
        yield Samples(block.x, block.labels), block.groups


def _score(predictor: Predictor, labelled: Iterable[Labelled]) -> tuple[Scored, dict[str, float]]:
    truth: list[Tensor] = []
    views: dict[str, list[Tensor]] = {}
    shares: list[Tensor] = []
    groups: list[str] = []
    for samples, own in labelled:
        truth.append(samples.y)
        groups += own
        for scores in predictor.score(samples):
            shares.append(scores[COMBINED].double().softmax(1))
            for name, values in scores.items():
                views.setdefault(name, []).append(values.argmax(1))
    if not truth:
        raise DataError(
            "there are no labelled samples to measure",
            expected="a data folder, an .npz with x and y, or a table with --label",
            advice="look at the reasons above",
        )
    y = torch.cat(truth).numpy()
    said = {name: torch.cat(values).numpy() for name, values in views.items()}
    numbers = np.unique(np.array(groups), return_inverse=True)[1].astype(np.int64) if groups else None
    heads = {name: float(np.mean(values == y)) for name, values in said.items() if name != COMBINED}
    return Scored(y, said[COMBINED], torch.cat(shares).numpy(), numbers), heads


def show(found: Evaluated, console: Console) -> None:
    """The result for people."""
    scored, served = found.scored, found.predictor.served
    console.print(
        f"{served.site}, {served.spec.method}, run {served.spec.id}{served.place}: {len(scored)} samples",
        markup=False,
    )
    by = "samples" if scored.groups is None else f"{int(scored.groups.max()) + 1} groups"
    overall = Table(
        title=f"with 95 % intervals, {found.asked.resamples} resamples of {by}",
        box=None,
        title_justify="left",
    )
    for place, name in enumerate(("", "value", "from", "to")):
        overall.add_column(name, justify="left" if place == 0 else "right")
    for name, one in found.measures.items():
        overall.add_row(TITLES[name], *map(_words, (one.value, one.low, one.high)))
    overall.add_row("expected calibration error", _words(scored.ece()), "", "")
    for name, accuracy in found.heads.items():
        overall.add_row(f"accuracy of the {name} head", _words(accuracy), "", "")
    console.print(overall)
    console.print(_tabulate(found))
    for path in found.pictures:
        console.print(f"picture: {path}", markup=False)


def _tabulate(found: Evaluated) -> Table:
    classes = Table(box=None)
    for place, name in enumerate(("class", "samples", "predicted", "precision", "recall", "F1", "AUC")):
        classes.add_column(name, justify="left" if place == 0 else "right")
    for name, one in zip(found.predictor.classes, found.scored.class_facts(), strict=True):
        rates = (one.precision, one.recall, one.f1, one.auc)
        # A name is no markup.
        classes.add_row(Text(name), str(one.samples), str(one.predicted), *map(_words, rates))
    return classes


def _words(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _defined(value: Json) -> Json:
    """The same with null in place of NaN, which JSON does not have."""
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, dict):
        return {name: _defined(one) for name, one in value.items()}
    return [_defined(one) for one in value] if isinstance(value, list) else value


def as_json(found: Evaluated) -> str:
    """The result for programs."""
    return json.dumps(found.to_json(), allow_nan=False)
