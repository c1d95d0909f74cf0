"""Texts from files of rows: words are hashed unless the site tells the frequent ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pfl_client import data
from pfl_client.data.texts import HASHED, TextEncoder
from pfl_client.data.vocabulary import hash_word
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from pfl_common.spec.run import PADDING, UNKNOWN, Model, RunSpec
from pfl_server.decisions.input_choice import Wish
from pfl_server.decisions.model_choice import agree
from tests.client.data.test_images import spec
from tests.client.data.written import write_rows

TEXTS = [
    *[{"text": f"Fever, and a COUGH ({number})!", "label": "ill"} for number in range(6)],
    *[{"text": "no fever", "label": "well"} for _ in range(6)],
]


def site(folder: Path, said: object = None, *, name: str = "csv") -> DataFolder:
    write_rows(folder / f"train.{name}", TEXTS)
    write_rows(folder / f"test.{name}", TEXTS[4:8])
    if said is not None:
        (folder / "data.json").write_text(json.dumps(said))
    return DataFolder(folder, folder.name)


def agreed(*folders: DataFolder, wish: Wish = Wish()) -> RunSpec:  # noqa: B008  # frozen
    return replace(spec(), model=agree({one.site: data.describe(one) for one in folders}, wish))


def test_words_are_hashed_and_none_is_told(tmp_path: Path) -> None:
    """Unless the site says otherwise."""
    with capture_logs() as lines:
        said = data.describe(site(tmp_path / "a"))
    assert ("tokens", "hashed", HASHED, ()) == (said.kind, said.numbering, said.tokens, said.words)
    assert (5,) == said.shape
    assert any("no word, only that" in str(line.get("told_of_words")) for line in lines)


def test_frequent_words_are_told_if_the_site_says_so(tmp_path: Path) -> None:
    """Those of enough texts, not of one patient alone; a number of this text or that is not."""
    told = data.describe(site(tmp_path / "a", {"tell_vocabulary": True, "fewest": 6}))
    assert ("words", ("a", "and", "cough", "fever", "no")) == (told.numbering, told.words)
    quiet = data.describe(site(tmp_path / "b", {"tell_vocabulary": False}))
    assert ("withheld", ()) == (quiet.numbering, quiet.words)
    with pytest.raises(DataError, match="no word occurs in 50 training texts"):
        data.describe(site(tmp_path / "c", {"tell_vocabulary": True, "fewest": 50}))


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet"])
def test_texts_become_the_runs_numbers(tmp_path: Path, name: str) -> None:
    """From every format; what the run's list lacks is unknown, and said."""
    listed = site(tmp_path / "a", {"tell_vocabulary": True, "fewest": 6}, name=name)
    run = agreed(listed)
    with capture_logs() as lines:
        local = data.load(listed, run)
    known = ("", "?", *run.model.words)
    assert ["fever", "and", "a", "cough", "?"] == [known[number] for number in local.train.x[0].tolist()]
    assert [run.model.classes.index("ill")] * 2 == local.test.y[:2].tolist()
    assert any("become unknown" in line["event"] for line in lines)


def test_hashes_are_those_of_every_site() -> None:
    """A longer text is cut, a shorter one padded."""
    model = Model("fasttext", (2,), ("a", "b"), kind="tokens", tokens=50, numbering="hashed")
    encoder = TextEncoder(model)
    fever, cough = (hash_word(word, 50) for word in ("fever", "cough"))
    assert [[fever, cough], [fever, PADDING]] == encoder.encode(["Fever cough rest", "FEVER"]).tolist()
    listed = TextEncoder(replace(model, numbering="words", words=("cough",), tokens=3))
    assert [[UNKNOWN, 2]] == listed.encode(["fever cough"]).tolist()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"vocabulary": 900}, "says 900 for 'vocabulary', and the folder has texts"),
        ({"vocabulary": {"hashed": 90}, "tell_vocabulary": True}, "of words that are hashed"),
        ({"kind": "tokens", "fewest": 3}, "'fewest' of what is not told by name"),
        ({"kind": "windows", "window": 9}, "says 'windows' for 'kind'"),
    ],
)
def test_what_data_json_says_of_other_texts_is_refused(tmp_path: Path, said: object, words: str) -> None:
    """In words."""
    with pytest.raises(DataError, match=words):
        data.describe(site(tmp_path / "a", said))


def test_texts_and_a_run_of_other_data(tmp_path: Path) -> None:
    """Do not go together."""
    with pytest.raises(DataError, match="a has texts, the run is about other data"):
        data.load(site(tmp_path / "a"), spec())
