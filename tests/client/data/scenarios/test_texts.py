"""Texts: a site's own numbers of words become the run's, of one length; what is told of words, and what is not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from structlog.testing import capture_logs

from pfl_client import data
from pfl_client.data.vocabulary import hash_word
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from pfl_common.spec.run import Model, RunSpec
from pfl_server.decisions.input_choice import Wish
from pfl_server.decisions.model_choice import agree
from tests.client.data.test_images import spec
from tests.client.data.written import write_texts

HERE = ["the", "bad", "good", "fever"]
THERE = ["good", "cough", "bad"]


def site(folder: Path) -> DataFolder:
    return DataFolder(folder, folder.name)


def agreed(*folders: DataFolder, wish: Wish = Wish()) -> RunSpec:  # noqa: B008  # frozen
    """The run that these sites agree on."""
    return replace(spec(), model=agree({one.site: data.describe(one) for one in folders}, wish))


def spelled(x: torch.Tensor, words: tuple[str, ...]) -> list[list[str]]:
    """Texts as words."""
    known = ("", "?", *words)
    return [[known[number] for number in row] for row in x.tolist()]


def test_each_sites_numbers_become_the_runs(tmp_path: Path) -> None:
    """Texts say the same words as before, by one list: all words of both sites, sorted."""
    folders = [site(write_texts(tmp_path / "a", HERE)), site(write_texts(tmp_path / "b", THERE, seed=1))]
    run = agreed(*folders)
    assert ("bad", "cough", "fever", "good", "the") == run.model.words
    assert ("tokens", "words", 7, (6,), "fasttext") == (
        run.model.kind,
        run.model.numbering,
        run.model.tokens,
        run.model.shape,
        run.model.backbone,
    )
    for folder, own in zip(folders, (HERE, THERE), strict=True):
        stored = torch.from_numpy(np.load(folder.path / "train.npz")["x"])
        read = data.load(folder, run).train
        assert spelled(stored, tuple(own)) == spelled(read.x, run.model.words)
        assert not read.x.is_floating_point()
        assert torch.equal(read.take(torch.tensor([3, 1]))[0], read.x[[3, 1]])


def test_shorter_texts_are_padded_and_longer_ones_cut(tmp_path: Path) -> None:
    """To the longest of all sites, or to what the operator says; what is cut is said."""
    folders = [site(write_texts(tmp_path / "a", HERE)), site(write_texts(tmp_path / "b", THERE, length=9))]
    long = data.load(folders[0], agreed(*folders)).train.x
    assert (24, 9) == tuple(long.shape)
    assert not bool(long[:, 6:].any())
    with capture_logs() as lines:
        short = data.load(folders[0], agreed(*folders, wish=Wish(length=4))).train.x
    assert torch.equal(long[:, :4], short)
    cut = [line for line in lines if "cut" in line["event"]]
    assert [("train", 24, 4), ("test", 12, 4)] == [(one["part"], one["texts"], one["words"]) for one in cut]


def test_the_same_words_in_train_npz(tmp_path: Path) -> None:
    """An array of strings beside x and y; both at once are refused."""
    folder = site(write_texts(tmp_path / "a", HERE))
    with np.load(folder.path / "train.npz") as arrays:
        np.savez(folder.path / "train.npz", x=arrays["x"], y=arrays["y"], vocabulary=np.array(HERE))
    with pytest.raises(DataError, match=r"train\.npz has a list of words too"):
        data.describe(folder)
    (folder.path / "vocabulary.json").unlink()
    assert tuple(HERE) == data.describe(folder).words


def test_the_words_are_part_of_the_data(tmp_path: Path) -> None:
    """Another list makes another run."""
    folder = site(write_texts(tmp_path / "a", HERE))
    before = data.describe(folder).data
    (folder.path / "vocabulary.json").write_text(json.dumps(["a", *HERE[1:]]))
    assert before != data.describe(folder).data


def test_marks_in_the_first_two_places_are_no_words(tmp_path: Path) -> None:
    """Such a list counts from 0; anywhere else they are a mistake that would shift every word."""
    folder = site(write_texts(tmp_path / "a", HERE))
    words = folder.path / "vocabulary.json"
    words.write_text(json.dumps(["<PAD>", "<unk>", *HERE]))
    assert tuple(HERE) == data.describe(folder).words
    words.write_text(json.dumps(["<unk>", "<pad>", *HERE]))
    with pytest.raises(DataError, match="'<unk>' among its words"):
        data.describe(folder)


def test_words_are_kept_back_where_the_site_says_so(tmp_path: Path) -> None:
    """Nothing of them is said; the operator's list numbers them, and what it lacks is unknown."""
    said = {"kind": "tokens", "tell_vocabulary": False}
    folder = site(write_texts(tmp_path / "a", HERE, said=said))
    with capture_logs() as lines:
        told = data.describe(folder)
    assert ("withheld", (), 0) == (told.numbering, told.words, told.tokens)
    assert "no word of the vocabulary" in next(
        line["told_of_words"] for line in lines if "told_of_words" in line
    )
    with pytest.raises(DataError, match=r"keeps its words to itself.*--vocabulary"):
        agreed(folder)
    with capture_logs() as lines:
        read = data.load(folder, agreed(folder, wish=Wish(words=("good", "bad")))).train.x
    assert {0, 1, 2, 3} == set(read.flatten().tolist())
    lost = [line for line in lines if "become unknown" in line["event"]]
    assert {"train", "test"} == {line["part"] for line in lost}


def test_what_is_told_is_said_at_the_site(tmp_path: Path) -> None:
    """How many words leave, and how none would."""
    with capture_logs() as lines:
        data.describe(site(write_texts(tmp_path / "a", HERE)))
    words = next(line["told_of_words"] for line in lines if "told_of_words" in line)
    assert words.startswith("all 4 words of the vocabulary")
    assert "tell_vocabulary" in words


def test_hashed_words_need_no_list(tmp_path: Path) -> None:
    """Equal words get equal numbers at all sites, and nothing but how many numbers there are is told."""
    said = {"vocabulary": {"hashed": 1000}}
    folders = [
        site(write_texts(tmp_path / "a", HERE, said=said)),
        site(write_texts(tmp_path / "b", THERE, said=said)),
    ]
    told = data.describe(folders[0])
    assert ("hashed", (), 1000) == (told.numbering, told.words, told.tokens)
    run = agreed(*folders)
    assert ("hashed", 1000, ()) == (run.model.numbering, run.model.tokens, run.model.words)
    first = [data.load(folder, run).train.x[0, 0] for folder in folders]
    assert first == [hash_word("bad", 1000)] * 2
    read = data.load(folders[0], run).train.x
    assert int(read.max()) < 1000
    assert bool((read[:, -1] == 0).all())
    everything = {hash_word(str(n), 7) for n in range(100)}
    assert {2, 3, 4, 5, 6} == everything


def test_numbers_alone_are_taken_as_they_are(tmp_path: Path) -> None:
    """If all sites have as many."""
    folder = site(write_texts(tmp_path / "a", HERE, said={"vocabulary": 50}))
    with pytest.raises(DataError, match=r"50 for 'vocabulary'.* 4 words"):
        data.describe(folder)
    (folder.path / "vocabulary.json").unlink()
    run = agreed(folder)
    stored = np.load(folder.path / "train.npz")["x"].tolist()
    assert stored == data.load(folder, run).train.x.tolist()
    other = replace(run, model=replace(run.model, tokens=51))
    with pytest.raises(DataError, match=r"\(50\).* run .*\(51\)"):
        data.load(folder, other)


@pytest.mark.parametrize(
    ("said", "words", "seen"),
    [
        (None, None, "whole numbers"),
        ({"kind": "tokens"}, None, "nothing says of which"),
        ({"kind": "tokens", "vocabulary": {"hashed": 9}}, None, "has no list of words"),
        ({"kind": "tokens", "vocabulary": 4}, None, "has the number 5, data.json has 4 numbers"),
        ({"kind": "tokens"}, HERE[:3], "has the number 5, the vocabulary has 5 numbers"),
        ({"kind": "tokens"}, [*HERE, "the"], "'the' twice"),
        ({"kind": "tokens"}, [*HERE, 3], "something else than words"),
        ({"kind": "tokens"}, {"the": 2}, "no list of words"),
        ({"kind": "tokens"}, [], "no list of words"),
        ({"kind": "table"}, HERE, "says 'table' for 'kind', and the folder has a list of words"),
        ({"kind": "tokens", "layout": "channels_last"}, HERE, "says 'layout' of data of the kind 'tokens'"),
        ({"kind": "tokens", "range": [0, 9]}, HERE, "says 'range' of data of the kind 'tokens'"),
        ({"kind": "image", "vocabulary": 9}, None, "says 'vocabulary' of data of the kind 'image'"),
        ({"vocabulary": 2}, None, "says 2 for 'vocabulary'"),
        ({"vocabulary": True}, None, "says true for 'vocabulary'"),
        ({"vocabulary": {"hash": 9}}, HERE, "for 'vocabulary'"),
        ({"vocabulary": {"hashed": 10**7}}, HERE, "for 'vocabulary'"),
        ({"tell_vocabulary": "no"}, HERE, "says \"no\" for 'tell_vocabulary'"),
        (
            {"vocabulary": {"hashed": 9}, "tell_vocabulary": False},
            HERE,
            "'tell_vocabulary' of words that are hashed",
        ),
    ],
)
def test_what_is_wrong_with_texts_is_said(tmp_path: Path, said: object, words: object, seen: str) -> None:
    """Contradictions are refused, never settled in silence."""
    folder = site(write_texts(tmp_path / "a", HERE, said=said))
    listed = folder.path / "vocabulary.json"
    listed.unlink() if words is None else listed.write_text(json.dumps(words))
    with pytest.raises(DataError) as error:
        data.describe(folder)
    assert seen in str(error.value)
    assert error.value.expected
    assert error.value.advice


@pytest.mark.parametrize(
    ("x", "seen"),
    [
        (np.full((4, 6), -1), "numbers from -1 to -1"),
        (np.full((4, 6), 2**40), "numbers from"),
        (np.ones((4, 6)), "is float64(4, 6), and the data are tokens"),
        (np.ones((4, 6, 2), int), "is int64(4, 6, 2), and the data are tokens"),
        (np.ones((4, 0), int), "is int64(4, 0), and the data are tokens"),
    ],
)
def test_arrays_that_are_no_texts(tmp_path: Path, x: np.ndarray, seen: str) -> None:
    """Negative numbers, fractions and other shapes are named."""
    folder = site(write_texts(tmp_path / "a", HERE))
    np.savez(folder.path / "train.npz", x=x, y=np.arange(4) % 2)
    with pytest.raises(DataError, match=r"x of train\.npz") as error:
        data.describe(folder)
    assert seen in str(error.value)


def test_a_list_that_is_too_long_is_told_at_home(tmp_path: Path) -> None:
    """Before anybody is asked, with what to do instead."""
    folder = site(write_texts(tmp_path / "a", HERE))
    (folder.path / "vocabulary.json").write_text(json.dumps([*HERE, *(f"{n:060}" for n in range(20_000))]))
    with pytest.raises(DataError, match="20004 words of") as error:
        data.describe(folder)
    assert "hashed" in error.value.expected


def test_parts_held_back_counts_and_doctors_words(tmp_path: Path) -> None:
    """What works on pictures works on texts: holding back, counting, looking a folder through."""
    folder = replace(site(write_texts(tmp_path / "a", HERE)), hold_out=0.25)
    local = data.load(folder, agreed(folder))
    assert (18, 6, 12) == (len(local.train), len(local.validation), len(local.test))
    run = agreed(folder)
    assert ("bad", "good") == run.model.classes
    assert [9, 9] == local.counts.tolist()
    found = data.look_through(folder.path)
    for fact in ("texts of 6 words", "list of 4 words", "is told"):
        assert fact in found.recognised


def test_a_run_about_something_else_is_refused(tmp_path: Path) -> None:
    """Also one of an earlier release, which had no texts."""
    folder = site(write_texts(tmp_path / "a", HERE))
    table = Model("mlp", (6,), ("bad", "good"), values="numbers")
    for model in (table, replace(table, kind="table")):
        with pytest.raises(DataError, match="'tokens'"):
            data.load(folder, replace(spec(), model=model))
