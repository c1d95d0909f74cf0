"""What sites with texts, windows and tables agree on, and how the odd one is told."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pfl_common import methods
from pfl_common.app.config import settle
from pfl_common.errors import DataError, Refused, SettingError
from pfl_common.spec.run import Description, Model, RunSpec
from pfl_server.decisions.input_choice import Wish, explain
from pfl_server.decisions.model_choice import agree, fits, odd_ones
from pfl_server.decisions.site_check import check_site, judge
from pfl_server.decisions.text_choice import LONGEST
from pfl_server.run import specification
from pfl_server.run.memory_estimate import estimate, explain_hunger
from pfl_server.run.rehearsal import rehearse
from pfl_server.settings import ServerSettings

CLASSES = ("bad", "good")
TEXTS = Description(
    (20,), CLASSES, 9, "tokens", values="numbers", numbering="words", words=("cough", "fever")
)
OTHER = replace(TEXTS, shape=(30,), words=("ache", "fever"))
SILENT = replace(TEXTS, numbering="withheld", words=())
HASHED = replace(TEXTS, numbering="hashed", words=(), tokens=50)
NUMBERS = replace(HASHED, numbering="numbers")
WINDOWS = Description((3, 32), CLASSES, 9, "windows", values="numbers", low=-1, high=1)
TABLE = Description((3,), CLASSES, 9, "table", values="numbers", low=-1, high=1)
ARRAY = replace(TABLE, kind="array")
PICTURES = Description((3, 32, 32), CLASSES, 9, high=255)


def told(sites: Mapping[str, Description], wish: Wish = Wish()) -> dict[str, str]:  # noqa: B008  # frozen
    """What is explained of a choice."""
    model = agree(sites, wish)
    return explain(sites, wish, shape=model.shape, features=len(model.mean))


@pytest.mark.parametrize(
    ("sites", "wish", "words", "length"),
    [
        ((TEXTS, OTHER), Wish(), ("ache", "cough", "fever"), 30),
        ((OTHER, TEXTS), Wish(length=7), ("ache", "cough", "fever"), 7),
        ((TEXTS, SILENT), Wish(words=("zero", "fever")), ("zero", "fever"), 20),
        ((TEXTS, replace(TEXTS, shape=(60_000,))), Wish(), ("cough", "fever"), LONGEST),
    ],
    ids=[
        "all words, sorted",
        "in any order",
        "as the operator lists them",
        "one site's length is not everybody's",
    ],
)
def test_one_list_and_one_length(
    sites: tuple[Description, ...], wish: Wish, words: tuple[str, ...], length: int
) -> None:
    """Two numbers more than words: padding and unknown words."""
    model = agree({f"s{n}": one for n, one in enumerate(sites)}, wish)
    assert ("words", words, len(words) + 2, (length,)) == (
        model.numbering,
        model.words,
        model.tokens,
        model.shape,
    )


def test_words_and_length_are_explained() -> None:
    """Where they come from, what becomes of other texts, what chooses others."""
    both = {"a": TEXTS, "b": OTHER}
    words = told(both)
    for fact in ("3 words", "2 sites", "--vocabulary"):
        assert fact in words["words"]
    for fact in ("30 words", "(b)", "padded"):
        assert fact in words["length"]
    assert "standardise" not in words
    named = told(both, Wish(words=("fever",), length=25))
    for fact in ("1 words", "--vocabulary", "unknown"):
        assert fact in named["words"]
    assert "cut" in named["length"]
    assert "b has 60000" in told({"a": TEXTS, "b": replace(TEXTS, shape=(60_000,))})["length"]
    assert "50 numbers" in told({"a": HASHED})["words"]
    assert "nobody has checked" in told({"a": NUMBERS})["words"]


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        ((TEXTS, SILENT), "s1 keeps its words to itself"),
        (
            tuple(replace(TEXTS, words=tuple(f"{n}-{at}" for at in range(60_000))) for n in range(2)),
            "120000 words of",
        ),
    ],
    ids=["kept back", "too many together"],
)
def test_a_list_that_cannot_be_made_keeps_the_run_from_beginning(
    sites: tuple[Description, ...], words: str
) -> None:
    """Nobody is sent away: the operator names a list, and then the same sites can begin."""
    named = {f"s{n}": one for n, one in enumerate(sites)}
    hindrance = judge(named, wanted=2).hindrance
    assert words in hindrance
    assert "expected:" in hindrance
    assert "--vocabulary FILE" in hindrance
    with pytest.raises(DataError, match=re.escape(words)):
        agree(named, Wish())
    assert "" == judge(named, wanted=2, words=("fever",)).hindrance
    assert ("fever",) == agree(named, Wish(words=("fever",))).words


@pytest.mark.parametrize(
    ("odd", "usual", "seen"),
    [
        (HASHED, TEXTS, "odd has texts with words hashed to 50 numbers; expected: texts numbered by a list"),
        (NUMBERS, HASHED, "odd has texts of 50 numbers; expected: texts with words hashed to 50"),
        (replace(HASHED, tokens=51), HASHED, "odd has texts with words hashed to 51 numbers"),
        (
            TABLE,
            PICTURES,
            "odd has a table of 3 columns; expected: pictures of 8 bits, 0..255, as most sites have; "
            "what to do: check --data",
        ),
        (TABLE, TEXTS, 'data.json: {"kind": "tokens"}'),
        (WINDOWS, TABLE, "odd has windows of 3 channels x 32 steps; expected: a table of 3 columns"),
        (replace(ARRAY, shape=(3, 32)), WINDOWS, 'data.json: {"kind": "windows"}'),
        (replace(WINDOWS, shape=(4, 32)), WINDOWS, "odd has windows of 4 channels x 32 steps"),
        (replace(WINDOWS, shape=(3, 64)), WINDOWS, "odd has windows of 3 channels x 64 steps"),
        (replace(TABLE, shape=(4,)), TABLE, "odd has a table of 4 columns; expected: a table of 3 columns"),
        (PICTURES, TEXTS, "odd has pictures of 8 bits"),
        (
            replace(TABLE, columns=("a", "c", "b")),
            replace(TABLE, columns=("a", "b", "c")),
            "odd has the same names in another order of columns: its column 2 is 'c'; expected: 'b'",
        ),
        (
            replace(TABLE, columns=("a", "b", "x\x1b[m")),
            replace(TABLE, columns=("a", "b", "c")),
            "odd has other names of columns: its column 3 is 'x\ufffd[m'; expected: 'c'",
        ),
    ],
)
def test_the_odd_site_is_told(odd: Description, usual: Description, seen: str) -> None:
    """What it has, what most have, what to do."""
    words = odd_ones({"a": usual, "b": usual, "odd": odd})
    assert ["odd"] == list(words)
    assert seen in words["odd"]
    assert "what to do:" in words["odd"]
    with pytest.raises(DataError):
        agree({"a": usual, "b": usual, "odd": odd}, Wish())


def test_what_goes_together() -> None:
    """Texts of any length; lists told and kept back; tables with and without names of columns; a table and numbers."""
    assert {} == odd_ones({"a": TEXTS, "b": OTHER, "c": SILENT})
    assert {} == odd_ones({"a": TABLE, "b": replace(TABLE, columns=("a", "b", "c")), "c": ARRAY})
    assert "table" == agree({"a": ARRAY, "b": TABLE}, Wish()).kind
    assert "array" == agree({"a": ARRAY, "b": ARRAY}, Wish()).kind


@pytest.mark.parametrize(
    ("one", "wish", "option"),
    [
        (TEXTS, Wish(image_size=32), "--image-size"),
        (WINDOWS, Wish(pixel_range="0..9"), "--pixel-range"),
        (TABLE, Wish(image_size=32), "--image-size"),
        (ARRAY, Wish(image_size=32), "--image-size"),
        (PICTURES, Wish(words=("a",)), "--vocabulary"),
        (TABLE, Wish(length=9), "--length"),
    ],
)
def test_what_is_said_of_other_data_is_refused(one: Description, wish: Wish, option: str) -> None:
    """An option that changes nothing would be believed."""
    with pytest.raises(SettingError, match=f"{option} is named, and the sites hold") as error:
        agree({"a": one, "b": one}, wish)
    assert f"leave {option} out" in error.value.advice


@pytest.mark.parametrize(
    ("one", "backbone"), [(TEXTS, "fasttext"), (WINDOWS, "har_cnn"), (TABLE, "mlp"), (PICTURES, "resnet8")]
)
def test_the_network_follows_the_kind(one: Description, backbone: str, tmp_path: Path) -> None:
    """And it is said, where nobody chose it and no picture did."""
    sites = {"a": one, "b": one}
    chosen = specification.freeze(ServerSettings(method="fedavg", state=tmp_path), sites, run="run-1")
    assert backbone == chosen.model.backbone
    words = chosen.chosen.get("backbone", "")
    assert words.startswith(f"{backbone}, for ") if one is not PICTURES else not words
    named = ServerSettings(method="fedavg", state=tmp_path, backbone=backbone)
    assert "backbone" not in specification.freeze(named, sites, run="run-1").chosen


@pytest.mark.parametrize(
    "one, backbone", [(TEXTS, "cnn"), (TEXTS, "mlp"), (WINDOWS, "fasttext"), (TABLE, "har_cnn")]
)
def test_a_network_that_does_not_fit_is_refused(one: Description, backbone: str, tmp_path: Path) -> None:
    """Before anything is trained, naming it and what it was given."""
    settings = ServerSettings(method="fedavg", state=tmp_path, backbone=backbone)
    with pytest.raises(SettingError, match=rf"\b{backbone} got"):
        specification.freeze(settings, {"a": one, "b": one}, run="run-1")


@pytest.mark.parametrize("method", methods.names())
def test_every_method_can_be_rehearsed_on_texts(method: str, tmp_path: Path) -> None:
    """The made-up samples are numbers of words, and the specification names the words."""
    sites = {"a": TEXTS, "b": OTHER}
    spec = specification.freeze(ServerSettings(method=method, state=tmp_path), sites, run="run-1")
    assert ("ache", "cough", "fever") == spec.model.words
    assert spec == RunSpec.from_json(spec.to_json())


def test_a_network_for_texts_is_weighed_without_memory(tmp_path: Path) -> None:
    """A million words of 32 numbers are 128 MB; what to do about it is said."""
    sites = {name: replace(HASHED, tokens=1_000_000) for name in "ab"}
    model = agree(sites, Wish())
    spec = RunSpec("r", "fedavg", {}, model, rounds=1, seed=5, roster=("a", "b"))
    assert 128e6 < estimate(spec).model < 129e6
    assert "--vocabulary FILE" in str(explain_hunger(spec, samples=4))


def test_made_up_texts_use_every_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whole, from 0, none beyond the last word."""
    seen: list[torch.Tensor] = []
    method = methods.load("fedavg")
    learn = method.client.learn
    monkeypatch.setattr(
        method.client,
        "learn",
        lambda self, data, task: (seen.append(data.train.x), learn(self, data, task))[1],
    )
    spec = specification.freeze(
        ServerSettings(method="fedavg", state=tmp_path), {"a": TEXTS, "b": TEXTS}, run="r"
    )
    assert rehearse(method, spec, specification.build_template(spec)) == spec.manifests
    assert all(not x.is_floating_point() for x in seen)
    assert {0, 1, 2, 3} == set(torch.cat(seen).flatten().tolist())


RUN = agree({"a": TEXTS, "b": OTHER}, Wish())


@pytest.mark.parametrize("one", [TEXTS, OTHER, SILENT, replace(TEXTS, shape=(99,), words=("new",))])
def test_a_later_site_with_texts_fits(one: Description) -> None:
    """Of any length, with words the run does not know: they become unknown."""
    fits(one, RUN, "late")


@pytest.mark.parametrize(
    ("one", "model", "seen"),
    [
        (HASHED, RUN, "late has texts with words hashed to 50 numbers, the run numbers words by words (5)"),
        (NUMBERS, agree({"a": replace(NUMBERS, tokens=51)}, Wish()), "the run numbers words by numbers (51)"),
        (replace(TABLE, shape=(30,)), RUN, "late has a table of 30 columns, the run is about texts"),
        (TEXTS, Model("mlp", (20,), CLASSES, values="numbers"), "the run is about plain numbers"),
        (WINDOWS, Model("mlp", (3, 32), CLASSES, values="numbers"), "the run is about plain numbers"),
        (
            replace(TABLE, columns=("a", "b", "c")),
            replace(agree({"a": TABLE}, Wish()), columns=("a", "b", "d")),
            "late has other names of columns: its column 3 is 'c'",
        ),
    ],
)
def test_a_later_site_that_does_not_fit(one: Description, model: Model, seen: str) -> None:
    """In words, as at the run's beginning; a run of an earlier release had no texts and no windows."""
    with pytest.raises(Refused, match=re.escape(seen)):
        fits(one, model, "late")


def test_a_table_fits_a_run_of_an_earlier_release() -> None:
    """It called tables arrays, and treated them alike."""
    fits(TABLE, Model("mlp", (3,), CLASSES, values="numbers"), "late")


def test_an_operators_list_needs_words() -> None:
    """A site that hashes them is told at its first call, not when all have come."""
    with pytest.raises(
        Refused, match="late has texts of 50 numbers, and --vocabulary names a list of 1 words"
    ):
        check_site("late", NUMBERS, classes=(), words=("fever",))
    check_site("late", SILENT, classes=(), words=("fever",))
    check_site("late", HASHED, classes=(), words=())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('["fever", "cough"]', ("fever", "cough")),
        ("fever\ncough\n\n", ("fever", "cough")),
        ('["<pad>", "<unk>", "fever", "cough"]', ("fever", "cough")),
        ("e\u0301tat\n", ("\u00e9tat",)),
    ],
    ids=["JSON", "lines", "with marks", "one spelling of accents"],
)
def test_the_operators_list(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    """In a file."""
    (tmp_path / "words").write_text(text)
    assert words == settle(ServerSettings, {"vocabulary": str(tmp_path / "words")}, what="test").vocabulary
    assert words == settle(ServerSettings, {"vocabulary": list(words)}, what="test").vocabulary


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ('["fever", "fever"]', "'fever' twice"),
        ('["fever", 3]', "something else than words"),
        ('["fever", "<unk>"]', "'<unk>' among its words"),
        (json.dumps(["w" * 65]), "a word of 65 letters"),
        (json.dumps([str(n) for n in range(100_001)]), "100001 words"),
        ('["fever"', "a file that is there"),
    ],
)
def test_a_list_that_is_none_is_refused(tmp_path: Path, text: str, seen: str) -> None:
    """Before anything starts."""
    (tmp_path / "words").write_text(text)
    with pytest.raises(SettingError, match=re.escape(seen)):
        settle(ServerSettings, {"vocabulary": str(tmp_path / "words")}, what="test")
    with pytest.raises(SettingError, match="a file that is there"):
        settle(ServerSettings, {"vocabulary": str(tmp_path / "nowhere")}, what="test")
