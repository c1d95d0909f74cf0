"""Whether training runs away: tables of attempts, and runs whose sites answer by a script."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from pfl_common.errors import RunFailed
from pfl_common.spec.rules import MAJORITY, Quorum
from pfl_common.spec.run import Model, Values
from pfl_server.decisions.divergence import LIMIT, Divergence, Outcome, Rate, tell_end, tell_scaling
from pfl_server.decisions.sampling import Draw
from pfl_server.run.training import Training
from tests.server.support.federation import ScriptedFleet, build_spec, open_run
from tests.server.support.lives import TICK, play, trained

NAN, BIG, SAID = "refused:not_finite", "refused:norm", "diverged"


def build_outcome(
    cohort: str, losses: dict[str, str], *, drops: str = "", quorum: Quorum = MAJORITY
) -> Outcome:
    """An attempt with these sites: it is committed if enough are left."""
    draw = Draw(tuple(cohort), frozenset(drops))
    counted = len(set(cohort) - set(drops) - losses.keys())
    return Outcome.of(draw, quorum, counted, losses, committed=counted >= draw.quorum(quorum))


@pytest.mark.parametrize(
    ("outcome", "diverges"),
    [
        (build_outcome("ab", {"a": NAN, "b": BIG}), True),
        (build_outcome("abc", {"a": NAN, "b": SAID}), True),
        (build_outcome("abc", {"a": NAN}), False),
        (build_outcome("abc", {"a": "left", "b": "lease", "c": "deadline"}), False),
        (build_outcome("abc", {"a": "refused:seal", "b": "refused:scores"}), False),
        (build_outcome("ab", {"a": NAN}), True),
        (build_outcome("ab", {"a": NAN, "b": "left"}), False),
        (build_outcome("abcd", {"a": NAN, "b": NAN}), True),
        (build_outcome("abcd", {"a": NAN, "b": NAN}, quorum=0.5), False),
        (build_outcome("abcd", {"a": NAN, "b": NAN, "c": NAN}, quorum=0.25), True),
        (build_outcome("abcde", {"a": NAN, "b": NAN}, drops="c"), True),
        (build_outcome("abc", {"b": SAID, "c": SAID}, drops="bc"), False),
        (build_outcome("a", {"a": SAID}), True),
        (build_outcome("a", {}, drops="a"), False),
    ],
    ids=[
        "all of two",
        "most of three, refused or said",
        "one of three: the round closes",
        "lost for other reasons",
        "refused for other reasons",
        "one of two: nothing but it is missing",
        "one of two, and the other is away",
        "half: nothing but these is missing",
        "half, and the round closes",
        "most, and the round closes all the same",
        "a site drawn to drop out was not expected",
        "only those who were drawn to drop out: the one update that was asked for is well",
        "the only one",
        "nobody was expected",
    ],
)
def test_a_diverging_attempt(outcome: Outcome, diverges: bool) -> None:
    """Most of the updates that were expected run away, or these alone keep the round from closing."""
    assert diverges is outcome.diverges


BAD, GOOD = build_outcome("abc", {"a": NAN, "b": NAN, "c": NAN}), build_outcome("abc", {})
BACK = replace(GOOD, fell_back=True)
AWAY = build_outcome("abc", {"a": "left", "b": "left"})


@pytest.mark.parametrize(
    ("outcomes", "over"),
    [
        ([BAD, BAD, BAD], [False, False, True]),
        ([BAD, BAD, GOOD, BAD, BAD, BAD], [False, False, False, False, False, True]),
        ([BAD, AWAY, BAD, AWAY, BAD], [False, False, False, False, True]),
        ([BAD, BAD, BAD, AWAY, BAD], [False, False, True, False, True]),
        ([GOOD, AWAY, AWAY, AWAY, AWAY], [False] * 5),
        ([BAD, BACK, BAD, BACK, BAD], [False, False, False, False, True]),
        ([BAD, BACK, GOOD, BAD, BACK, BAD], [False] * 6),
    ],
    ids=[
        "three in a row",
        "a round that closes well",
        "losses between",
        "tried again",
        "never",
        "each round falls back",
        "one round was spoilt",
    ],
)
def test_a_run_that_has_to_end(outcomes: list[Outcome], over: list[bool]) -> None:
    """Three in a row, over rounds; what says nothing of training neither counts nor begins the count anew."""
    divergence = Divergence()
    assert over == [divergence.take(outcome) for outcome in outcomes]


@pytest.mark.parametrize(
    ("outcomes", "often"),
    [
        ([BAD, BAD, BAD], "3 attempts in a row"),
        ([BAD, BACK, BAD, BACK, BAD], "3 of 5 attempts"),
        ([BAD, AWAY, BAD, BAD], "3 of 4 attempts"),
        ([BAD, BACK, GOOD, BACK, BAD, BAD], "2 attempts in a row"),
    ],
    ids=["nothing between", "rounds that fell back", "losses", "begun anew"],
)
def test_how_often_it_diverged(outcomes: list[Outcome], often: str) -> None:
    """What lies between is counted too: "in a row" would be wrong."""
    assert often == Divergence(outcomes).often


def test_why_it_ended() -> None:
    """Whose updates, the learning rate and a smaller one, whether inputs are on one scale, and where values lie."""
    plain = Model("mlp", (4,), ("x", "y"))
    told = tell_scaling(plain, {"a": (0.0, 1.0), "b": (-5e6, 3e6), "c": (0.0, 0.0)})
    words = tell_end(BAD, "round 1, attempt 3", often="3 attempts in a row", lr=Rate(100, 0.01), scaling=told)
    for part in (
        "training diverged: 3 attempts in a row, the last of them round 1, attempt 3",
        "updates of a, b, c were not finite or too large, lr is 100",
        "inputs are not standardised (the sites' values, widest first: b: -5e+06 to 3e+06, a: 0 to 1)",
        "--set lr=0.01)",
    ):
        assert part in words
    assert ["0.001", "..."] == [Rate(0.01, 0.01).smaller, Rate(None, None).smaller]
    assert words.endswith(" or with inputs on one scale")
    assert "inputs are standardised" == tell_scaling(replace(plain, mean=(1.0,)), {})


@pytest.mark.parametrize("values", ["bytes", "wide", "unit", "byte_floats"])
def test_pictures_are_on_one_scale(values: Values) -> None:
    """Neither their raw values nor advice on scale is told: every site brings them to 0..1."""
    told = tell_scaling(Model("cnn", (1, 8, 8), ("x", "y"), values=values), {"a": (0.0, 255.0)})
    words = tell_end(BAD, "round 1, attempt 3", often="3 attempts in a row", lr=Rate(100, 0.01), scaling=told)
    assert "0..1;" in words
    assert words.endswith("--set lr=0.01)")
    assert "standardised" in tell_scaling(Model("cnn", (1, 8, 8), ("x", "y"), values="signed"), {})


def test_words_have_no_scale() -> None:
    """Advice to bring texts to one would lead astray."""
    texts = Model("fasttext", (8,), ("x", "y"), values="numbers", kind="tokens", tokens=9)
    told = tell_scaling(texts, {"a": (0.0, 0.0)})
    assert "0" not in told, "no range either"
    assert "on one scale" not in tell_end(
        BAD, "round 1", often="3 attempts in a row", lr=Rate(0.1, 0.1), scaling=told
    )


def fates(*reasons: str, sites: str = "abc") -> dict[tuple[str, int, int], str]:
    """What becomes of these sites' updates in each attempt at the first round."""
    return {(site, 1, n): reason for n, reason in enumerate(reasons, 1) for site in sites}


def test_a_diverging_run_ends_after_three_attempts(tmp_path: Path) -> None:
    """The run fails in words that the sites hear too; the operator sees red from the first attempt on."""
    books = open_run(tmp_path, build_spec(settings={"lr": 100.0}))
    fleet = ScriptedFleet(books, fates(*[NAN] * 9))
    training, seen = Training(books, fleet, tick=TICK), []
    fleet.on_ask = lambda site, task: seen.append((task.attempt, training.status().words))
    with pytest.raises(RunFailed, match="3 attempts") as failed:
        asyncio.run(training.run())
    assert LIMIT == max(attempt for _, _, attempt in trained(fleet))
    assert ("failed", str(failed.value)) == (fleet.over.status, fleet.over.words) == books.journal.status()
    assert "lr is 100" in fleet.over.words
    assert "" == next(words for attempt, words in seen if attempt == 1)
    words = next(words for attempt, words in seen if attempt == 2)
    for fact in ("round 1, attempt 1", "3 of 3"):
        assert fact in words
    errors = [event.words for event in training._observer._events.newest() if event.level == "error"]
    assert 3 == len(errors)
    books.journal.close()


def test_a_killed_coordinator_goes_on_counting(tmp_path: Path) -> None:
    """Two attempts before the kill and one after it are three; a run that failed so fails again when it is no better,
    and goes on when it is.
    """
    spec = build_spec()
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books, fates(*[SAID] * 9))

    async def live() -> None:
        training = asyncio.create_task(Training(books, fleet, tick=TICK).run())
        fleet.on_ask = lambda site, task: training.cancel() if task.attempt == 3 else None
        await asyncio.gather(training, return_exceptions=True)

    asyncio.run(live())
    books.journal.close()
    assert 2 == sum(row["status"] == "abandoned" for row in rows(tmp_path))
    for attempts in (3, 4):
        with pytest.raises(RunFailed, match="diverged"):
            play(tmp_path, spec, fates(*[SAID] * 9))
        assert attempts == len(rows(tmp_path))
    play(tmp_path, spec)
    assert ["committed", "committed"] == [row["status"] for row in rows(tmp_path)][4:]


def rows(folder: Path) -> list[dict[str, object]]:
    books = open_run(folder, build_spec())
    found = books.journal.rounds()
    books.journal.close()
    return found


def test_a_round_that_closes_ends_the_alarm(tmp_path: Path) -> None:
    """Two bad attempts, then a good one: nothing is left to be said."""
    _, _, training = play(tmp_path, build_spec(), fates(BIG, BIG))
    assert ("finished", "") == (training.status().status, training.status().words)
