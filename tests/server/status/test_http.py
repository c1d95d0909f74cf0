"""What can be seen over HTTP: OpenMetrics without names of sites, health, readiness and the status as JSON."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pfl_common.errors import UserError
from pfl_common.evaluation import add, summary, vector
from pfl_common.spec.messages import Point, RunStatus, SiteStatus
from pfl_server.run.attempt import Watch
from pfl_server.status.http import WebServer, _listen
from pfl_server.telemetry.counter_reading import Reading
from pfl_server.telemetry.counters import Meter

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@dataclass
class Scene:
    """What a scrape looks at."""

    watch: Watch | None = None
    meter: Meter = field(default_factory=Meter)
    named: tuple[str, str, str] = ("run-1", "fedavg", "0.1.0")
    state: str = "running"
    planned: int = 9
    heard: tuple[int, int, int] = (1, 1, 2)
    members: dict[str, tuple[bool, int]] = field(default_factory=dict)
    around: dict[str, float] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    looked: int = 0

    @property
    def counters(self) -> Reading:
        return self.meter.read()

    async def look(self) -> None:
        self.looked += 1

    def status(self) -> RunStatus:
        sites = (SiteStatus("hospital_a", "here", 0.1, "waiting"), SiteStatus("hospital_b", "away", 60.0))
        curve = (Point(1, 20.0, 10.0, 2, 2, 0, 0.5), Point(2, 30.0, 10.0, 2, 1, 1))
        return RunStatus(
            "run-1", "fedavg", "running", 3, 9, 1, sites=sites, scores={"loss": 0.1}, curve=curve
        )


def under_way() -> Scene:
    total = add([{"pre/test/combined": vector(correct, 10, 0.4)} for correct in (4, 9)])
    watch = Watch(
        round=3,
        attempt=1,
        opened=100.0,
        awaited=("hospital_a",),
        outcomes=Counter(committed=2, abandoned=1),
        losses=Counter({("lease", "working"): 1}),
        cohort=2,
        counted=1,
        scores={"test/combined": summary(total["pre/test/combined"])},
        baselines={"local": 0.5},
    )
    watch.seconds["committed"].add(1.5)
    scene = Scene(watch, around={"pfl_disk_free_bytes": 5e9}, ends={"authority": 4e9})
    scene.meter.moved("up", "train", 100)
    scene.meter.moved("down", "evaluate", 900)
    scene.meter.took("fold", 0.25)
    scene.meter.refusals["size"] += 1
    return scene


@pytest.fixture
async def ready() -> dict[str, bool]:
    return {"now": True}


@pytest.fixture
async def scene() -> Scene:
    return under_way()


@pytest.fixture
async def client(scene: Scene, ready: dict[str, bool]) -> AsyncIterator[httpx.AsyncClient]:
    server = WebServer(scene, ready=lambda: ready["now"])
    port = await server.start("127.0.0.1", 0)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False) as client:
        yield client
    await server.stop()


async def samples(client: httpx.AsyncClient) -> dict[tuple[str, str], float]:
    """All samples by name and labels; reading them checks the format."""
    answer = await client.get("/metrics", headers={"accept": OPENMETRICS})
    assert 200 == answer.status_code
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_metrics_of_a_run_under_way(client: httpx.AsyncClient) -> None:
    """Every number of the scene is found under its name."""
    found = await samples(client)
    expected = {
        ("pfl_run_info", "fedavg,run-1,0.1.0"): 1,
        ("pfl_run_state", "running"): 1,
        ("pfl_run_state", "failed"): 0,
        ("pfl_sites", "here"): 1,
        ("pfl_sites", "away"): 1,
        ("pfl_sites", "left"): 2,
        ("pfl_rounds_planned", ""): 9,
        ("pfl_round", ""): 3,
        ("pfl_round_attempt", ""): 1,
        ("pfl_round_opened_timestamp_seconds", ""): 100,
        ("pfl_round_closed_timestamp_seconds", ""): None,
        ("pfl_round_cohort", ""): 2,
        ("pfl_round_counted", ""): 1,
        ("pfl_round_awaited", ""): 1,
        ("pfl_round_seconds_sum", "committed"): 1.5,
        ("pfl_round_seconds_count", "abandoned"): 0,
        ("pfl_rounds_total", "committed"): 2,
        ("pfl_rounds_total", "abandoned"): 1,
        ("pfl_losses_total", "lease,working"): 1,
        ("pfl_phase_seconds_sum", "fold"): 0.25,
        ("pfl_accuracy_ratio", "test,macro,combined"): 0.65,
        ("pfl_accuracy_ratio", "test,std,combined"): 0.25,
        ("pfl_gain_ratio", "local"): 0.15,
        ("pfl_bytes_total", "up,train"): 100,
        ("pfl_bytes_total", "down,evaluate"): 900,
        ("pfl_bytes_total", "down,train"): 0,
        ("pfl_refusals_total", "size"): 1,
        ("pfl_certificate_end_timestamp_seconds", "authority"): 4e9,
        ("pfl_disk_free_bytes", ""): 5e9,
    }
    assert expected == pytest.approx({key: found.get(key) for key in expected})
    assert ("process_resident_memory_bytes", "") in found


async def test_no_metric_names_a_site(client: httpx.AsyncClient) -> None:
    """Thousands of sites must not become thousands of series, and names do not leave by this door."""
    assert "hospital" not in (await client.get("/metrics")).text


async def test_before_the_run(scene: Scene, client: httpx.AsyncClient) -> None:
    """There is something to scrape from the first second on."""
    scene.watch = None
    found = await samples(client)
    assert 1 == found["pfl_sites", "here"]
    assert ("pfl_round", "") not in found


async def test_a_scrape_reads_what_is_now(scene: Scene, client: httpx.AsyncClient) -> None:
    """Nothing is counted twice: each scrape looks again."""
    await samples(client)
    scene.watch.round = 4
    assert 4 == (await samples(client))["pfl_round", ""]


async def test_health_and_readiness(client: httpx.AsyncClient, ready: dict[str, bool]) -> None:
    """Alive as long as it answers; not ready while it drains."""
    assert [200, 200] == [(await client.get(page)).status_code for page in ("/healthz", "/readyz")]
    ready["now"] = False
    assert [200, 503] == [(await client.get(page)).status_code for page in ("/healthz", "/readyz")]


async def test_who_does_not_ask_for_openmetrics_gets_the_older_text(client: httpx.AsyncClient) -> None:
    """Tools that check a page, and people with `curl`, read that one."""
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "# TYPE pfl_bytes_total counter" in answer.text


async def test_what_is_slow_to_look_at_is_seen_to_first(scene: Scene, client: httpx.AsyncClient) -> None:
    """Each scrape asks for it; how often it is done is not the page's business."""
    await samples(client)
    assert 1 == scene.looked


async def test_the_status_as_json(client: httpx.AsyncClient) -> None:
    """The run with its sites and its curve; what nobody has measured is null."""
    told = (await client.get("/status.json")).json()
    assert ("run-1", 3, "hospital_a") == (told["run"], told["round"], told["sites"][0]["site"])
    assert [0.5, None] == [point["accuracy"] for point in told["curve"]]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_nothing_can_be_changed(client: httpx.AsyncClient, method: str) -> None:
    """The page is read-only."""
    assert 405 == (await client.request(method, "/status.json")).status_code


async def test_a_port_in_use(scene: Scene) -> None:
    """An error that names the port and the option, not a traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} on 127.0.0.1") as error:
            await WebServer(scene, ready=lambda: True).start("127.0.0.1", port)
    assert "--http-port" in error.value.advice


def test_an_answer_does_not_wait_for_an_acknowledgement() -> None:
    """asyncio turns that waiting off where a socket says that it is TCP: 40 ms of each scrape."""
    with _listen("127.0.0.1", 0) as listener:
        assert socket.IPPROTO_TCP == listener.proto
