"""Checks a site's list of what left it: line by line, by its head, and by the coordinator's receipts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pfl_client.run_folder.audit import BOOK, CARD, HEAD, MENDED, MISSING, RECEIPT, UPDATE, Book, Head
from pfl_common.errors import PflError
from pfl_common.identity import Keyring
from pfl_common.identity.cards import Card, open_card
from pfl_common.sealing import verify_receipt
from pfl_common.spec.messages import Receipt
from pfl_deploy.operator.audit_entries import Entry, key_of


@dataclass(frozen=True)
class Checked:
    """The result of a check: faults, remarks, and the number of things checked."""

    lines: int
    head: str
    receipts: int
    wrong: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass
class Check:
    """One check of a site's list; it reports its findings by line."""

    folder: Path
    raw: list[Entry]
    wrong: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def run(self) -> Checked:
        """The chain, its head, what the list says of itself, and the receipts."""
        head = Head.read(self.folder)
        lines, last = self._check_chain(head)
        for entry in self.raw:
            self._check_notes(entry)
        receipts = self._check_receipts()
        return Checked(lines, last, receipts, tuple(self.wrong), tuple(self.remarks))

    def _check_chain(self, head: Head | None) -> tuple[int, str]:
        before, number, book = "", 0, Book(self.folder / BOOK)
        for line in book.lines():
            number = line.number
            if line.said is None:
                self.wrong.append(f"line {number} cannot be read")
            elif line.said.get("before") != before:
                self.wrong.append(f"line {number} does not follow the line before it: {_torn_chain(number)}")
            if head is not None and head.lines == number and head.digest != line.digest:
                self.wrong.append(f"line {number} is not the one that {HEAD} names: lines were written anew")
            before = line.digest
        if book.torn:
            self.remarks.append(
                f"line {number + 1} is not whole yet: the site writes it, or was ended while it did"
            )
        self._check_head(head, number)
        return number, before

    def _check_head(self, head: Head | None, lines: int) -> None:
        if head is None and lines:
            self.wrong.append(
                f"{HEAD} is gone or cannot be read: whether the last lines are all here cannot be told"
            )
        elif head is not None and head.lines > lines:
            self.wrong.append(
                f"{HEAD} names {head.lines} lines, here are {lines}: the last ones were removed"
            )

    def _check_notes(self, entry: Entry) -> None:
        if entry.kind == MENDED:
            torn = entry.said.get("torn_bytes")
            self.remarks.append(
                f"line {entry.line}: before it {torn} bytes of a line that was never finished"
            )
        elif entry.kind == MISSING:
            lost = f"{entry.said.get('found_lines')} of {entry.said.get('lines')} lines"
            self.wrong.append(
                f"line {entry.line}: when the site began here it found {lost}, or others than it wrote"
            )
        elif entry.book != BOOK and entry.line == 1:
            self.remarks.append(
                f"{entry.book}: of an earlier release, whose lines are not bound to each other"
            )

    def _check_receipts(self) -> int:
        """Count the receipts that the coordinator signed for an update that is listed with these bytes."""
        sent = {key_of(entry): entry for entry in self.raw if entry.kind == UPDATE and entry.book == BOOK}
        held = [entry for entry in self.raw if entry.kind == RECEIPT or entry.book != BOOK]
        cards, good = self._cards(), 0
        for entry in held:
            where = f"line {entry.line}" + (f" of {entry.book}" if entry.book != BOOK else "")
            update = sent.get(key_of(entry)) if entry.book == BOOK else entry
            if update is None or update.size != entry.size:
                self.wrong.append(
                    f"{where}: a receipt for {entry.said.get('task')}, of which no such update is listed"
                )
            elif self._is_signed(entry, cards, where):
                good += 1
        unanswered = sum(key not in {key_of(entry) for entry in held} for key in sent)
        if unanswered:
            self.remarks.append(f"{unanswered} updates were sent, or about to be, and have no receipt")
        return good

    def _is_signed(self, entry: Entry, cards: list[Card], where: str) -> bool:
        signature = str(entry.said.get("receipt", ""))
        if not signature:
            self.remarks.append(f"{where}: a receipt without a signature, as `pfl simulate` gives them")
            return False
        if not cards:
            self.remarks.append(
                f"{where}: a receipt that cannot be checked, no card of the coordinator is listed"
            )
            return False
        task, digest = str(entry.said.get("task")), str(entry.said.get("digest"))
        receipt = Receipt(entry.run, task, self._site(), digest)
        if any(_holds(card, receipt, signature) for card in cards):
            return True
        self.wrong.append(
            f"{where}: the receipt for {task} is not the coordinator's word for {digest[:12]}..."
        )
        return False

    def _site(self) -> str:
        return Keyring.open(self.folder / "keys").name

    def _cards(self) -> list[Card]:
        """The coordinator's cards that were listed and that this site's federation has signed."""
        listed = [str(entry.said.get("card")) for entry in self.raw if entry.kind == CARD]
        if not listed or not (self.folder / "keys" / "site.pem").exists():
            return []
        ca_pem = Keyring.open(self.folder / "keys").ca_pem
        cards = []
        for text in listed:
            try:
                cards.append(open_card(bytes.fromhex(text), ca_pem))
            except (PflError, ValueError):
                self.wrong.append("a card of the coordinator is listed that this federation did not sign")
        return cards


def _torn_chain(number: int) -> str:
    return (
        "a first line was removed"
        if number == 1
        else f"line {number - 1} was changed, or one between was removed"
    )


def _holds(card: Card, receipt: Receipt, signature: str) -> bool:
    try:
        verify_receipt(card, receipt, bytes.fromhex(signature))
    except (PflError, ValueError):
        return False
    return True
