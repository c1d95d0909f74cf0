"""The record of an attempt is read as it was written."""

from __future__ import annotations

from pathlib import Path

from pfl_server.decisions.sampling import Draw
from pfl_server.store.journal import Journal
from pfl_server.store.journal_course import COURSES
from pfl_server.telemetry.course import Course


def test_a_record_is_read_back(tmp_path: Path) -> None:
    """With what the method told and who was lost; an attempt without a record has none."""
    journal = Journal(tmp_path / "journal.sqlite", durability="process")
    draw = Draw(("a",), frozenset())
    course = Course(1, 1, 5.0, 6.5, {"train": 1.5}, {"up/train": 7}, {"own": 0.25}, {"lease/working": 1})
    for number, record in ((1, course), (2, None)):
        journal.open_attempt(number, ("a",), draw)
        journal.commit(number, 1, ("a",), {}, course=record)
    assert [course] == journal.course()
    assert "left join" in COURSES
    journal.close()
