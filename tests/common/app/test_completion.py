"""Words for the shell, read from source text; they are held against what the sources say when they are loaded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pfl_common import methods
from pfl_common.app import completion
from pfl_common.app.config import dump
from pfl_common.learning.method import Settings
from pfl_common.models import catalogue


def given(method: str | None = None) -> Any:
    """A command line with this method."""
    return SimpleNamespace(params={"method": method})


def test_methods_are_files() -> None:
    """Those of a beginning, and no file that is none."""
    assert ["fedper", "fedphp", "fedpick", "fedproto", "fedprox"] == completion.complete_methods("fedp")
    assert [] == completion.complete_methods("_")


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "gpfl"])
def test_settings_and_presets_are_those_of_the_method(method: str) -> None:
    """What loading it says."""
    loaded = methods.load(method)
    names = sorted(f"{name}=" for name in dump(loaded.settle({})))
    assert names == completion.complete_settings(given(method), "")
    assert sorted(loaded.presets) == completion.complete_presets(given(method), "")


def test_only_what_begins_so() -> None:
    """An equals sign comes with each."""
    assert ["lr="] == completion.complete_settings(given("fedavg"), "lr")


def test_without_a_method_those_of_the_usual_one() -> None:
    """And of a method that is none, those of all methods."""
    usual = completion.complete_settings(given("dualfed"), "")
    assert usual == completion.complete_settings(given(), "")
    assert set(completion.complete_settings(given("nothing"), "")) < set(usual)


def test_networks_are_those_of_the_catalogue() -> None:
    """Every one."""
    assert sorted(catalogue._BACKBONES) == completion.complete_backbones("")


def test_words_of_a_setting() -> None:
    """One that takes words has them; one that takes a number has none."""
    assert ["drop"] == completion.among(Settings, "tail")("d")
    assert [] == completion.among(Settings, "epochs")("")
