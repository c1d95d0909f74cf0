"""No word that can be typed gets past the settings: every field of every class, whatever is written into it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pfl_client.settings import ClientSettings
from pfl_common import methods
from pfl_common.app.config import Why, dump, field_of, is_number, settle, span
from pfl_common.errors import SettingError
from pfl_common.learning.method import Settings
from pfl_server.settings import ServerSettings

KINDS: list[type[Any]] = [ServerSettings, ClientSettings, Settings] + [
    methods.load(name).config for name in methods.names()
]
NUMBERS = [
    (kind, field.name) for kind in KINDS for field in fields(kind) if is_number(field_of(kind, field.name))
]
USELESS = (
    float("nan"),
    float("inf"),
    -float("inf"),
    "nan",
    "inf",
    "-Infinity",
    "many",
    "",
    [],
    {},
    [1],
    None,
    True,
    10**400,
    1e308,
    -1e308,
    "9" * 5000,
    "1e999",
    "0x10",
    "12 apples",
)
"""Nothing of this is a number that a setting takes."""
LIBRARY = re.compile(r"Input|Field required|[Tt]uple|dictionary|[Vv]alid|class '")
"""Words of the library that looks at settings, which nobody who types one knows."""
BESIDE: dict[tuple[str, str], dict[str, Any]] = {
    ("fedphp", "rho"): {"variant": "original"},
    ("fedphp", "temperature"): {"variant": "original"},
    ("spherefed", "gamma"): {"calibrate": True},
    ("spherefed", "scale"): {"loss": "ce"},
}
"""What has to be set too where a method refuses a number that would change nothing, by method and setting."""


def bounds(kind: type[Any], name: str) -> dict[str, float]:
    """The bounds a field declares, by pydantic's names."""
    metadata = field_of(kind, name).metadata
    return {b: getattr(m, b) for m in metadata for b in ("ge", "gt", "le", "lt") if hasattr(m, b)}


def refuse(kind: type[Any], name: str, value: object) -> str:
    """The words with which a value is refused; they name the setting as its user does."""
    with pytest.raises(SettingError) as caught:
        settle(kind, {name.removesuffix("_"): value}, what="toy")
    assert f"setting '{name.removesuffix('_')}" in str(caught.value)
    assert "expected:" in str(caught.value)
    assert len(str(caught.value)) < 400, "the value is shown in few letters"
    return str(caught.value)


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
def test_every_number_has_two_ends(kind: type[Any], name: str) -> None:
    """What has no end lets 10 to the 300 through."""
    found = bounds(kind, name)
    assert found.keys() & {"ge", "gt"}, f"{kind.__name__}.{name} has no lower end"
    assert found.keys() & {"le", "lt"}, f"{kind.__name__}.{name} has no upper end"
    default = next(field.default for field in fields(kind) if field.name == name)
    assert default == getattr(settle(kind, {name.removesuffix("_"): default}, what="toy"), name)


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
def test_just_outside_is_refused_and_the_end_itself_is_taken(kind: type[Any], name: str) -> None:
    """The words say the whole range."""
    words = span(field_of(kind, name))
    whole = "whole" in words
    for bound, end in bounds(kind, name).items():
        down = bound in ("ge", "gt")
        beyond = end + (-1 if down else 1) if whole else math.nextafter(end, -math.inf if down else math.inf)
        assert words in refuse(kind, name, end if bound in ("gt", "lt") else beyond)
        assert words in refuse(kind, name, beyond)
        if bound in ("ge", "le"):
            beside = BESIDE.get((kind.__module__.rpartition(".")[2], name), {})
            assert end == getattr(settle(kind, {**beside, name.removesuffix("_"): end}, what="toy"), name)


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
def test_what_is_no_number_is_refused(kind: type[Any], name: str) -> None:
    """Also what Python takes for one: True, not a number, the infinite ones."""
    optional = type(None) in get_args(field_of(kind, name).annotation)
    for value in USELESS:
        if not (optional and value is None):
            refuse(kind, name, value)


@given(
    value=st.one_of(
        st.text(max_size=20),
        st.floats(),
        st.integers(),
        st.booleans(),
        st.none(),
        st.lists(st.integers(), max_size=3),
    )
)
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_typed_is_a_setting_or_an_error_in_words(kind: type[Any], value: object) -> None:
    """No other exception comes out, and no number that is not finite comes through."""
    for field in fields(kind):
        try:
            settings = settle(kind, {field.name.removesuffix("_"): value}, what="toy")
        except SettingError as error:
            # As a file says it, or, where two options do not go together, as they are typed.
            assert field.name.removesuffix("_") in str(error).replace("-", "_")
            assert not LIBRARY.search(error.expected), "told in the words of the library that looks at it"
        else:
            taken = getattr(settings, field.name)
            assert not isinstance(taken, float) or math.isfinite(taken)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_expected_is_said_in_words_of_our_own(kind: type[Any]) -> None:
    """Of every setting, whatever kind of value is wrong with it."""
    for field in fields(kind):
        for value in ("", "x", "0,1,2,3,4,5", "1,x", True, 1.5, None, [], [None] * 4, {}, {"a": 1}):
            try:
                settle(kind, {field.name.removesuffix("_"): value}, what="toy")
            except SettingError as error:
                assert not LIBRARY.search(error.expected), (field.name, value, error.expected)


@pytest.mark.parametrize("name", methods.names())
def test_presets_lie_within_the_bounds(name: str) -> None:
    """What a paper used can be used."""
    method = methods.load(name)
    for values in method.presets.values():
        assert values.items() <= dump(method.settle(values)).items()


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("dualfed", {"lambda": 0, "tau": 0.05, "proj_hidden": 64, "epochs": 20, "batch": 256}),
        ("fedcac", {"tau": 0.4, "beta": 170, "momentum": 0.9, "lr": 0.1, "batch": 100, "epochs": 5}),
        ("fedproto", {"lambda": 0.1}),
        ("fedavg", {"lr": 0.005, "batch": 10, "weight_decay": 5e-4}),
    ],
)
def test_what_the_papers_set_is_taken(method: str, values: dict[str, float]) -> None:
    """Their tables' smallest and largest values."""
    assert values.items() <= dump(methods.load(method).settle(values)).items()


def test_reasons_are_told() -> None:
    """A bound that is not plain by itself says why it is there."""
    assert "with 1 no site ever reports" in refuse(ServerSettings, "drop", 1)
    assert any(isinstance(m, Why) for m in field_of(Settings, "lr").metadata)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("50%", "write 0.5"), ("0,5", "write 0.5"), (" 25 % ", "write 0.25")],
)
def test_the_nearest_right_form_of_a_share(typed: str, meant: str) -> None:
    """As one writes shares elsewhere."""
    assert meant in refuse(ServerSettings, "quorum", typed)


@pytest.mark.parametrize(("typed", "meant"), [("1e3", "write 1000"), ("1e9", ""), ("12.5", ""), ("1,5", "")])
def test_the_nearest_right_form_of_a_whole_number(typed: str, meant: str) -> None:
    """Only what would be taken is proposed."""
    words = refuse(Settings, "batch", typed)
    assert meant in words
    assert bool(meant) == ("what to do" in words)


def test_a_word_from_the_environment_is_said_to_be_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sees what stands there."""
    monkeypatch.setenv("PFL_ROUNDS", "none")
    find: Callable[..., Any] = settle
    with pytest.raises(SettingError, match="in the environment as PFL_ROUNDS"):
        find(ServerSettings, {"rounds": "none"}, what="pfl-server")
    with pytest.raises(SettingError) as caught:
        find(ServerSettings, {"rounds": 0}, what="pfl-server")
    assert "environment" not in str(caught.value)
