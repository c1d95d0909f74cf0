"""`data.json` word by word: what it implies, and what does not go together."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pfl_client.data.declaration import Declared, Hashed, read_declared
from pfl_common.errors import DataError


def declare(folder: Path, **said: object) -> Declared:
    """What a file with these words declares."""
    (folder / "data.json").write_text(json.dumps(said))
    return read_declared(folder)


def test_without_a_file_nothing_is_declared(tmp_path: Path) -> None:
    """The program recognises everything itself."""
    assert Declared() == read_declared(tmp_path)


def test_a_word_of_one_kind_names_the_kind(tmp_path: Path) -> None:
    """A layout that only windows have, columns, a vocabulary; a range leaves it open."""
    assert Declared("windows", layout="time_channels") == declare(tmp_path, layout="time_channels")
    assert Declared("table", columns=("age",)) == declare(tmp_path, columns=["age"])
    assert Declared("tokens", tell_vocabulary=False) == declare(tmp_path, tell_vocabulary=False)
    assert Declared(None, range=(0.0, 1.0)) == declare(tmp_path, range=[0, 1])
    assert Declared(None, layout="channels_last") == declare(tmp_path, layout="channels_last")


def test_pictures_have_groups_and_a_window(tmp_path: Path) -> None:
    """Of a table neither is said."""
    said = declare(tmp_path, groups="folder", dicom_window=[40, 400])
    assert Declared(None, groups="folder", dicom_window=(40, 400)) == said
    with pytest.raises(DataError, match="says 'dicom_window' of data of the kind 'windows'"):
        declare(tmp_path, kind="windows", dicom_window=[40, 400])


def test_words_are_counted_or_hashed(tmp_path: Path) -> None:
    """Three numbers at least: padding, unknown, one word."""
    assert 3 == declare(tmp_path, vocabulary=3).vocabulary
    assert Hashed(500) == declare(tmp_path, vocabulary={"hashed": 500}).vocabulary


def test_what_is_said_of_rows_and_recordings(tmp_path: Path) -> None:
    """Each word with its value; a word of one kind names the kind."""
    said = declare(
        tmp_path, leave_out=["name"], categorical=["ward"], tell_categories={"hashed": 64}, patient="id"
    )
    expected = Declared("table", leave_out=("name",), categorical=("ward",), patient="id")
    assert replace(expected, tell_categories=Hashed(64)) == said
    quiet = declare(tmp_path, tell_counts=False, tell_categories=False)
    assert not quiet.tell_counts
    assert quiet.tell_categories is False
    assert Declared("windows", window=128, step=64, time="s") == declare(
        tmp_path, window=128, step=64, time="s"
    )
    assert (5, 9) == (Declared().fewest_told, declare(tmp_path, kind="table", fewest=9).fewest_told)


def test_what_would_not_be_read_is_refused(tmp_path: Path) -> None:
    """A word that means nothing of the folder's data."""
    said = declare(tmp_path, step=9)
    said.check_read(words=("label",), what="recordings")
    with pytest.raises(DataError, match="says 'step', and the folder holds arrays"):
        said.check_read(words=("label", "step"), what="arrays")


@pytest.mark.parametrize(
    "said",
    [
        {"label": ""},
        {"patient": 3},
        {"leave_out": "name"},
        {"categorical": [1]},
        {"tell_categories": {"hashed": 1}},
        {"tell_categories": 5},
        {"tell_counts": 0},
        {"fewest": 1},
        {"window": 1},
        {"step": 0.5},
        {"time": []},
        {"range": [1, 1]},
        {"range": [2, 1]},
        {"range": [0, True]},
        {"range": [0, 1, 2]},
        {"range": [0, float("inf")]},
        {"range": "0..1"},
        {"vocabulary": 2},
        {"vocabulary": True},
        {"vocabulary": {"hashed": 9, "more": 1}},
        {"tell_vocabulary": 1},
        {"columns": []},
        {"columns": ["age", ""]},
        {"columns": ["age", "age"]},
        {"kind": "picture"},
        {"groups": "ward"},
        {"dicom_window": [40]},
        {"dicom_window": [40, 0]},
        {"dicom_window": [40, True]},
        {"layout": ["channels_last"]},
    ],
)
def test_a_value_that_is_none(tmp_path: Path, said: dict[str, object]) -> None:
    """The error names the word it is about."""
    (name,) = said
    with pytest.raises(DataError, match="column" if name == "columns" else f"for '{name}'"):
        declare(tmp_path, **said)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"kind": "table", "range": [0, 1]}, "says 'range' of data of the kind 'table'"),
        ({"kind": "windows", "layout": "channels_last"}, "'channels_last' for 'layout' of windows"),
        ({"kind": "image", "layout": "time_channels"}, "'time_channels' for 'layout' of image"),
        ({"vocabulary": 9, "columns": ["age"]}, "says 'columns' of data of the kind 'tokens'"),
        ({"layot": "channels_last"}, "says 'layot'"),
        ({"window": 9, "label": "x"}, "says 'label' of data of the kind 'windows'"),
        ({"kind": "table", "tell_categories": False, "fewest": 9}, "'fewest' of what is not told by name"),
    ],
)
def test_words_that_do_not_go_together(tmp_path: Path, said: dict[str, object], words: str) -> None:
    """A word of another kind, the axes of another kind, a word that nobody knows."""
    with pytest.raises(DataError, match=words):
        declare(tmp_path, **said)


def test_a_misspelt_word_is_answered_with_the_nearest(tmp_path: Path) -> None:
    """So that its author need not look it up."""
    with pytest.raises(DataError) as refused:
        declare(tmp_path, layot="channels_last")
    assert "layout" in refused.value.expected


@pytest.mark.parametrize(
    ("text", "words"), [(b"{", "cannot be read"), (b"\xff", "cannot be read"), (b"[]", "is no object")]
)
def test_a_file_that_is_no_object(tmp_path: Path, text: bytes, words: str) -> None:
    """Half a file, no text, a list."""
    (tmp_path / "data.json").write_bytes(text)
    with pytest.raises(DataError, match=words):
        read_declared(tmp_path)
