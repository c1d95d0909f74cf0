"""The entries of a site's list, each update joined with its receipt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pfl_client.run_folder.audit import BOOK, RECEIPT, UPDATE, Book
from pfl_common.spec.run import Json


@dataclass(frozen=True)
class Entry:
    """One entry of the list. `line` is its number in `book`, from 1."""

    book: str
    line: int
    kind: str
    said: dict[str, Json]
    receipt: str = ""
    """The coordinator's signature for an update, once it was listed."""

    @property
    def run(self) -> str:
        """Empty before a run has begun."""
        return str(self.said.get("run", ""))

    @property
    def size(self) -> int:
        """Bytes of what left."""
        size = self.said.get("bytes")
        return size if isinstance(size, int) else 0

    @property
    def count(self) -> int:
        """The number of messages in this entry."""
        calls = self.said.get("calls")
        return sum(_count(one) for one in calls.values()) if isinstance(calls, dict) else 1


def read_lines(folder: Path) -> Iterator[Entry]:
    """Every line as it is, those of older releases first."""
    for book in sorted(folder.glob(f"runs/*/{BOOK}")):
        about = f"runs/{book.parent.name}/{BOOK}"
        for line in Book(book).lines():
            if line.said is not None:
                said = {"run": book.parent.name, **line.said}
                yield Entry(about, line.number, UPDATE, said, str(line.said.get("receipt", "")))
    for line in Book(folder / BOOK).lines():
        if line.said is not None:
            yield Entry(BOOK, line.number, str(line.said.get("kind", "?")), line.said)


def merge(raw: Iterable[Entry]) -> Iterator[Entry]:
    """An update and its receipt as one; an update that was sent again after a restart stands once."""
    raw = list(raw)
    receipts = {key_of(entry): entry for entry in raw if entry.kind == RECEIPT}
    seen = set[tuple[str, ...]]()
    for entry in raw:
        if entry.kind == RECEIPT:
            continue
        if entry.kind == UPDATE and key_of(entry) in seen:
            continue
        if entry.kind == UPDATE:
            seen.add(key_of(entry))
        given = receipts.get(key_of(entry)) if entry.kind == UPDATE else None
        receipt = str(given.said.get("receipt", "")) or "given" if given else entry.receipt
        yield Entry(entry.book, entry.line, entry.kind, entry.said, receipt)


def key_of(entry: Entry) -> tuple[str, ...]:
    """By what an update and its receipt belong together."""
    return entry.run, str(entry.said.get("task")), str(entry.said.get("digest"))


def _count(said: Json) -> int:
    return said[0] if isinstance(said, list) and said and isinstance(said[0], int) else 0
