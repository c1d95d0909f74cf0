"""Signed calls: heard from whom they say, as they were said, once, and in a session of this coordinator."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pfl_common.errors import Refused
from pfl_common.identity import Authority
from pfl_common.identity.cards import COORDINATOR, Card, EnvelopeKeys, read_card
from pfl_common.sealing import calls
from pfl_common.sealing.calls import CALLS_ABREAST, SESSION_SECONDS, CallBook, CallSigner, NoSession, _Window

NOW = datetime(2026, 11, 18, tzinfo=UTC)


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Hall:
    """A coordinator's book and the keys of two sites."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority.open_or_create(folder, now=NOW)
        self.sites = {name: EnvelopeKeys.generate() for name in ("hospital_a", "hospital_b")}
        self.clock = Clock()
        self.book = self.open_book()

    def open_book(self) -> CallBook:
        """As a coordinator does that is started anew."""
        keys, card = self.authority.coordinator_keys(), self.authority.coordinator_card(now=NOW)
        return CallBook(keys, card, self.find_card, clock=self.clock)

    def find_card(self, site: str) -> Card:
        if site not in self.sites:
            raise Refused("card", f"no card of {site}")
        signing, receiving = self.sites[site].public()
        return Card(site, signing, receiving, "f", NOW, NOW + timedelta(days=1))

    def line(self, site: str = "hospital_a") -> CallSigner:
        """A line that has been given its session."""
        signer = CallSigner(self.sites[site], site, read_card=self.read_card)
        with pytest.raises(NoSession) as given_one:
            self.book.check("Join", b"", signer.sign("Join", b""))
        signer.begin(given_one.value)
        return signer

    def read_card(self, card: bytes) -> Card:
        return read_card(card, self.authority.ca_pem, name=COORDINATOR, now=NOW)

    def refusal(self, call: str, body: bytes, said: calls.SignedCall) -> str:
        """The code a call is refused with."""
        with pytest.raises(Refused) as refused:
            self.book.check(call, body, said)
        return refused.value.code


@pytest.fixture
def hall(tmp_path: Path) -> Hall:
    return Hall(tmp_path / "federation")


def test_a_call_is_heard_once(hall: Hall) -> None:
    """From its site, and never again; the next one of the line is another."""
    line = hall.line()
    first, second = line.sign("Offer", b"body"), line.sign("Offer", b"body")
    assert "hospital_a" == hall.book.check("Offer", b"body", second)
    assert "hospital_a" == hall.book.check("Offer", b"body", first), "calls may overtake one another"
    assert ["seal", "seal"] == [hall.refusal("Offer", b"body", said) for said in (first, second)]


CHANGED = {
    "another call": lambda said: ("Leave", b"body", said),
    "another body": lambda said: ("Offer", b"bodY", said),
    "another name": lambda said: ("Offer", b"body", replace(said, site="hospital_b")),
    "another number": lambda said: ("Offer", b"body", replace(said, counter=said.counter + 1)),
    "no signature": lambda said: ("Offer", b"body", replace(said, signature=b"")),
    "an unknown site": lambda said: ("Offer", b"body", replace(said, site="hospital_c")),
    "a session of its own": lambda said: ("Offer", b"body", replace(said, session=b"s" * 48)),
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED.keys())
def test_a_call_that_was_changed(hall: Hall, change: object) -> None:
    """Whatever a proxy changes, the call is not heard; the honest one still is."""
    said = hall.line().sign("Offer", b"body")
    assert hall.refusal(*change(said)) in ("other_keys", "session", "card")
    assert "hospital_a" == hall.book.check("Offer", b"body", said)


def test_a_site_that_was_let_in_with_other_keys_since(hall: Hall) -> None:
    """Its old keys are nobody's any more, and it is told so by a code of its own; its new ones are heard."""
    old = hall.line()
    hall.sites["hospital_a"] = EnvelopeKeys.generate()
    assert "other_keys" == hall.refusal("Leave", b"", old.sign("Leave", b""))
    assert "hospital_a" == hall.book.check("Leave", b"", hall.line().sign("Leave", b""))


def test_a_session_is_of_one_coordinator_and_one_site(hall: Hall) -> None:
    """What was said to a coordinator is nothing to the one started after it, and not to be said by another site."""
    line, other = hall.line(), hall.line("hospital_b")
    said = line.sign("Leave", b"")
    hall.book = hall.open_book()
    assert "session" == hall.refusal("Leave", b"", said)
    other._session = line._session
    assert "session" == hall.refusal("Leave", b"", other.sign("Leave", b""))


def test_a_session_ends(hall: Hall) -> None:
    """After a day a line gets another, and what was heard in the old one is heard no more."""
    line = hall.line()
    said = line.sign("Leave", b"")
    hall.book.check("Leave", b"", said)
    hall.clock.seconds += SESSION_SECONDS - 1
    assert "seal" == hall.refusal("Leave", b"", said)
    hall.clock.seconds += 2
    assert "session" == hall.refusal("Leave", b"", said)


def test_sessions_are_few(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site cannot fill the coordinator's memory; those whose time is over make room."""
    monkeypatch.setattr(calls, "SESSIONS_AT_ONCE", 2)
    lines = [hall.line() for _ in range(3)]
    for line in lines[:2]:
        hall.book.check("Leave", b"", line.sign("Leave", b""))
    assert "other" == hall.refusal("Leave", b"", lines[2].sign("Leave", b""))
    hall.clock.seconds += SESSION_SECONDS + 1
    late = hall.line()
    assert "hospital_a" == hall.book.check("Leave", b"", late.sign("Leave", b""))


def test_an_answer_is_the_coordinators_own(hall: Hall) -> None:
    """To this call and as it was said; another answer of the same coordinator is none."""
    line = hall.line()
    asked, other = line.sign("NextTask", b"x"), line.sign("NextTask", b"x")
    word = hall.book.sign_answer("NextTask", asked, b"answer")
    line.check("NextTask", asked=asked, body=b"answer", signature=word)
    for changed in (
        {"asked": other, "body": b"answer", "signature": word},
        {"asked": asked, "body": b"answeR", "signature": word},
        {"asked": asked, "body": b"answer", "signature": b""},
    ):
        with pytest.raises(Refused, match="did not sign"):
            line.check("NextTask", **changed)
    with pytest.raises(Refused, match="did not sign"):
        line.check("Offer", asked=asked, body=b"answer", signature=word)


def test_a_foreign_coordinator_gets_no_line(hall: Hall, tmp_path: Path) -> None:
    """A session comes with a card, and the card must be this federation's."""
    stranger = Hall(tmp_path / "stranger")
    signer = CallSigner(hall.sites["hospital_a"], "hospital_a", read_card=hall.read_card)
    foreign = NoSession("here", session=b"s", card=stranger.authority.coordinator_card(now=NOW))
    with pytest.raises(Refused, match="card"):
        signer.begin(foreign)


@given(st.lists(st.integers(1, 2000), max_size=200))
def test_the_window_is_a_set(numbers: list[int]) -> None:
    """A number is taken once at most; one that is not too far behind is always taken the first time."""
    window, heard = _Window(0.0), set()
    for number in numbers:
        near = number > max(heard, default=0) - CALLS_ABREAST
        assert (near and number not in heard) == window.take(number)
        if near:
            heard.add(number)
