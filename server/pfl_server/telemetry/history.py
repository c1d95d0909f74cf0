"""A run's rounds so far, as the status page draws them and `pfl status` lists them."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import cast

from pfl_common import evaluation
from pfl_common.spec.messages import Point, Scores
from pfl_common.spec.run import ClientId, Kind
from pfl_server.telemetry.counters import SITE_PHASES
from pfl_server.telemetry.course import Course

MOST = 400
"""Points that are told at once."""
RECENT = 20
"""Rounds over which the seconds of a phase are averaged."""
COMBINED = "test/combined"


class Curve:
    """The committed rounds; restored from the journal after a restart."""

    def __init__(self) -> None:
        self._points: dict[int, Point] = {}
        self._measured: dict[int, tuple[str, dict[str, float]]] = {}
        self._recent: deque[Mapping[str, float]] = deque(maxlen=RECENT)

    def recall(
        self,
        rounds: Iterable[Mapping[str, object]],
        courses: Iterable[Course],
        summed: Mapping[str, Scores],
    ) -> None:
        """All that a journal knows."""
        went = {(course.round, course.attempt): course for course in courses}
        for row in rounds:
            number, attempt = cast(int, row["round"]), cast(int, row["attempt"])
            if row["status"] != "committed":
                continue
            course = went.get((number, attempt), Course(number, attempt, 0.0, 0.0, {}, {}))
            cohort, counted = (len(cast(list[ClientId], row[name])) for name in ("cohort", "counted"))
            self.close(course, cohort=cohort, counted=counted)
        for key, total in sorted(summed.items()):
            number_text, _, kind = key.split("-")
            self.measure(Kind(kind), int(number_text), total)

    def close(self, course: Course, *, cohort: int, counted: int) -> None:
        """A round was committed."""
        seconds = course.ended - course.opened
        moved = {
            way: sum(size for name, size in course.bytes.items() if name.startswith(way + "/"))
            for way in ("down", "up")
        }
        self._points[course.round] = Point(
            course.round,
            course.ended,
            seconds,
            cohort,
            counted,
            cohort - counted,
            bytes_down=moved["down"],
            bytes_up=moved["up"],
            diagnostics=dict(course.diagnostics),
        )
        if not course.ended:
            # Of a round that an older release played nothing is known here; it did not take no time.
            return
        each = max(1, counted)
        self._recent.append(
            {phase: spent / (each if phase in SITE_PHASES else 1) for phase, spent in course.seconds.items()}
        )

    def measure(self, kind: Kind, number: int, total: Scores) -> None:
        """A task's measurements were summed. What was measured before training is of the state after the round before;
        where a round was measured at both points, that one is shown.
        """
        for point, after in (("post", number), ("pre", number if kind is Kind.FINISH else number - 1)):
            values = total.get(f"{point}/{COMBINED}")
            known, _ = self._measured.get(after, ("post", {}))
            if values is not None and (point == "pre" or known == "post"):
                self._measured[after] = point, evaluation.summary(values)

    def points(self) -> tuple[Point, ...]:
        """Oldest first; of very many a part, evenly chosen, with the first, the newest measured and the last."""
        numbers = sorted(self._points)
        if len(numbers) > MOST:
            last = len(numbers) - 1
            numbers = [numbers[round(place * last / (MOST - 1))] for place in range(MOST)]
            newest = self.newest()
            if newest is not None and newest.round not in numbers:
                numbers[max(1, bisect_right(numbers, newest.round) - 1)] = newest.round
        return tuple(self._told(number) for number in numbers)

    def newest(self) -> Point | None:
        """The last round of which it is known how good the model was after it."""
        measured = self._points.keys() & self._measured.keys()
        return self._told(max(measured)) if measured else None

    def phases(self) -> dict[str, float]:
        """Mean seconds by phase over the last rounds."""
        names = sorted({phase for spent in self._recent for phase in spent})
        return {
            name: sum(spent.get(name, 0.0) for spent in self._recent) / len(self._recent) for name in names
        }

    def _told(self, number: int) -> Point:
        if number not in self._measured:
            return self._points[number]
        _, found = self._measured[number]
        return replace(
            self._points[number],
            accuracy=found["acc_macro"],
            spread=found["acc_std"],
            worst_decile=found["acc_worst_decile"],
            measured=round(found["sites"]),
        )
