"""Readers of bytes from elsewhere end in the errors they name, whatever the bytes; what once did not stays mended.

A short form of `python -m tests.fuzz`: each target gets the inputs of its past, its seeds, and as many changed and as
many built ones as its share of the time allows. Where a test fails it prints its seed; PFL_FUZZ_SEED=N repeats it.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from itertools import islice

import pytest
from hypothesis import strategies as st

from pfl_common.errors import UserError
from tests.fuzz import __main__ as command
from tests.fuzz import bounds, mutation, target
from tests.fuzz.mutation import inputs
from tests.fuzz.shape import FEWEST, Found, load_shapes, play
from tests.fuzz.target import CRASHES, Target, load_all

SECONDS = 3.0
"""For the changed inputs of all targets together."""
SEED = int(os.environ.get("PFL_FUZZ_SEED", "0")) or secrets.randbelow(1 << 31)
TARGETS, SHAPES = load_all(), load_shapes()
BUILT_SECONDS = 12.0
"""For the built inputs of all shapes together."""
OLD = [(name, crash) for name, one in TARGETS.items() for crash in one.crashes()]


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_comes_ends_in_an_error_that_is_named(name: str) -> None:
    """Seeds as they are, nothing at all, then seeds with changes."""
    print(f"PFL_FUZZ_SEED={SEED}")  # shown by pytest where the test fails
    one, end = TARGETS[name], time.monotonic() + SECONDS / len(TARGETS)
    for count, content in enumerate(inputs(SEED, one.seeds, one.words)):
        if count > len(one.seeds) and time.monotonic() > end:
            break
        try:
            one(content)
        except Exception as error:
            raise AssertionError(f"{content[:2000]!r} of {len(content)} bytes") from error


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_nearly_right_ends_so_too(name: str) -> None:
    """Messages, headers, tables and rows that pass the first checks, because only a few places of them are odd."""
    print(f"PFL_FUZZ_SEED={SEED}")
    assert FEWEST <= play(
        TARGETS[name], SHAPES[name], seed=SEED, examples=60, seconds=BUILT_SECONDS / len(SHAPES)
    )


@pytest.mark.parametrize(("name", "crash"), OLD, ids=[crash for _, crash in OLD])
def test_what_once_crashed_a_reader_stays_mended(name: str, crash: str) -> None:
    """Found by the long command."""
    TARGETS[name](TARGETS[name].crashes()[crash])


def test_each_input_of_the_past_is_some_targets() -> None:
    """None is kept under a name that nobody reads."""
    assert {path.name for path in CRASHES.iterdir()} == {crash for _, crash in OLD}


@pytest.mark.parametrize("way", [lambda _: 1 / 0, lambda _: [][1], lambda _: b"\xff".decode()])
def test_a_crash_is_noticed(way: target.Run) -> None:
    """The tests above are able to fail."""
    broken = Target("broken", way, (KeyError,), lambda: [b"x"])
    with pytest.raises((ZeroDivisionError, IndexError, UnicodeDecodeError)):
        broken(b"")


def test_time_is_noticed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that never ends is as good as one that crashes."""
    monkeypatch.setattr(bounds, "SLOW_SECONDS", -1.0)
    with pytest.raises(AssertionError, match="3 bytes took"):
        Target("slow", len, (), lambda: [])(b"abc")


def test_memory_is_noticed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one pass that asks for more than an input of its size can mean."""
    monkeypatch.setattr(bounds, "LARGE_BYTES", 32 << 20)
    with pytest.raises(AssertionError, match=r"3 bytes took 6[0-9] MiB"):
        Target("large", lambda _: len(b"x" * (64 << 20)), (), lambda: [])(b"abc")


@pytest.mark.parametrize("said", ["", " ", "x" * 20_001])
def test_an_error_without_words_is_noticed(said: str) -> None:
    """Nobody can act on nothing, nor on a page of signs."""

    def refuse(_: bytes) -> None:
        raise UserError(said)

    with pytest.raises(AssertionError, match="UserError"):
        Target("wordless", refuse, (UserError,), lambda: [])(b"")


def test_what_is_built_is_made_small() -> None:
    """Of many inputs that end a reader otherwise the one that is kept says what is wrong with it."""
    odd = Target("odd", lambda content: 1 / (not content.startswith(b"abc")), (), lambda: [])
    with pytest.raises(Found) as found:
        play(
            odd, lambda: st.binary(max_size=99).map(lambda more: b"abc" + more), seed=1, examples=9, seconds=9
        )
    assert b"abc" == found.value.content
    assert isinstance(found.value.__cause__, ZeroDivisionError)


def test_a_seed_gives_the_same_inputs() -> None:
    """What is printed can be repeated; another one gives others, and none is too long."""
    first, again, other = (list(islice(inputs(seed, [b"abc" * 99]), 300)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(set(first)) > 200
    assert max(map(len, first)) <= mutation.LONGEST


def test_the_long_command_names_its_targets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And says which there are if one is unknown."""
    monkeypatch.setattr(sys, "argv", ["tests.fuzz", "--list"])
    assert (0, [*TARGETS]) == (command.main(), capsys.readouterr().out.split())
    monkeypatch.setattr(sys, "argv", ["tests.fuzz", "attic"])
    assert 2 == command.main()
    assert "known: " + ", ".join(TARGETS) in capsys.readouterr().err
