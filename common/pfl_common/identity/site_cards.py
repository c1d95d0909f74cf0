"""The cards an authority has given its sites, and who of them is to be heard no more.

cards/NAME.card           the card in force
cards/former/NAME.X.card  one that it replaced: what its keys signed while they were good is still known as the site's
cards/barred/NAME.json    a site that the operator removed, or keys of it that the operator revoked
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from pfl_common.errors import IdentityError, Refused
from pfl_common.files import private
from pfl_common.identity import cards, json_record
from pfl_common.identity.cards import Card
from pfl_common.identity.errors import KeysRevoked, SiteRemoved
from pfl_common.identity.json_record import Record, Unreadable
from pfl_common.identity.names import KEPT_IN_MEMORY, check_site_name

_FORMER_DIGITS = 16


@dataclass(frozen=True)
class Bar:
    """What the operator has decided about a site: it is out, or some of its keys are worthless (fingerprints)."""

    removed: bool = False
    keys: frozenset[str] = frozenset()


class SiteCards:
    """A private folder of cards. Whatever is changed here counts with a site's next call."""

    def __init__(
        self, folder: Path, trusted: Callable[[], bytes], known: Callable[[], bytes] | None = None
    ) -> None:
        """`trusted` gives the certificates of the authorities that a card in force is signed by; `known` also of those
        that were trusted once.
        """
        self._folder, self._trusted, self._known = folder, trusted, known or trusted
        self._read: dict[tuple[Path, bytes], tuple[int, Card]] = {}

    def keep(self, card: Card, signed: bytes, *, holder: str) -> None:
        """Put a card in force; `holder` is the fingerprint of the key whose certificate request asked for it."""
        with self._held():
            # In here, since the operator may have decided after the request was verified.
            bar = self.bar_of(card.name)
            if bar.removed:
                raise SiteRemoved(card.name)
            if {card.signing.hex(), holder} & bar.keys:
                raise KeysRevoked(card.name)
            before = self._newest(card.name)
            if before is not None and before.keys != card.keys:
                self._put_by(before)
            private.write(self._path(card.name), signed)

    def find(self, name: str, *, now: datetime) -> Card:
        """The card in force; refused when there is none or its time is over."""
        path = self._path(check_site_name(name))
        try:
            found = self._cached(path, self._trusted())
        except FileNotFoundError:
            raise self._no_card(name) from None
        if found.name != name:
            raise Refused("card", f"a card of {found.name}; expected: the card of {name}")
        found.check_time(now)
        return found

    def signers(self, name: str) -> tuple[Card, ...]:
        """Every card this site ever had, the newest first, whatever its time: to verify what it signed once."""
        newest = self._newest(check_site_name(name))
        former = sorted(self._folder.glob(f"former/{name}.*.card"))
        return (*([newest] if newest else []), *(self._cached(path, self._known()) for path in former))

    def is_signed_by(self, name: str, authority: bytes) -> bool:
        """Whether a site's card in force was signed by this very authority."""
        try:
            self._cached(self._path(name), authority)
        except Refused:
            return False
        return True

    def names(self) -> tuple[str, ...]:
        """All sites with a card."""
        return tuple(sorted(path.stem for path in self._folder.glob("*.card")))

    def remove(self, name: str) -> None:
        """Hear a site no more, whatever keys it comes with, until it is readmitted."""
        with self._held():
            self._write_bar(name, replace(self.bar_of(name), removed=True))
            self._withdraw(name)

    def revoke(self, name: str, *, holder: str = "") -> None:
        """Hear a site's present keys no more, for ever; `holder` is the fingerprint of its TLS key, where known."""
        with self._held():
            bar, card = self.bar_of(name), self._newest(name)
            worthless = {holder, card.signing.hex() if card else ""} - {""}
            self._write_bar(name, replace(bar, keys=bar.keys | worthless))
            self._withdraw(name)

    def readmit(self, name: str) -> None:
        """A new invitation was written: the site may enrol again. Revoked keys stay worthless."""
        with self._held():
            bar = self.bar_of(name)
            if bar.removed:
                self._write_bar(name, replace(bar, removed=False))

    def bar_of(self, name: str) -> Bar:
        """What the operator has decided about a site."""
        path = self._folder / "barred" / f"{check_site_name(name)}.json"
        try:
            record = Record.parse(private.read(path))
            keys = str(record.fields.get("keys") or "")
            return Bar(removed=bool(record.number("removed")), keys=frozenset(filter(None, keys.split(","))))
        except FileNotFoundError:
            return Bar()
        except Unreadable as reason:
            # Not passed over: a site that was removed must not come back by a torn file.
            raise IdentityError(
                f"{path} is damaged: {reason}",
                expected="what the operator decided about this site",
                advice=f"bring it back from a backup, or decide again: remove it, then pfl remove {name}",
            ) from None

    def _no_card(self, name: str) -> Refused:
        bar = self.bar_of(name)
        if bar.removed:
            return SiteRemoved(name)
        if bar.keys:
            return KeysRevoked(name)
        words = f"no card of {name} is known here; expected: a site that enrolled; invite it again"
        return Refused("card", words)

    def _write_bar(self, name: str, bar: Bar) -> None:
        fields: dict[str, object] = {
            "site": name,
            "removed": int(bar.removed),
            "keys": ",".join(sorted(bar.keys)),
        }
        folder = private.make_folder(private.make_folder(self._folder) / "barred")
        private.write(folder / f"{check_site_name(name)}.json", json_record.dump(fields))

    def _withdraw(self, name: str) -> None:
        card = self._newest(name)
        if card is not None:
            self._put_by(card)
        private.remove(self._path(name))

    def _put_by(self, card: Card) -> None:
        folder = private.make_folder(self._folder / "former")
        content = private.read(self._path(card.name))
        private.write(folder / f"{card.name}.{card.signing.hex()[:_FORMER_DIGITS]}.card", content)

    def _newest(self, name: str) -> Card | None:
        try:
            return self._cached(self._path(name), self._known())
        except (FileNotFoundError, Refused, IdentityError):
            # A torn or foreign one is nobody's: it must not keep a site from its next.
            return None

    def _cached(self, path: Path, authorities: bytes) -> Card:
        written = path.stat().st_mtime_ns
        kept = self._read.get((path, authorities))
        # Checking the authority's own signature takes longer than many a call: once for each card that is written.
        if kept is None or kept[0] != written:
            kept = written, cards.open_card(private.read(path), authorities)
            self._read[path, authorities] = kept
        return kept[1]

    def _path(self, name: str) -> Path:
        return _path_of(self._folder, name)

    def _held(self) -> AbstractContextManager[None]:
        return private.locked(private.make_folder(self._folder))


@lru_cache(maxsize=KEPT_IN_MEMORY)
def _path_of(folder: Path, name: str) -> Path:
    # Each call of a site asks for it, and a path that was used knows its own text and hash.
    return folder / f"{name}.card"
