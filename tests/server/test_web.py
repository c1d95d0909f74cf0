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
from pfl_common.messages import RunStatus, SiteStatus
from pfl_common.scores import add, summary, vector
from pfl_server.stage import Watch
from pfl_server.web import WebServer


@dataclass
class Line:
    """The two counters a scrape reads of a fleet."""

    bytes: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)


@dataclass
class Scene:
    """What a scrape looks at."""

    watch: Watch | None = None
    fleet: Line | None = None
    scores: dict[str, float] = field(default_factory=dict)

    def status(self) -> RunStatus:
        sites = (SiteStatus("hospital_a", "here", 0.1, "waiting"), SiteStatus("hospital_b", "away", 60.0))
        return RunStatus("run-1", "fedavg", "running", 3, 9, 1, sites=sites, scores=self.scores)


def under_way() -> Scene:
    total = add([{"pre/test/combined": vector(correct, 10, 0.4)} for correct in (4, 9)])
    watch = Watch(
        round=3,
        awaited=("hospital_a",),
        outcomes=Counter(committed=2, abandoned=1),
        losses=Counter(lease=1),
        cohort=2,
        counted=1,
        round_seconds=1.5,
        scores={"test/combined": summary(total["pre/test/combined"])},
    )
    return Scene(watch, Line(Counter(up=100, down=900), Counter(size=1)))


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
    answer = await client.get("/metrics")
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
        ("pfl_sites", "here"): 1,
        ("pfl_sites", "away"): 1,
        ("pfl_rounds_planned", ""): 9,
        ("pfl_round", ""): 3,
        ("pfl_round_cohort", ""): 2,
        ("pfl_round_counted", ""): 1,
        ("pfl_round_awaited", ""): 1,
        ("pfl_round_duration_seconds", ""): 1.5,
        ("pfl_rounds_total", "committed"): 2,
        ("pfl_rounds_total", "abandoned"): 1,
        ("pfl_losses_total", "lease"): 1,
        ("pfl_accuracy_ratio", "test,macro,combined"): 0.65,
        ("pfl_accuracy_ratio", "test,std,combined"): 0.25,
        ("pfl_parcel_bytes_total", "up"): 100,
        ("pfl_parcel_bytes_total", "down"): 900,
        ("pfl_refusals_total", "size"): 1,
    }
    assert expected == pytest.approx({key: found.get(key) for key in expected})
    assert ("process_resident_memory_bytes", "") in found


async def test_no_metric_names_a_site(client: httpx.AsyncClient) -> None:
    """Thousands of sites must not become thousands of series, and names do not leave by this door."""
    assert "hospital" not in (await client.get("/metrics")).text


async def test_before_the_run(scene: Scene, client: httpx.AsyncClient) -> None:
    """There is something to scrape from the first second on."""
    scene.watch = scene.fleet = None
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


async def test_the_status_as_json(scene: Scene, client: httpx.AsyncClient) -> None:
    """The run with its sites; a spread that is not defined is left out, for JSON has no word for it."""
    scene.scores = summary(vector(0, 10, 2.3))
    told = (await client.get("/status.json")).json()
    assert ("run-1", 3, "hospital_a") == (told["run"], told["round"], told["sites"][0]["site"])
    assert 0.0 == told["scores"]["acc_macro"]
    assert "acc_variation" not in told["scores"]


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
