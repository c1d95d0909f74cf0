"""A rule of a round is declared once: what is asked for, pinned and written down follows from its declaration."""

from __future__ import annotations

from dataclasses import Field as RuleField
from dataclasses import dataclass, fields

import pytest
from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from pfl_common.app.config import STRICT, held_to_terms, settle
from pfl_common.errors import SettingError
from pfl_common.spec.participation import Participation
from pfl_common.spec.rules import (
    ALWAYS_WRITTEN,
    AskedRules,
    RoundRules,
    leave_out_unsaid,
    rule,
    terms_of,
)
from pfl_common.spec.run import RunSpec


@dataclass(frozen=True, kw_only=True)
class Trimmed(RoundRules):
    """A rule that came after the others."""

    trim: float = rule(0.0, "Share left out.", Field(ge=0, lt=0.5), why="half of both ends is all")


@checked(frozen=True, kw_only=True, config=STRICT)
@held_to_terms
class Settings(Trimmed):
    """What is asked for of it."""

    state: str = "here"


@pytest.mark.parametrize("declared", fields(AskedRules), ids=lambda declared: declared.name)
def test_a_rule_says_what_it_means(declared: RuleField[object]) -> None:
    """In one sentence that a program's help can show."""
    sentence = terms_of(declared).sentence
    assert sentence.endswith(".")
    assert len(sentence) <= 60


def test_a_specification_has_the_rules_with_their_defaults() -> None:
    """All but the two that it cannot do without."""
    own = {one.name: one.default for one in fields(RunSpec)}
    usual = {one.name: one.default for one in fields(RoundRules)}
    assert {"rounds", "seed"} == {name for name in usual if own[name] != usual[name]}
    (drawn,) = (one for one in fields(RunSpec) if one.name == "participation")
    assert AskedRules().asks() == drawn.default_factory()


def test_a_later_rule_is_not_written_while_it_is_at_its_default() -> None:
    """A run that was begun before there was such a rule keeps its text; one that uses it says so."""
    plain = {"id": "r", "rounds": 30, "quorum": "majority"}
    assert plain == leave_out_unsaid(plain | {"trim": 0.0}, Trimmed)
    assert plain | {"trim": 0.1} == leave_out_unsaid(plain | {"trim": 0.1}, Trimmed)


def test_the_rules_of_the_first_releases_are_always_written() -> None:
    """They stand in the text of every run there is, at their defaults too."""
    first = {"rounds", "seed", "candidates", "quorum", "round_seconds", "lease_seconds", "evaluate_every"}
    assert first | {"largest_norm", "threads"} == ALWAYS_WRITTEN
    assert ALWAYS_WRITTEN <= leave_out_unsaid(RoundRules().pinned()).keys()


def test_bounds_hold_for_what_is_asked_for() -> None:
    """With the reason; what is read of a run that was begun is not refused."""
    assert 0.25 == settle(Settings, {"trim": "0.25", "state": "there"}, what="toy").trim
    with pytest.raises(SettingError) as caught:
        settle(Settings, {"trim": 0.5}, what="toy")
    assert "a number, 0 or more and less than 0.5: half of both ends is all" == caught.value.expected
    assert 0.9 == Trimmed(trim=0.9).trim


def test_what_is_asked_for_becomes_what_is_pinned() -> None:
    """Two rules are pinned in another form than they are typed in."""
    asked = AskedRules(participation="0.5..1.0", drop=0.25, rounds=3)
    assert Participation(0.5, 1.0, drop=0.25) == asked.asks()
    assert {"participation", "drop"} == asked.told().keys() - asked.pinned().keys()
    assert (3, 3, "0.5..1.0") == (
        asked.pinned()["rounds"],
        asked.told()["rounds"],
        asked.told()["participation"],
    )
