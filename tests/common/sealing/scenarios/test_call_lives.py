"""A site that starts again is not taken in by what was said to it in its former life."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pfl_common.errors import Refused
from pfl_common.identity.cards import open_card
from pfl_common.sealing.calls import CallBook, CallSigner, NoSession
from tests.common.sealing.members import Members

SITE = "hospital_a"


def test_an_answer_of_a_former_life(tmp_path: Path) -> None:
    """Given its old session again, the same calls in the same order are others: old answers do not do for them."""
    members = Members(tmp_path / "federation")
    keys, card = members.keyring(SITE).envelope_keys(), members.authority.coordinator_card(now=members.now)
    book = CallBook(
        members.authority.coordinator_keys(),
        card,
        lambda site: members.authority.card_of(site, now=datetime.now(UTC)),
    )

    def line() -> CallSigner:
        return CallSigner(keys, SITE, read_card=lambda shown: open_card(shown, members.authority.ca_pem))

    given = NoSession("", session=book.give_session(SITE), card=card)
    old, new = line(), line()
    for signer in (old, new):
        signer.sign("Join", b"")
        signer.begin(given)
    asked = old.sign("NextTask", b"marks")
    assert SITE == book.check("NextTask", b"marks", asked)
    answer = book.sign_answer("NextTask", asked, b"round 1")
    old.check("NextTask", asked=asked, body=b"round 1", signature=answer)
    again = new.sign("NextTask", b"marks")
    with pytest.raises(Refused, match="did not sign"):
        new.check("NextTask", asked=again, body=b"round 1", signature=answer)
