"""A site's predictions are those that its own evaluation scored, for every method."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pfl_client import data
from pfl_client.prediction import Predictor, Unread
from pfl_client.trainer import tasks
from pfl_common import methods
from pfl_common.errors import DataError, SettingError
from pfl_common.learning.method import Participant
from tests.client.prediction.served import finish_site


@pytest.mark.parametrize("method", methods.names())
def test_predictions_are_those_the_site_scored(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each head's scores of each sample to the bit, and the scores told at the end."""
    own: list[Participant] = []
    real = tasks.finish

    def recorded(participant: Participant, *rest: object) -> tasks.Outcome:
        own.append(participant)
        return real(participant, *rest)

    monkeypatch.setattr(tasks, "finish", recorded)
    desk, model, done = finish_site(tmp_path, method)
    predictor = Predictor.load(model)
    local = data.load(desk.folder, predictor.served.spec)
    [scores] = list(predictor.score(local.test))
    own[0].eval()
    with torch.no_grad():
        expected = own[0].views(local.test.take(torch.arange(len(local.test)))[0])
    assert {"combined", *predictor.heads} == scores.keys() == expected.keys()
    for name, values in scores.items():
        assert torch.equal(values, expected[name]), name
    told = done.scores.get("pre/test/finished", done.scores["pre/test/combined"])
    right = int((scores["combined"].argmax(1) == local.test.y).sum())
    assert [right, len(local.test)] == told[:2]

    answers = list(predictor.predict(desk.folder.path / "test.npz"))
    labels = [predictor.classes[place] for place in scores["combined"].argmax(1).tolist()]
    assert labels == [answer.label for answer in answers]
    assert list(range(1, 9)) == [answer.row for answer in answers]
    assert all(set(predictor.heads) == answer.heads.keys() for answer in answers)


def test_pictures_in_folders_one_after_the_other(tmp_path: Path) -> None:
    """Grey and colour, large and small; hidden files are none; shares add up to one."""
    _, model, _ = finish_site(tmp_path)
    folder = tmp_path / "new"
    (folder / "deep").mkdir(parents=True)
    Image.new("RGB", (40, 30), "red").save(folder / "b.png")
    Image.new("L", (6, 6), 99).save(folder / "deep" / "a.png")
    (folder / ".hidden").write_text("no picture")
    answers = list(Predictor.load(model).predict(folder))
    assert [folder / "b.png", folder / "deep" / "a.png"] == [answer.file for answer in answers]
    for answer in answers:
        assert answer.row is None
        assert sum(answer.probabilities.values()) == pytest.approx(1)
        assert answer.label == max(answer.probabilities, key=lambda name: answer.probabilities[name])


def test_a_picture_as_file_and_in_an_array_is_answered_alike(tmp_path: Path) -> None:
    """One way of preparing for both."""
    _, model, _ = finish_site(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 255, (3, 17, 13), dtype=np.uint8)
    for place, picture in enumerate(pixels):
        Image.fromarray(picture).save(tmp_path / f"{place}.png")
    np.savez(tmp_path / "all.npz", x=pixels)
    predictor = Predictor.load(model)
    files = predictor.predict([tmp_path / f"{place}.png" for place in range(3)])
    arrays = predictor.predict(tmp_path / "all.npz")
    assert [a.probabilities for a in files] == [a.probabilities for a in arrays]


def test_what_cannot_be_read_is_an_error_or_handed_over(tmp_path: Path) -> None:
    """The words name the file by its place; its name is for a terminal. The others go on."""
    _, model, _ = finish_site(tmp_path)
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "Jane_Doe.png").write_bytes(b"no picture")
    Image.new("L", (6, 6)).save(folder / "z.png")
    predictor = Predictor.load(model)
    with pytest.raises(DataError) as error:
        list(predictor.predict(folder))
    assert "Jane" not in str(error.value)
    assert "file 1" in str(error.value)
    assert str(folder / "Jane_Doe.png") == error.value.file
    bad: list[Unread] = []
    assert [folder / "z.png"] == [answer.file for answer in predictor.predict(folder, unread=bad.append)]
    assert [(folder / "Jane_Doe.png", 1, "its format is not known")] == [
        (u.file, u.place, u.why) for u in bad
    ]
    with pytest.raises(SettingError, match="there is no file or folder"):
        next(predictor.predict(tmp_path / "nowhere"))


def test_predicting_does_not_wait_for_the_last_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers come batch by batch: what lies behind is not read yet."""
    _, model, _ = finish_site(tmp_path)
    monkeypatch.setattr("pfl_client.prediction.predictor.EVALUATION_BATCH", 2)
    files = []
    for place in range(6):
        files.append(tmp_path / f"{place}.png")
        Image.new("L", (6, 6), place).save(files[-1])
    answers = Predictor.load(model).predict(files)
    list(itertools.islice(answers, 2))
    files[4].write_bytes(b"broken by now")
    with pytest.raises(DataError, match="file 5"):
        list(answers)


def test_a_method_that_draws_answers_twice_the_same(tmp_path: Path) -> None:
    """FedCP with noise in its policy; what the caller draws is left alone."""
    desk, model, _ = finish_site(tmp_path, "fedcp", policy="gumbel")
    predictor = Predictor.load(model)
    before = torch.get_rng_state()
    first, second = (list(predictor.predict(desk.folder.path / "test.npz")) for _ in range(2))
    assert first == second
    assert torch.equal(before, torch.get_rng_state())
