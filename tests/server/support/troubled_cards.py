"""Ways in which a site's card can be of no use to its coordinator."""

from __future__ import annotations

from tests.common.sealing.members import Members


def no_card(members: Members) -> None:
    """None at all."""
    members.card_file("a").unlink()


def card_has_ended(members: Members) -> None:
    """Renewed too late."""
    members.keyring("a", days_ago=40)


def card_begins_later(members: Members) -> None:
    """Made under a clock that is wrong."""
    members.keyring("a", days_ago=-1)


def card_of_another_federation(members: Members) -> None:
    """Good, but not here."""
    other = Members(members.folder.parent / "another federation")
    other.keyring("a")
    members.card_file("a").write_bytes(other.card_file("a").read_bytes())


def card_of_another_site(members: Members) -> None:
    """Good, but not for this name."""
    members.card_file("a").write_bytes(members.card_file("b").read_bytes())


def torn_card(members: Members) -> None:
    """Half of it."""
    card = members.card_file("a").read_bytes()
    members.card_file("a").write_bytes(card[: len(card) // 2])
