"""What a coordinator process says of itself: codes of refusals from the start, and no more of a failure than it may."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pfl_common.errors import RunFailed, StateError
from pfl_common.identity.errors import WrongProof
from pfl_server.network.port_limits import PortLimits
from pfl_server.process import Coordinator, _share_out
from pfl_server.settings import ServerSettings
from pfl_server.telemetry.counter_reading import Reading


@pytest.fixture
def coordinator(tmp_path: Path) -> Coordinator:
    made = Coordinator(ServerSettings(method="fedavg", sites=1, state=tmp_path / "state"))
    made.host.runs.close()
    return made


def test_every_code_of_a_refusal_is_there_before_the_first(coordinator: Coordinator) -> None:
    """A series that begins with its first burst has not grown, as Prometheus sees it."""
    refusals = coordinator.view.counters.refusals
    assert {0} == set(refusals.values())
    assert {"late", "seal", "bad_request", "not_a_site", WrongProof.reason} <= refusals.keys()
    assert "session" not in refusals, "that is how every line begins"


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (RunFailed("round 3 was abandoned"), "round 3 was abandoned"),
        (StateError("no room", advice="make some"), "no room; what to do: make some"),
        (ValueError("/secret/place: 0.25 of hospital_a"), "ValueError: see the coordinator's log"),
        (KeyError(), "KeyError: see the coordinator's log"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_is_told_of_a_failure(coordinator: Coordinator, failure: Exception, words: str) -> None:
    """What is raised on purpose is for people; anything else may name paths and values, and is for the log."""
    if isinstance(failure, StateError):
        with pytest.raises(StateError):
            await coordinator._report(failure)
    else:
        await coordinator._report(failure)
    assert ("failed", words) == (coordinator.view.status().status, coordinator.view.status().words)


async def test_what_was_counted_is_written_down_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended in good order it loses nothing: when no call can come any more, and before another may have the folder."""
    coordinator = Coordinator(ServerSettings(method="fedavg", sites=1, state=tmp_path / "state"))
    order: list[str] = []

    async def note() -> Reading:
        order.append("noted")
        return Reading()

    async def stop(grace: float) -> None:
        order.append("no more calls")

    close = coordinator.host.runs.close
    monkeypatch.setattr(coordinator.host.counter_journal, "note", note)
    monkeypatch.setattr(coordinator._grpc, "stop", stop)
    monkeypatch.setattr(coordinator.host.runs, "close", lambda: (order.append("closed"), close()))
    await coordinator._close()
    assert ["no more calls", "noted", "closed"] == order


async def test_what_was_counted_is_written_down_while_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after its run: sites still come for their model."""
    coordinator = Coordinator(ServerSettings(method="fedavg", sites=1, state=tmp_path / "state"))
    ended, ends = asyncio.Event(), asyncio.Event()

    async def keep_noting() -> None:
        await ended.wait()
        coordinator._stopping.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends.set()

    async def run() -> None:
        ended.set()

    monkeypatch.setattr(coordinator.host.counter_journal, "keep_noting", keep_noting)
    monkeypatch.setattr(coordinator.host, "run", run)
    assert 0 == await asyncio.wait_for(coordinator._play(), 10)
    await asyncio.wait_for(ends.wait(), 10)
    coordinator.host.runs.close()


@pytest.mark.parametrize(("descriptors", "warned"), [(300, True), (65_536, False)])
def test_few_descriptors_are_told(monkeypatch: pytest.MonkeyPatch, descriptors: int, warned: bool) -> None:
    """Who expects a thousand sites on a machine that gives three hundred files learns it at the start."""
    monkeypatch.setattr("pfl_server.process.raise_limit", lambda: descriptors)
    with capture_logs() as log:
        limits = _share_out(1000)
    assert warned == (limits.sites < 1000) == bool(log)
    assert not log or (descriptors, limits.sites) == (log[0]["descriptors"], log[0]["room_for"])


async def test_each_port_gets_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of sites, of those who enrol, and readers."""
    settings = ServerSettings(method="fedavg", sites=4000, state=tmp_path / "state", host="127.0.0.1")
    coordinator = Coordinator(settings)
    given = dict[str, dict[str, object]]()

    def note(port: str) -> Callable[..., Awaitable[int]]:
        async def start(*_: object, **words: object) -> int:
            given[port] = words
            return 1

        return start

    for port in ("_grpc", "_enrolment"):
        monkeypatch.setattr(getattr(coordinator, port), "start", note(port))
    monkeypatch.setattr(coordinator._web, "start", lambda *_, most: note("_web")(most=most))
    await coordinator._open()
    limits = coordinator._limits
    assert limits.sites != PortLimits.sites, "or it could be what a port has without a word"
    assert (limits.sites, limits.enrolling, limits.readers) == (
        given["_grpc"]["lines"],
        given["_enrolment"]["lines"],
        given["_web"]["most"],
    )
    coordinator.host.runs.close()
