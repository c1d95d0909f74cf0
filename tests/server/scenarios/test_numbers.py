"""The coordinator's numbers: what is declared is exposed and nothing else, and a run fills in all of it."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as read_older_text

from pfl_common.app.config import settle
from pfl_common.spec.messages import RunStatus
from pfl_deploy.simulation.loopback import OpenEnvelopes
from pfl_deploy.simulation.simulate import play
from pfl_server.run import counter_journal
from pfl_server.run.host import RunHost
from pfl_server.settings import ServerSettings
from pfl_server.status.exporter import NUMBERS, CoordinatorMetrics
from pfl_server.status.view import View
from pfl_server.store.journal import Journal
from tests.deploy.support.processes import write_site
from tests.deploy.support.tools import tool

GATHERED = 5
GIVEN = {"rounds": 4, "drop": 0.4, "seed": 2, "fewest_reporters": 1, "site_metrics": True}
Labels = frozenset[tuple[str, str]]
COUNTING = {"counter": ("_total",), "summary": ("_count", "_sum")}
SUFFIX = {"counter": ("_total",), "gauge": ("",), "info": ("_info",), "summary": ("_count", "_sum")}


def read(view: View) -> dict[str, dict[Labels, float]]:
    """What a strict reader finds, by the sample's name and labels."""
    registry = CollectorRegistry()
    registry.register(CoordinatorMetrics(view))
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def value(found: dict[str, dict[Labels, float]], name: str, **labels: str) -> float:
    return found[name][frozenset(labels.items())]


def open_view(folder: Path, method: str, **given: object) -> tuple[RunHost, View]:
    words = {"method": method, "sites": 2, "rounds": 2, "backbone": "mlp", "quorum": 1.0, "state": folder}
    host = RunHost(settle(ServerSettings, words | given, what="test"), OpenEnvelopes())
    return host, View(host, lambda sites: {"authority": 9e9, "coordinator": 8e9, "site_soonest": 7e9})


async def run_to_the_end(folder: Path, method: str, **given: object) -> tuple[RunHost, View]:
    """A small federation in this process; its state folder may have held others before."""
    data = [folder / "data" / name for name in ("hospital_a", "hospital_b")]
    for number, place in enumerate(data):
        if not place.exists():
            write_site(place, samples=24, size=12, seed=number)
    host, view = open_view(folder / "coordinator", method, **given)
    # As if sites had come over a network: the simulator has none.
    host.record.meter.moved("up", "calls", GATHERED)
    await play(host, data, folder / "sites" / method)
    await view.look()
    return host, view


@pytest.fixture
async def played(tmp_path: Path) -> tuple[RunHost, View]:
    """A run after one of a plain method, with a site drawn to drop out now and then."""
    await run_to_the_end(tmp_path, "fedavg", **GIVEN)
    return await run_to_the_end(tmp_path, "dualfed", new_run=True, **GIVEN)


async def test_all_that_is_declared_and_nothing_else(played: tuple[RunHost, View]) -> None:
    """Each number shows up in a real run with just the labels it was declared with."""
    host, view = played
    host.record.meter.refusals["seal"] += 1
    await view.look()
    found = read(view)
    declared = {number.name + suffix: number for number in NUMBERS for suffix in SUFFIX[number.kind]}
    assert declared.keys() == found.keys()
    for name, samples in found.items():
        for labels in samples:
            assert set(declared[name].labels) == {label for label, _ in labels}, name
    naming = {
        name
        for name, samples in found.items()
        for labels in samples
        for _, value in labels
        if "hospital" in value
    }
    assert {"pfl_member_here", "pfl_member_counted_total"} == naming


async def test_by_default_no_series_names_a_site_and_no_mean_is_of_few(tmp_path: Path) -> None:
    """Two sites measured: their accuracy is told neither by metrics nor by the status, which says of how many it is."""
    _, view = await run_to_the_end(tmp_path, "fedavg")
    found = read(view)
    labels = {value for samples in found.values() for each in samples for _, value in each}
    assert not any("hospital" in value for value in labels)
    assert {"pfl_member_here", "pfl_accuracy_ratio", "pfl_gain_ratio"}.isdisjoint(found)
    status = view.status()
    assert ({}, 5) == (status.scores, status.fewest_reporters)
    assert {(2, None)} == {(point.measured, point.accuracy) for point in status.curve}


async def test_they_say_what_happened(played: tuple[RunHost, View]) -> None:
    """Rounds, losses, times and accuracies are those of the run, of its journal and of its status."""
    host, view = played
    found, status, rounds = read(view), view.status(), host.books.journal.rounds()
    assert 1.0 == value(found, "pfl_run_state", state="finished")
    assert 1.0 == sum(found["pfl_run_state"].values())
    assert (4.0, 4.0, 1.0) == tuple(
        value(found, name) for name in ("pfl_rounds_planned", "pfl_round", "pfl_round_attempt")
    )
    outcomes = Counter(str(row["status"]) for row in rounds)
    assert outcomes["committed"] == value(found, "pfl_rounds_total", outcome="committed")
    assert outcomes["abandoned"] == value(found, "pfl_rounds_total", outcome="abandoned")
    assert outcomes["committed"] == value(found, "pfl_round_seconds_count", outcome="committed")
    dropped = sum(list(row["losses"].values()).count("dropped") for row in rounds)
    assert dropped > 0
    assert dropped == value(found, "pfl_losses_total", reason="dropped", stage="drawn")
    labels = {"split": "test", "view": "combined"}
    macro = value(found, "pfl_accuracy_ratio", statistic="macro", **labels)
    assert status.scores["acc_macro"] == macro
    assert -1 <= value(found, "pfl_gain_ratio", baseline="fedavg") <= 1
    assert frozenset({("baseline", "local")}) not in found["pfl_gain_ratio"]
    assert status.started == value(found, "pfl_run_started_timestamp_seconds")
    assert status.started <= value(found, "pfl_round_opened_timestamp_seconds")
    assert status.curve[-1].ended == value(found, "pfl_round_closed_timestamp_seconds")
    assert value(found, "pfl_checkpoint_timestamp_seconds") <= status.now
    assert 0 < value(found, "pfl_disk_used_bytes") < value(found, "pfl_disk_free_bytes")


async def test_the_seconds_of_a_round_lie_in_its_phases(played: tuple[RunHost, View]) -> None:
    """A site that was counted worked, sent and was verified once; no phase took longer than all rounds."""
    host, view = played
    found = read(view)
    counted = sum(len(row["counted"]) for row in host.books.journal.rounds())
    for phase in ("work", "upload", "verify"):
        assert counted == value(found, "pfl_phase_seconds_count", phase=phase), phase
    ended = sum(found["pfl_rounds_total"].values())
    for phase in ("wait", "seal", "fold"):
        assert ended == value(found, "pfl_phase_seconds_count", phase=phase), phase
    assert 4 == value(found, "pfl_phase_seconds_count", phase="commit")
    lasted = sum(found["pfl_round_seconds_sum"].values())
    for phase in ("seal", "fold", "commit"):
        assert 0 <= value(found, "pfl_phase_seconds_sum", phase=phase) <= lasted, phase
    # Both sites work at the same time.
    for phase in ("work", "upload", "verify"):
        assert 0 < value(found, "pfl_phase_seconds_sum", phase=phase) <= 2 * lasted, phase


async def test_the_status_tells_the_same_curve_after_a_restart(
    played: tuple[RunHost, View], tmp_path: Path
) -> None:
    """What the journal has of a run is what the status says of it, in this life and in the next."""
    _, view = played
    before: RunStatus = view.status()
    assert [1, 2, 3, 4] == [point.round for point in before.curve]
    # The worst tenth is known to the width of a bin.
    assert all(point.accuracy is not None for point in before.curve)
    assert all(point.worst_decile <= point.accuracy + 0.5 / 100 for point in before.curve)
    assert all(0 < point.seconds for point in before.curve)
    assert [point.cohort - point.counted for point in before.curve] == [p.lost for p in before.curve]
    assert before.scores["acc_macro"] == before.curve[-1].accuracy
    assert any("finished" in event.words and "round 4" in event.words for event in before.events)

    again, later = open_view(tmp_path / "coordinator", "dualfed", **{**GIVEN, "new_run": False})
    running = asyncio.create_task(again.run())
    try:
        for _ in range(3000):
            await asyncio.sleep(0.01)
            if later.watch is not None and later.watch.status == "finishing":
                break
        after, found = later.status(), read(later)
    finally:
        running.cancel()
        again.runs.close()
    assert before.curve == after.curve
    assert (before.round, before.scores) == (after.round, after.scores)
    assert numbers(read(view)) == numbers(found)
    assert (before.started, before.phases, before.spec) == (after.started, after.phases, after.spec)
    for fact in ("finished", "round 4"):
        assert fact in after.events[0].words
    assert not any(event.words.startswith("run finished") for event in after.events)
    closed = [event.words for event in before.events if " closed: " in event.words]
    assert closed == [event.words for event in after.events if " closed: " in event.words]


def numbers(found: dict[str, dict[Labels, float]]) -> list[dict[Labels, float]]:
    """What is told of the last round, of how good the model is, and of all that was counted so far."""
    names = ("pfl_accuracy_ratio", "pfl_gain_ratio", "pfl_round", "pfl_round_counted", "pfl_round_cohort")
    counters = [f"{number.name}{suffix}" for number in NUMBERS for suffix in COUNTING.get(number.kind, ())]
    assert {"pfl_bytes_total", "pfl_round_seconds_sum", "pfl_losses_total"} < set(counters)
    return [found.get(name, {}) for name in (*names, *counters)]


async def test_what_crossed_before_the_run_is_in_no_round(played: tuple[RunHost, View]) -> None:
    """It is counted, and a coordinator that is killed at once still knows it; rounds have their own bytes alone."""
    host, view = played
    journal = host.books.journal
    assert GATHERED == value(read(view), "pfl_bytes_total", direction="up", kind="calls")
    assert GATHERED == journal.readings()["now"].bytes["up/calls"]
    assert [{}] * 4 == [course.bytes for course in journal.course()]


async def test_no_counter_begins_at_nothing_and_jumps(played: tuple[RunHost, View]) -> None:
    """Until the journal was read there is none of the run's; a jump would be taken for as many rounds at once."""
    host, view = played
    host.played.training.watch.recalled = False
    found = read(view)
    assert not {"pfl_rounds_total", "pfl_round_seconds_count", "pfl_losses_total"} & found.keys()
    assert 1.0 == value(found, "pfl_run_state", state="finished")


async def test_what_is_told_is_written_down_before(played: tuple[RunHost, View]) -> None:
    """A counter that fell back with a kill would be taken for one that has begun again and grown by all it has."""
    host, view = played
    host.record.meter.moved("down", "finish", 7)
    assert 0 == value(read(view), "pfl_bytes_total", direction="down", kind="finish")
    await view.look()
    assert 7 == value(read(view), "pfl_bytes_total", direction="down", kind="finish")
    assert 7 == host.books.journal.readings()["now"].bytes["down/finish"]


async def test_it_is_written_down_now_and_then(
    played: tuple[RunHost, View], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody looks, a kill costs no more than what was counted in the last seconds."""
    host, _ = played
    monkeypatch.setattr(counter_journal, "NOTED_SECONDS", 0.001)
    noting = asyncio.create_task(host.counter_journal.keep_noting())
    try:
        for number in (1, 2):
            host.record.meter.moved("down", "finish", 7)
            for _ in range(3000):
                await asyncio.sleep(0.01)
                noted = (await host.books.journal.readings.soon())["now"]
                if noted.bytes["down/finish"] == number * 7:
                    break
            assert number * 7 == noted.bytes["down/finish"]
    finally:
        noting.cancel()


async def test_a_full_disk_stops_no_scrape(
    played: tuple[RunHost, View], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be written down is told all the same."""
    host, view = played
    journal = host.books.journal
    monkeypatch.setattr(Journal, "note", property(lambda _: Full()))
    host.record.meter.moved("down", "finish", 7)
    await view.look()
    assert 7 == value(read(view), "pfl_bytes_total", direction="down", kind="finish")
    assert 0 == journal.readings()["now"].bytes["down/finish"]


async def test_a_slow_disk_stops_no_scrape(
    played: tuple[RunHost, View], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the disk has not taken yet is not told yet, what was told before is told again, and then all of it."""
    host, view = played
    monkeypatch.setattr(counter_journal, "NOTE_SECONDS", 0.05)
    before = value(read(view), "pfl_bytes_total", direction="down", kind="finish")
    moves = threading.Event()
    host.books.journal.scribe.ask(lambda page: moves.wait(60))
    host.record.meter.moved("down", "finish", 7)
    for _ in range(2):
        await asyncio.wait_for(view.look(), 30)
        assert before == value(read(view), "pfl_bytes_total", direction="down", kind="finish")
    moves.set()
    monkeypatch.setattr(counter_journal, "NOTE_SECONDS", 30)
    await view.look()
    assert before + 7 == value(read(view), "pfl_bytes_total", direction="down", kind="finish")
    assert before + 7 == host.books.journal.readings()["now"].bytes["down/finish"]


class Full:
    """Something to ask of a journal on a full disk."""

    async def soon(self, *words: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")


async def test_before_the_run(tmp_path: Path) -> None:
    """From the first second on there is a state, and no round that never was."""
    host, view = open_view(tmp_path / "coordinator", "dualfed")
    await view.look()
    found = read(view)
    host.runs.close()
    assert 1.0 == value(found, "pfl_run_state", state="gathering")
    assert [0.0] * 3 == [value(found, "pfl_sites", state=state) for state in ("here", "away", "left")]
    assert 2.0 == value(found, "pfl_rounds_planned")
    assert 9e9 == value(found, "pfl_certificate_end_timestamp_seconds", of="authority")
    assert "pfl_round" not in found
    assert {"sites": 2, "rounds": 2}.items() <= view.status().spec.items()


async def test_the_names_are_as_prometheus_wants_them(played: tuple[RunHost, View]) -> None:
    """Prometheus's own check of a page has nothing to say."""
    registry = CollectorRegistry()
    registry.register(CoordinatorMetrics(played[1]))
    encode, _ = choose_encoder("*/*")
    words = [tool("promtool", "prometheus"), "check", "metrics"]
    said = await asyncio.to_thread(
        subprocess.run, words, input=encode(registry), capture_output=True, timeout=30, check=False
    )
    assert (0, b"", b"") == (said.returncode, said.stdout, said.stderr)


def test_who_cannot_read_openmetrics_gets_the_older_text(tmp_path: Path) -> None:
    """Tools that check a page read the older format; all names are found in it too."""
    host, view = open_view(tmp_path / "coordinator", "dualfed")
    host.runs.close()
    registry = CollectorRegistry()
    registry.register(CoordinatorMetrics(view))
    encode, kind = choose_encoder("*/*")
    assert kind.startswith("text/plain")
    names = {family.name for family in read_older_text(encode(registry).decode())}
    assert {"pfl_bytes", "pfl_run_info", "pfl_phase_seconds"} <= names
