"""What a disk could give back: rows of a journal, a vault's pointer and lines of a list that say other things."""

from __future__ import annotations

import hashlib
import json
from typing import Any  # JSON has no narrower type

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from pfl_server.store.journal_migration import columns_at, newest
from pfl_server.store.journal_schema import STRUCTURED
from tests.fuzz import odd
from tests.fuzz.shape import Shape, as_json, shape
from tests.fuzz.targets.journals import LINE, POINTER, _journal

_CELLS = odd.anything.map(json.dumps) | st.sampled_from(["[]", "{}", "[[]]", "[{}, {}, {}]", '{"a": null}'])


@shape("journal_rows")
def build_rows() -> Shape:
    """Cells of one or a few columns, most often of those that hold JSON."""
    tables = columns_at(newest())
    places = sorted((table, column) for table, columns in tables.items() for column in columns)
    structured = [(table, column) for table, columns in STRUCTURED.items() for column in columns]
    said = st.tuples(st.sampled_from(structured), _CELLS) | st.tuples(
        st.sampled_from(places), odd.scalars | _CELLS
    )
    return st.lists(said, min_size=1, max_size=3).map(
        lambda cells: as_json([[table, column, value] for (table, column), value in cells])
    )


@shape("rows")
def build_cell() -> Shape:
    """What stands in one column."""
    return _CELLS.map(str.encode) | st.sampled_from([b"[" * 3000, b"\xff", b""])


@shape("journal")
def build_file() -> Shape:
    """Pages of a database, cut, swapped or filled with others."""
    content, page = _journal(), 4096
    pages = [content[at : at + page] for at in range(0, len(content), page)]
    order = st.lists(st.integers(0, len(pages) - 1), max_size=len(pages) + 2)
    header = st.tuples(st.integers(0, 99), st.binary(min_size=1, max_size=4)).map(
        lambda one: content[: one[0]] + one[1] + content[one[0] + len(one[1]) :]
    )
    return st.one_of(
        order.map(lambda places: b"".join([pages[0], *(pages[place] for place in places)])),
        st.permutations(range(1, len(pages))).map(
            lambda places: b"".join([pages[0], *(pages[place] for place in places)])
        ),
        header,
        st.integers(0, len(content)).map(lambda at: content[:at]),
    )


@shape("vault_pointer")
def build_pointer() -> Shape:
    """A pointer of another vault, to files elsewhere, of rounds that cannot be."""
    files = st.sampled_from(
        ["../beside.safetensors", "../../beside.safetensors", "/etc/passwd", ".", "", "a\0b"]
    )
    elsewhere = files.map(
        lambda file: {**POINTER, "generations": [{"mark": {"round": 1, "attempt": 1}, "file": file}]}
    )
    return (odd.nearly(POINTER) | elsewhere).map(as_json)


@shape("audit")
def build_list() -> Shape:
    """Lines that follow each other as they should, or do not; the last one may be torn."""
    return st.tuples(
        _chains(), st.sampled_from([b"\n", b"", b"\n\n", b'\n{"kind": "up', b"\n" + b"[" * 3000])
    ).map(lambda parts: parts[0] + parts[1])


@st.composite
def _chains(draw: DrawFn) -> bytes:
    lines: list[bytes] = []
    for said in draw(st.lists(odd.nearly(LINE), max_size=4)):
        before = hashlib.sha256(lines[-1]).hexdigest() if lines else ""
        whole: Any = {**said, "before": before} if isinstance(said, dict) and draw(st.booleans()) else said
        lines.append(as_json(whole))
    return b"\n".join(lines)
