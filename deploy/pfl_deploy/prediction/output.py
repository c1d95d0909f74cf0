"""Writes predictions as CSV, JSON lines or Parquet, a few at a time."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol, cast  # pyarrow ships no types

from pfl_client.prediction import Answer, View
from pfl_common.errors import SettingError, nearest

FORMATS = ("csv", "jsonl", "parquet")
STANDARD = "-"
"""The name of standard output."""
_GROUP = 8192
"""Rows of a Parquet file that are written together: fewer are slow to read, more need memory."""


class Output(Protocol):
    """A file in one of the formats."""

    def write(self, answers: Sequence[Answer]) -> None:
        """Add answers."""

    def close(self) -> None:
        """Write the rest."""


def choose_format(out: str, asked: str | None) -> str:
    """The format asked for, or that of the file's name; CSV on standard output."""
    if asked is None:
        asked = "csv" if out == STANDARD else Path(out).suffix.removeprefix(".")
    if asked not in FORMATS:
        raise SettingError(
            f"there is no format {asked!r} for predictions",
            expected=nearest(asked, FORMATS),
            advice="call the file .csv, .jsonl or .parquet, or say --format",
        )
    return asked


@contextmanager
def opened(out: str, kind: str, classes: Sequence[str], heads: Sequence[str]) -> Iterator[Output]:
    """An output file that appears whole at the end or not at all; standard output is written at once."""
    if out == STANDARD:
        yield from _writing(sys.stdout.buffer, kind, classes, heads)
        return
    path = Path(out)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as stream:
            yield from _writing(stream, kind, classes, heads)
        os.replace(part, path)
    except OSError as error:
        raise SettingError(
            f"{path} cannot be written: {error.strerror}",
            expected="a file in a folder that may be written to",
        ) from None
    finally:
        part.unlink(missing_ok=True)


def _writing(stream: IO[bytes], kind: str, classes: Sequence[str], heads: Sequence[str]) -> Iterator[Output]:
    output: Output
    if kind == "jsonl":
        output = _JsonLines(stream)
    elif kind == "csv":
        output = _Csv(stream, classes, heads)
    else:
        output = _Parquet(stream, classes, heads)
    yield output
    output.close()
    stream.flush()


def as_row(answer: Answer) -> list[object]:
    """An answer as one row: file, row, class, probabilities, then the same of each head."""
    own = [answer.label, *answer.probabilities.values()]
    heads = [cell for view in answer.heads.values() for cell in (view.label, *view.probabilities.values())]
    return [_name(answer.file), answer.row, *own, *heads]


def name_columns(classes: Sequence[str], heads: Sequence[str]) -> list[str]:
    """The names of such a row's columns."""
    of_heads = [f"{head}.{name}" for head in heads for name in ("class", *(f"p:{c}" for c in classes))]
    return ["file", "row", "class", *(f"p:{name}" for name in classes), *of_heads]


def as_plain(answer: Answer) -> dict[str, object]:
    """An answer as one object."""
    plain: dict[str, object] = {"file": _name(answer.file), "row": answer.row}
    plain |= _view(View(answer.label, answer.probabilities))
    if answer.heads:
        plain["heads"] = {name: _view(view) for name, view in answer.heads.items()}
    return plain


def _view(view: View) -> dict[str, object]:
    return {"class": view.label, "probabilities": dict(view.probabilities)}


def _name(file: Path) -> str:
    # Names need not be text; what is written has to be.
    return str(file).encode(errors="backslashreplace").decode()


class _Csv:
    def __init__(self, stream: IO[bytes], classes: Sequence[str], heads: Sequence[str]) -> None:
        self._stream = stream
        self._rows([name_columns(classes, heads)])

    def write(self, answers: Sequence[Answer]) -> None:
        self._rows([as_row(answer) for answer in answers])

    def _rows(self, rows: list[list[Any]]) -> None:
        lines = _Lines()
        csv.writer(lines, lineterminator="\n").writerows(rows)
        self._stream.write("".join(lines.written).encode())

    def close(self) -> None:
        """Nothing is left."""


class _Lines:
    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, line: str, /) -> None:
        self.written.append(line)


class _JsonLines:
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            self._stream.write(json.dumps(as_plain(answer), ensure_ascii=False).encode() + b"\n")

    def close(self) -> None:
        """Nothing is left."""


class _Parquet:
    def __init__(self, stream: IO[bytes], classes: Sequence[str], heads: Sequence[str]) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise SettingError(
                "Parquet needs pyarrow, which is not installed",
                expected="the optional extra `parquet`",
                advice="pip install 'pfl-net[parquet]', or write .csv or .jsonl",
            ) from None
        self._arrow, self._held = pyarrow, list[Answer]()
        types = {"file": pyarrow.string(), "row": pyarrow.int64()}
        types |= {
            name: pyarrow.float64() if ".p:" in name or name.startswith("p:") else pyarrow.string()
            for name in name_columns(classes, heads)[2:]
        }
        self._schema = pyarrow.schema(list(types.items()))
        self._writer = parquet.ParquetWriter(stream, self._schema)

    def write(self, answers: Sequence[Answer]) -> None:
        self._held += answers
        if len(self._held) >= _GROUP:
            self._flush()

    def _flush(self) -> None:
        columns = [list(column) for column in zip(*map(as_row, self._held), strict=True)]
        if columns:
            table = self._arrow.table(cast(Any, columns), schema=self._schema)
            self._writer.write_table(table)
        self._held = []

    def close(self) -> None:
        """Write the answers still held, then the file's own index."""
        self._flush()
        self._writer.close()
