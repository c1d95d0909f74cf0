"""The best round's model: complete, at the point where the method measures, and better than all before it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from pfl_client import data
from pfl_client.prediction.serving import read_served
from pfl_client.trainer import tasks
from pfl_client.trainer.session import Workbench
from pfl_client.trainer_process.api import BestSoFar, Done, Job, Measured
from pfl_common import methods
from pfl_common.spec.run import Json, Kind
from tests.client.support.runs import Desk, write_arrays

VALIDATED = "validation/combined"


def ignore(samples: int) -> None:
    """Nobody listens to the progress."""


def lay_desk(folder: Path, method: str = "fedavg", **settings: Json) -> Desk:
    """A site with a validation part of its own."""
    desk = Desk(folder, method, **settings)
    more = write_arrays(folder / "more", train=12, seed=5)
    (more / "train.npz").rename(desk.folder.path / "validation.npz")
    return desk


def open_bench(desk: Desk) -> Workbench:
    """A bench with the desk's run."""
    bench = Workbench()
    bench.open(desk.folder, desk.spec.to_json(), desk.init)
    return bench


def do(desk: Desk, job: Job, best: BestSoFar) -> Done:
    """One task in a run that keeps the best."""
    return open_bench(desk).work(replace(job, best=best), ignore)


def measure_again(desk: Desk, file: Path) -> list[float]:
    """What a written model scores on the site's validation part when it is read as a finished model is."""
    served = read_served(file)
    return tasks.score(served.participant, data.load(desk.folder, desk.spec), "pre")[f"pre/{VALIDATED}"]


@pytest.mark.parametrize("method", methods.names())
def test_what_is_written_is_the_very_model_that_was_measured(tmp_path: Path, method: str) -> None:
    """Read back from its file alone it scores the same, for every method, after training and before the next."""
    desk = lay_desk(tmp_path, method, eval_point="post")
    bench, trained = open_bench(desk), desk.job()
    asked = {
        "post": trained,
        "pre": desk.job(Kind.EVALUATE, 2, kept=trained.keep_as, since=1),
    }
    for point, job in asked.items():
        done = bench.work(replace(job, best=BestSoFar(tmp_path / point)), ignore)
        scores = done.scores[f"{point}/{VALIDATED}"]
        assert Measured(1, scores[2], scores[4], 12) == done.best
        assert scores == measure_again(desk, tmp_path / point)


def test_nothing_is_written_of_the_first_model_or_without_a_validation_part(tmp_path: Path) -> None:
    """It is no round's; and what was not measured is not the best."""
    desk, best = lay_desk(tmp_path), BestSoFar(tmp_path / "best")
    assert None is do(desk, desk.job(), best).best
    (desk.folder.path / "validation.npz").unlink()
    assert None is do(desk, desk.job(Kind.EVALUATE, 3), best).best
    assert not best.write_as.exists()


@pytest.mark.parametrize(("accuracy", "is_written"), [(0.0, True), (1.0, False)])
def test_only_a_better_one_is_written(tmp_path: Path, accuracy: float, is_written: bool) -> None:
    """Also where the site only measures, and nothing of training changes by it."""
    desk, so_far = lay_desk(tmp_path), Measured(1, accuracy, 0.5, 12)
    best = BestSoFar(tmp_path / "best", so_far, tmp_path / "before")
    done = do(desk, desk.job(Kind.EVALUATE, 3), best)
    assert (is_written, is_written) == (done.best is not None, best.write_as.exists())
    with_it, without = (do(desk, desk.job(number=2), one) for one in (best, None))  # type: ignore[arg-type]  # none
    assert (with_it.up, with_it.scores) == (without.up, without.scores)


@pytest.mark.parametrize(
    ("one", "other", "first_is_better"),
    [
        ((3, 0.9, 0.9), (1, 0.8, 0.1), True),
        ((3, 0.8, 0.1), (1, 0.8, 0.2), True),
        ((1, 0.8, 0.1), (3, 0.8, 0.1), True),
        ((3, 0.8, 0.1), (3, 0.8, 0.1), False),
        ((3, 0.8, 0.3), (1, 0.8, 0.2), False),
    ],
)
def test_accuracy_then_loss_then_the_earlier_round(
    one: tuple[int, float, float], other: tuple[int, float, float], first_is_better: bool
) -> None:
    """And never itself, so that a task done again changes nothing."""
    assert first_is_better == Measured(*one, samples=12).beats(Measured(*other, samples=12))
    assert Measured(*one, samples=12).beats(Measured(*other, samples=11))


def end(folder: Path, accuracy: float, method: str, **settings: Json) -> tuple[Desk, Path, Path, Done]:
    """A run's end at a site whose best round so far, the first, had this accuracy; the last model and the best."""
    desk = lay_desk(folder, method, **settings)
    first = desk.job()
    do(desk, first, BestSoFar(folder / "none"))
    seen = do(desk, desk.job(Kind.EVALUATE, 2, kept=first.keep_as, since=1), BestSoFar(folder / "seen"))
    assert seen.best is not None
    so_far = replace(seen.best, accuracy=accuracy)
    best = BestSoFar(folder / "best", so_far, folder / "seen")
    last = desk.job(Kind.FINISH, 3, kept=first.keep_as, since=1, serve_as=folder / "serving")
    return desk, folder / "serving", folder / "best", do(desk, last, best)


def test_at_the_end_the_best_lies_beside_the_last(tmp_path: Path) -> None:
    """With its round and score in its own file; where the last is the best, both are one model."""
    _, serving, best, done = end(tmp_path / "a", 1.0, "fedper")
    assert (1, 1.0) == (done.best.round, done.best.accuracy)
    assert read_served(best).best == done.best
    assert None is read_served(serving).best
    kept = load_file(tmp_path / "a" / "seen")
    assert all(torch.equal(value, kept[name]) for name, value in load_file(best).items())
    _, serving, best, done = end(tmp_path / "b", -1.0, "fedper")
    assert 3 == done.best.round
    last = load_file(serving)
    assert all(torch.equal(value, last[name]) for name, value in load_file(best).items())
    with safe_open(best, "pt") as content:
        assert 3 == json.loads(content.metadata()["pfl"])["best"]["round"]


def test_the_best_is_finished_as_the_last_is(tmp_path: Path) -> None:
    """Where a method fits once more at the end, to the round that is kept and with its own draws."""
    _, serving, best, _ = end(tmp_path, 1.0, "fedetf", etf_finetune=True)
    kept, finished = load_file(tmp_path / "seen"), load_file(best)
    assert any(not torch.equal(value, kept[name]) for name, value in finished.items())
    assert load_file(serving).keys() == finished.keys()
