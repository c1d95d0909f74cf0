"""A run round by round: measured values at the round they belong to, and never more points than can be told."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from pfl_common.evaluation import add, vector
from pfl_common.spec.run import Kind
from pfl_server.telemetry.course import Course
from pfl_server.telemetry.history import MOST, Curve


def went(number: int, *, fold: float = 1.0, work: float = 4.0) -> Course:
    """A round of two seconds."""
    moved = {"down/train": 100, "down/calls": 5, "up/train": 50}
    return Course(number, 1, number * 10.0, number * 10.0 + 2, {"fold": fold, "work": work}, moved)


def scored(correct: int, point: str = "pre") -> dict[str, list[float]]:
    return {f"{point}/test/combined": vector(correct, 10, 0.5)}


def test_what_is_measured_before_training_belongs_to_the_round_before() -> None:
    """After the last round the final task measures; a round nobody measured has no accuracy."""
    curve = Curve()
    for number in (1, 2, 3):
        curve.close(went(number), cohort=3, counted=2)
    curve.measure(Kind.TRAIN, 1, scored(1))
    curve.measure(Kind.TRAIN, 2, scored(4))
    curve.measure(Kind.FINISH, 3, scored(9))
    assert [(1, 0.4), (2, None), (3, 0.9)] == [(point.round, point.accuracy) for point in curve.points()]


def test_a_point_says_over_how_many_sites_its_accuracy_is() -> None:
    """As many as reported, however many were asked; none where nobody measured."""
    curve = Curve()
    for number in (1, 2, 3):
        curve.close(went(number), cohort=3, counted=3)
    curve.measure(Kind.TRAIN, 2, add([scored(4), scored(6)]))
    curve.measure(Kind.FINISH, 3, scored(9))
    assert [2, 0, 1] == [point.measured for point in curve.points()]


def test_what_is_measured_after_training_belongs_to_the_round_itself() -> None:
    """Where both are measured, the shared model's is shown, whichever comes first."""
    curve = Curve()
    for number in (1, 2):
        curve.close(went(number), cohort=1, counted=1)
        curve.measure(Kind.TRAIN, number, scored(number + 4, "post"))
    assert [0.5, 0.6] == [point.accuracy for point in curve.points()]
    curve.measure(Kind.TRAIN, 2, scored(1) | scored(8, "post"))
    assert [0.1, 0.8] == [point.accuracy for point in curve.points()]
    curve.measure(Kind.TRAIN, 1, scored(9, "post"))
    assert [0.1, 0.8] == [point.accuracy for point in curve.points()]


def test_a_point_says_how_the_round_went() -> None:
    """When it ended, how long it took, who was in it, what crossed."""
    curve = Curve()
    curve.close(went(4), cohort=5, counted=3)
    (point,) = curve.points()
    assert (4, 42.0, 2.0, 5, 3, 2) == (
        point.round,
        point.ended,
        point.seconds,
        point.cohort,
        point.counted,
        point.lost,
    )
    assert (105, 50) == (point.bytes_down, point.bytes_up)
    assert {} == point.diagnostics


def test_what_the_method_told_stands_at_its_round() -> None:
    """Closed now, or recalled from a journal."""
    curve, told = Curve(), replace(went(2), diagnostics={"circle/mean": 1.5})
    curve.close(went(1), cohort=2, counted=2)
    curve.close(told, cohort=2, counted=2)
    again, rows = Curve(), ({"status": "committed", "cohort": ["a", "b"], "counted": ["a", "b"]},) * 2
    again.recall([row | {"round": n, "attempt": 1} for n, row in enumerate(rows, 1)], [went(1), told], {})
    assert [{}, {"circle/mean": 1.5}] == [point.diagnostics for point in curve.points()]
    assert curve.points() == again.points()


@pytest.mark.parametrize("rounds", [MOST, MOST + 1, 1000, 12345])
def test_many_rounds_are_thinned_evenly(rounds: int) -> None:
    """The first and the last are there, in order, and nowhere is a gap twice as wide as elsewhere."""
    curve = Curve()
    for number in range(1, rounds + 1):
        curve.close(went(number), cohort=1, counted=1)
    shown = [point.round for point in curve.points()]
    assert (MOST, 1, rounds) == (len(shown), shown[0], shown[-1])
    gaps = {after - before for before, after in pairwise(shown)}
    assert max(gaps) - min(gaps) <= 1


@pytest.mark.parametrize("measured", [1, 2, 500, 996, 999, 1000])
def test_the_newest_measured_round_is_never_left_out(measured: int) -> None:
    """Of very many rounds a part is told; how good the model is now is among it, and the order stays."""
    curve = Curve()
    for number in range(1, 1001):
        curve.close(went(number), cohort=1, counted=1)
    assert None is curve.newest()
    curve.measure(Kind.TRAIN, measured + 1, scored(4))
    shown = curve.points()
    rounds = [point.round for point in shown]
    assert (MOST, 1, 1000) == (len(rounds), rounds[0], rounds[-1])
    assert sorted(set(rounds)) == rounds
    assert [curve.newest()] == [point for point in shown if point.accuracy is not None]
    assert measured == curve.newest().round


def test_phases_are_means_of_the_last_rounds() -> None:
    """Of one site for what sites do, of the round for the rest; what was long ago does not count."""
    curve = Curve()
    curve.close(went(1, fold=1000.0), cohort=2, counted=2)
    for number in range(2, 22):
        curve.close(went(number, fold=1.0 if number % 2 else 3.0), cohort=2, counted=2)
    assert {"fold": 2.0, "work": 2.0} == curve.phases()


def test_a_run_of_an_older_release_has_a_curve_too() -> None:
    """Without times, but with who was counted and how good it was."""
    row = {"round": 1, "attempt": 2, "status": "committed", "cohort": ["a", "b"], "counted": ["a"]}
    curve = Curve()
    curve.recall([row], [], {"000001-2-finish": scored(6)})
    (point,) = curve.points()
    assert (1, 0.0, 1, 0.6) == (point.round, point.ended, point.counted, point.accuracy)
    assert {} == curve.phases()
    curve.recall([row, row | {"round": 2, "attempt": 1}], [went(2)], {})
    assert {"fold": 1.0, "work": 4.0} == curve.phases()
