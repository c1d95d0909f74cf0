"""Fields of a small JSON file: each of its type, or an error with the field's name."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pfl_common.identity.json_record import Record, Unreadable, dump, written


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"{", "no JSON"), (b"\xff", "no JSON"), (b"[1]", "no JSON object"), (b"[" * 200_000, "no JSON")],
)
def test_what_is_no_object_is_refused(content: bytes, words: str) -> None:
    """Half a text, no text, a list, and a nesting that the reader cannot follow."""
    with pytest.raises(Unreadable, match=f"^{words}$"):
        Record.parse(content)


@pytest.mark.parametrize("value", [None, "", 7, ["a"]])
def test_a_text_is_text_and_not_empty(value: object) -> None:
    """The error names the field."""
    with pytest.raises(Unreadable, match="no text 'site'"):
        Record({"site": value}).text("site")


@pytest.mark.parametrize("value", [True, -1, 2.0, "2", None])
def test_a_number_is_whole_and_not_below_zero(value: object) -> None:
    """`true` is no 1."""
    assert 0 == Record({"port": 0}).number("port")
    with pytest.raises(Unreadable, match="no number 'port'"):
        Record({"port": value}).number("port")


def test_a_secret_is_not_in_the_error() -> None:
    """The error ends in a log; it names the field and says nothing of what stood there."""
    assert b"\x01\xff" == Record({"key": "01ff"}).secret("key")
    with pytest.raises(Unreadable) as raised:
        Record({"key": "s3cret"}).secret("key")
    assert "no hexadecimal digits in 'key'" == str(raised.value)
    assert raised.value.__suppress_context__


def test_a_moment_has_its_time_zone() -> None:
    """Two hours east of Greenwich noon is ten o'clock; without a zone it is no moment."""
    record = Record({"ends": "2026-03-01T12:00:00+02:00", "bare": "2026-03-01T12:00:00", "no": "soon"})
    assert datetime(2026, 3, 1, 10, tzinfo=UTC) == record.time("ends")
    with pytest.raises(Unreadable, match="no time zone in 'bare'"):
        record.time("bare")
    with pytest.raises(Unreadable, match="no time 'no'"):
        record.time("no")


def test_what_is_written_is_read_again() -> None:
    """Whole seconds of universal time, in plain letters."""
    moment = datetime(2026, 3, 1, 10, 0, 0, 999_999, tzinfo=UTC)
    content = dump({"site": "Zürich", "ends": written(moment)})
    assert content.isascii()
    assert "2026-03-01T10:00:00+00:00" == Record.parse(content).text("ends")
    assert "Zürich" == Record.parse(content).text("site")
