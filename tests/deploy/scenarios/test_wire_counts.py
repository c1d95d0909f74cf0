"""The bytes that both programs count are those that crossed, by the network interface's own counter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any  # what the programs counted, as JSON

import pytest

from tests.deploy.support.counting import NO_NETWORK

MOST_MISSING = 0.02
"""What TLS, HTTP/2, TCP and IP add is not counted, nor what the test itself reads."""

ADDED_BY_CALLS = 1300
"""Bytes that TLS, HTTP/2, TCP and IP add to the three calls of a site in a round, at the most."""

LARGEST_ENROLMENT = 4000
"""Bytes of the messages with which a site gets its certificate and card, each way."""


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One federation, played in a network of its own."""
    return play(tmp_path_factory.mktemp("counting"))


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One whose coordinator is killed in the second of three rounds."""
    return play(tmp_path_factory.mktemp("disturbed"), "killed")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One in which only prototypes cross."""
    return play(tmp_path_factory.mktemp("small"), "small")


def play(folder: Path, *words: str) -> dict[str, Any]:
    """What was counted of a federation."""
    words = (sys.executable, "-m", "tests.deploy.support.counting", str(folder), *words)
    top = Path(__file__).parents[3]
    played = subprocess.run(words, capture_output=True, text=True, cwd=top, timeout=110, check=False)
    if played.returncode == NO_NETWORK:
        pytest.skip("this system gives no network of its own (unshare, of util-linux)")
    assert 0 == played.returncode, played.stderr
    return json.loads(played.stdout)


def check_close(interface: int, counts: dict[str, float]) -> None:
    """All that was counted crossed, and hardly anything else did."""
    missing = 1 - sum(counts.values()) / interface
    assert 0 <= missing <= MOST_MISSING, f"{missing:.2%} of {interface} bytes: {counts}"


def test_the_coordinator_counts_what_crosses(counted: dict[str, Any]) -> None:
    """In the middle of a run and at its end, all kinds together."""
    assert [0, 0] == counted["ended"]
    for moment in ("between", "last"):
        check_close(counted[moment]["interface"], counted[moment]["coordinator"])
    counts = counted["last"]["coordinator"]
    model = counts["down/init"] / 2
    assert model > 4_000_000
    for kind, times in (("down/train", 4), ("down/finish", 2), ("up/train", 4)):
        assert times * model == pytest.approx(counts[kind], rel=0.001), kind
    assert 0 < counts["down/calls"] + counts["up/calls"] < 0.01 * sum(counts.values())


def test_rounds_last_as_long_as_the_sites_see(counted: dict[str, Any]) -> None:
    """From its task to the next one a site sees the round, its commit and the way there, by its own clock."""
    first, second = (point["seconds"] for point in counted["told"][0]["curve"])
    assert first + second == pytest.approx(counted["seconds"]["committed"], abs=0.001)
    for begun in counted["tasks"]:
        one, two, over = begun
        assert min(two - one, over - two) > 1
        # The way there is in both, and on a busy machine the first is longer.
        assert 0.9 * (two - one) - 0.3 <= first <= 1.1 * (two - one) + 0.3
        assert 0.9 * (over - two) - 0.3 <= second <= 1.1 * (over - two) + 0.3


def test_the_sites_count_what_crosses(counted: dict[str, Any]) -> None:
    """Each its own part: together they are what the interface carried."""
    between = counted["between"]
    assert 2 == counted["uploads"], "both sites were training when they were asked"
    total: dict[str, float] = {}
    for counts in between["sites"]:
        for place, count in counts.items():
            total[place] = total.get(place, 0) + count
    check_close(between["interface"], total)


def test_the_page_and_the_command_tell_the_same(counted: dict[str, Any]) -> None:
    """`/status.json` and `pfl status --json` differ in the moment they were asked, and the curve has the bytes."""
    page, command = counted["told"]
    for status in (page, command):
        status.pop("now")
        for site in status["sites"]:
            site.pop("seen_seconds")
    assert page == command
    assert [1, 2] == [point["round"] for point in page["curve"]]
    last = counted["last"]["coordinator"]
    until_the_end = sum(point["bytes_up"] for point in page["curve"])
    assert last["up/train"] < until_the_end <= last["up/train"] + last["up/calls"]


def test_both_sides_count_alike(counted: dict[str, Any]) -> None:
    """Whole files to the byte; beside calls the coordinator counts what a site sends before it is one, to enrol."""
    between = counted["between"]
    for place, count in between["coordinator"].items():
        seen = sum(site[place] for site in between["sites"] if place in site)
        if not place.endswith("/calls"):
            assert count == seen, place
        else:
            assert count - LARGEST_ENROLMENT * len(between["sites"]) <= seen <= count, place


def test_a_killed_coordinator_counts_on(disturbed: dict[str, Any]) -> None:
    """Its next life begins with all that was told before, and at the end there is what crossed in both."""
    assert [0, 0] == disturbed["ended"]
    for place, count in disturbed["killed"]["coordinator"].items():
        assert count <= disturbed["at_once"][place], place
    last = disturbed["last"]
    check_close(last["interface"], last["coordinator"])
    model = last["coordinator"]["down/init"] / 2
    for kind in ("down/train", "up/train"):
        assert 6 * model == pytest.approx(last["coordinator"][kind], rel=0.001), kind


def test_the_rounds_of_a_killed_coordinator_are_told_as_they_were(disturbed: dict[str, Any]) -> None:
    """The one that it died in has all its bytes, once, and the time from its first opening on."""
    last = disturbed["last"]
    first, second, third = last["told"]["curve"]
    model = last["coordinator"]["down/init"] / 2
    for way in ("bytes_down", "bytes_up"):
        assert 2 * model == pytest.approx(second[way], rel=MOST_MISSING), way
        assert 2 * model == pytest.approx(third[way], rel=MOST_MISSING), way
    assert disturbed["opened"] == pytest.approx(second["ended"] - second["seconds"], abs=0.001)
    assert last["coordinator"]["down/finish"] == pytest.approx(2 * model, rel=0.001)
    moved = sum(point["bytes_down"] + point["bytes_up"] for point in (first, second, third))
    assert sum(last["coordinator"].values()) - 2 * model == pytest.approx(moved, rel=MOST_MISSING)


def test_a_finished_run_served_again_tells_the_same(disturbed: dict[str, Any]) -> None:
    """Nobody has called: to the byte."""
    last, again = disturbed["last"], disturbed["again"]
    assert last["coordinator"] == again["coordinator"]
    assert last["told"]["curve"] == again["told"]["curve"]
    assert ["left", "left"] == [site["phase"] for site in again["told"]["sites"]]
    words = [event["words"] for event in again["told"]["events"]]
    assert any("finished" in word and "round 3" in word for word in words)
    assert not any(word.startswith("run finished") for word in words)


def test_where_little_crosses_what_the_network_adds_is_known(small: dict[str, Any]) -> None:
    """Beside a few kilobytes a round it is a share that counts: so many bytes a call, as metrics.md says."""
    first, last = small["first"], small["last"]
    visits = 2 * (last["closed"] - first["closed"])
    assert visits >= 50
    counted = sum(last["coordinator"].values()) - sum(first["coordinator"].values())
    assert 0 < last["interface"] - first["interface"] - counted < ADDED_BY_CALLS * visits
