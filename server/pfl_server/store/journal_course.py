"""The journal's record of how attempts went: written with an attempt's end, and read to go on counting."""

from __future__ import annotations

import json

from pfl_server.store.journal_thread import Page
from pfl_server.telemetry.course import Course

NOTE = "insert or replace into reading (moment, numbers) values (?, ?)"
COURSES = """
select round, attempt, opened, ended, seconds, bytes, coalesce(diagnosis.numbers, '{}'), coalesce(loss.numbers, '{}')
from course left join diagnosis using (round, attempt) left join loss using (round, attempt) order by round, attempt
"""


def write_course(page: Page, course: Course | None) -> None:
    """With an attempt's end, in the same transaction; nothing where nobody recorded it."""
    if course is None:
        return
    place = course.round, course.attempt
    page.write(
        "insert or replace into course (round, attempt, opened, ended, seconds, bytes)"
        " values (?, ?, ?, ?, ?, ?)",
        *place,
        course.opened,
        course.ended,
        *(json.dumps(dict(part), sort_keys=True) for part in (course.seconds, course.bytes)),
    )
    for table, numbers in (("diagnosis", course.diagnostics), ("loss", course.losses)):
        if numbers:
            words = json.dumps(dict(numbers), sort_keys=True)
            page.write(
                f"insert or replace into {table} (round, attempt, numbers) values (?, ?, ?)", *place, words
            )
    if course.reading is not None:
        # Not as `now`: on a full disk this may be written late, over what was noted since.
        page.write(NOTE, "closed", course.reading.to_json())


def read_courses(page: Page) -> list[Course]:
    """The record of each attempt that has one, oldest first."""
    return [Course(*row[:4], *(json.loads(text) for text in row[4:])) for row in page.rows(COURSES)]
