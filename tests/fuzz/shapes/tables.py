"""Tables whose rows are of several widths, and whose cells are numbers beyond all numbers, quotations and halves of
signs; and what a site says of its data.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any  # a cell is whatever one likes

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tests.fuzz import odd
from tests.fuzz.shape import Shape, as_json, shape
from tests.fuzz.targets.data_files import DECLARATIONS, ROWS

_NAMES = st.lists(
    st.sampled_from(
        ["age", "ward", "label", "patient", "file", "time", "part", "text", "", "age ", "Label", "e\u0301"]
    )
    | odd.words,
    min_size=1,
    max_size=5,
)
_CELLS = st.one_of(
    st.sampled_from(
        ["1", "2.5", "ill", "well", "", "na", "NaN", "1e999", "-0.0", "72.0", "٣", "1_000", "0x10", "²", "½"]
    )
    | st.sampled_from(
        ['"', '""', '"a', 'a"b', "a,b", "a\nb", "a\rb", "\r\n", "\x85", "\u2028", "\x1c", " x ", "\t"]
    ),
    odd.words,
)
_ENCODINGS = st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1"])


@st.composite
def _tables(draw: DrawFn, cells: SearchStrategy[Any] = _CELLS) -> tuple[list[str], list[list[Any]]]:
    """Names, and rows of about as many cells."""
    sound = draw(st.booleans())
    names = list(ROWS[0]) if sound else draw(_NAMES)
    rows = [list(row.values()) for row in ROWS] if sound else []
    for _ in range(draw(st.integers(0, 3))):
        width = len(names) if draw(st.integers(0, 3)) else draw(st.integers(0, 7))
        rows.append([draw(cells) for _ in range(width)])
    if rows and draw(st.booleans()):
        place = draw(st.integers(0, len(rows) - 1))
        if rows[place]:
            rows[place] = [draw(cells), *rows[place][1:]]
    return names, rows


@st.composite
def _csv_files(draw: DrawFn) -> bytes:
    names, rows = draw(_tables())
    text = io.StringIO(newline="")
    ends = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    if draw(st.integers(0, 4)):
        csv.writer(text, lineterminator=ends, quoting=quoting).writerows([names, *rows])
    else:  # as somebody writes who does not know of quotation marks
        text.write(ends.join(",".join(row) for row in [names, *rows]))
    content = text.getvalue().encode(draw(_ENCODINGS), errors="replace")
    return draw(st.sampled_from([content, content, content, content[: len(content) // 2], content + b"\0"]))


@shape("csv")
def build_csv() -> Shape:
    """A table as CSV, well written or not."""
    return _csv_files()


@shape("jsonl")
def build_lines() -> Shape:
    """A table as JSON lines, whose objects have other names and values of any kind."""
    objects = _tables(odd.anything).map(
        lambda table: [dict(zip(table[0], row, strict=False)) for row in table[1]]
    )
    lines = st.lists(odd.nearly(ROWS[0], most=2), max_size=5) | objects
    written = lines.map(lambda found: b"\n".join(map(as_json, found)))
    return written | written.map(lambda content: content + b"\n" + b"[" * 4000)


@shape("parquet")
def build_parquet() -> Shape:
    """A table as Parquet, with columns of every type, and pages cut."""
    columns = st.dictionaries(
        st.sampled_from(["age", "ward", "label", "patient", "file", ""]) | odd.words,
        st.sampled_from(sorted(_COLUMNS)),
        min_size=1,
        max_size=4,
    )
    packed = st.sampled_from(["NONE", "SNAPPY", "GZIP", "ZSTD"])
    return st.tuples(columns, packed, st.sampled_from([0, 0, 0, 1, 8, 40]), st.integers(0, 2000)).map(
        _write_parquet
    )


def _columns() -> dict[str, Any]:
    import datetime
    import decimal

    import pyarrow as pa

    moment = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    return {
        "text": pa.array(["ill", "well", None, "ill"]),
        "long": pa.array(["x" * 200_000, "y", "z", ""]),
        "whole": pa.array([1, 2**62, -(2**63), None]),
        "unsigned": pa.array([1, 2**64 - 1, 0, 5], pa.uint64()),
        "float": pa.array([1.5, float("nan"), float("inf"), -1e308]),
        "half": pa.array([1.5, 2, 3, 4], pa.float16()),
        "truth": pa.array([True, False, None, True]),
        "none": pa.nulls(4),
        "list": pa.array([[1], [], None, [2, 3]]),
        "struct": pa.array([{"a": 1}] * 4),
        "map": pa.array([[("a", 1)]] * 4, pa.map_(pa.string(), pa.int64())),
        "date": pa.array(
            [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None, datetime.date(2030, 1, 1)]
        ),
        "far date": pa.array([2**31 - 1, -(2**31), 0, 1], pa.date32()),
        "moment": pa.array([moment, None, moment, moment]),
        "far moment": pa.array([2**63 - 1, -(2**63) + 1, 0, 1], pa.timestamp("ns")),
        "seconds": pa.array([2**60, 0, 1, 2], pa.timestamp("s")),
        "zone": pa.array([0, 0, 1, 2], pa.timestamp("us", tz="Mars/Phobos")),
        "time": pa.array([0, 1, 2, 86_399_999_999], pa.time64("us")),
        "duration": pa.array([2**62, 1, 2, 3], pa.duration("s")),
        "decimal": pa.array([decimal.Decimal("1.5"), None, decimal.Decimal("9" * 30), decimal.Decimal(0)]),
        "bytes": pa.array([b"\xff", b"a", b"", None]),
        "dictionary": pa.array(["a", "b", "a", None]).dictionary_encode(),
    }


_COLUMNS = _columns()


def _write_parquet(parts: tuple[dict[str, str], str, int, int]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    columns, packing, change, place = parts
    out = pa.BufferOutputStream()
    table = pa.table({name: _COLUMNS[kind] for name, kind in columns.items()})
    try:
        parquet.write_table(table, out, compression=packing)
    except pa.ArrowException:  # a type that Parquet has no form for
        return b"PAR1"
    content = bytearray(out.getvalue())
    if change:
        at = place % len(content)
        content[at : at + change] = bytes(255 - byte for byte in content[at : at + change])
    return bytes(content)


@shape("picture_list")
def build_list() -> Shape:
    """A list of pictures that lie elsewhere, nowhere, or in a part that is none."""
    files = st.sampled_from(
        ["a.png", "b/c.png", "../x", "/etc/passwd", "b/../../x", "C:\\x", "a\0b", "~", ".", "a//b"]
    )
    rows = st.lists(
        st.tuples(
            files | odd.words,
            st.sampled_from(["x", "y", ""]) | odd.words,
            st.sampled_from(["train", "test", ""]),
        ),
        max_size=4,
    )
    return rows.map(_write_list)


def _write_list(rows: list[tuple[str, ...]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([("file", "label", "part"), *rows])
    return text.getvalue().encode(errors="replace")


@shape("data_json")
def build_declaration() -> Shape:
    """What a site says of its data, with a word or a number that it did not mean."""
    said = odd.one_of([json.loads(one) for one in DECLARATIONS])
    return said.flatmap(odd.nearly).map(as_json) | st.just(b"[" * 4000)
