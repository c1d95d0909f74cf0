"""Slow lines: what is reckoned, what is asked of the peers, and, for root, that a line carries what it should."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.peers import environments
from tests.benchmarks.peers.gauges import Gauges
from tests.benchmarks.peers.inside import read_order
from tests.benchmarks.peers.workload import Case
from tests.benchmarks.slow_links import __main__ as command
from tests.benchmarks.slow_links import peers
from tests.benchmarks.slow_links.lines import Kind, Lines, NoLines, Probed, expect_lines
from tests.benchmarks.slow_links.rows import Failed, Found, least_seconds, tabulate, to_json
from tests.benchmarks.transport import observing
from tests.house.skeleton import TOP

CASE = Case(2, "small")


def lines_lack() -> str:
    """Why this machine makes no lines; nothing where it does."""
    try:
        expect_lines()
    except NoLines as why:
        return str(why).partition("\n")[0]
    return ""


def test_the_least_that_a_line_allows() -> None:
    """Ten million bits down and as many up take two seconds at 10 Mbit/s, and there is the way there and back."""
    assert pytest.approx(2.04) == least_seconds(1_250_000, Kind(10))
    assert pytest.approx(0.3) == least_seconds(1_250_000, Kind(100, round_trip=0.1))


def test_what_is_measured_when_nothing_is_said() -> None:
    """All rates, four sites, all peers; a quick pass is small and installs none, unless one is named."""
    said = command.parse([])
    assert (None, 4, 3, ("flower", "nvflare")) == (said.rate, said.sites, said.rounds, said.peers)
    assert (2, 2, ()) == ((said := command.parse(["--quick"])).sites, said.rounds, said.peers)
    assert ("nvflare",) == command.parse(["--quick", "--peer", "nvflare"]).peers
    assert () == command.parse(["--peer", "none"]).peers
    with pytest.raises(SystemExit):
        command.parse(["--rate", "17"])


def test_ours_has_the_model_of_the_peers() -> None:
    """As many numbers, to the same address, each encoding once."""
    said = command.parse(["--encoding", "int8", "--encoding", "topk"])
    played = list(command.workloads(CASE, Kind(100), said))
    assert [("by hand", ""), ("ours", ""), ("ours", "int8"), ("ours", "topk")] == [one[:2] for one in played]
    assert {(CASE.model_bytes, "10.77.0.1", 3)} == {(w.model_bytes, w.host, w.rounds) for *_, w in played}
    assert [(), (), ("--encoding", "int8"), ("--encoding", "topk")] == [w.extra for *_, w in played]


def test_rows_stand_beside_ours_on_the_same_line() -> None:
    """Three times as long is told as 3×; what failed is told in words, and in the file."""
    ours = [
        Found("ours", 10, 2.0, 1e6, 1.0),
        Found("ours", 10, 1.0, 3e5, 1.0, "int8"),
        Found("ours", 100, 1.0, 1e6, 0.1),
    ]
    flower = [Found("flower 1.41.0", 10, 6.0, 2e6, 1.0)]
    table = tabulate([*ours, *flower], quick=False)
    assert ["1.00×", "0.50×", "1.00×", "3.00×"] == list(table.columns[4].cells)
    assert ["float32", "int8", "float32", "float32"] == list(table.columns[2].cells)
    content = to_json(flower, [Failed("nvflare 2.9.0", 10, "no wheel")], {10: Probed(0.04, 9.6)})
    assert content == json.loads(json.dumps(content))
    assert [{"rate": 10, "seconds": 0.04, "carried": 9.6}] == content["lines"]
    assert ("flower 1.41.0", "no wheel") == (content["rows"][0]["who"], content["failed"][0]["why"])


def test_a_peer_that_cannot_be_installed_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are measured all the same."""

    def refuse(peer: str, folder: Path) -> Path:
        raise environments.NotInstalled(f"{peer} cannot be installed: no index")

    monkeypatch.setattr(environments, "prepare", refuse)
    monkeypatch.setenv(peers.MISSING, "{}")
    peers.install(["nvflare"], tmp_path)
    found = peers.measure("nvflare", CASE, Kind(10), rounds=2, envs=tmp_path, folder=tmp_path)
    assert Failed("nvflare 2.9.0", 10, "nvflare cannot be installed: no index") == found


def test_a_peer_is_asked_for_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One round more than count, at the coordinator's address, on lines of that kind; its folder goes away."""
    asked = []

    def run(module: str, order: object, more: object) -> dict[str, dict[str, float]]:
        asked.append((module, order.case, order.rounds, order.host, order.environment, more))
        return {"round_seconds": {"median": 7.0}, "wire_bytes": {"median": 9.0}}

    monkeypatch.setattr(peers.corner, "run", run)
    found = peers.measure("flower", CASE, Kind(10), rounds=3, envs=tmp_path / "envs", folder=tmp_path)
    assert Found("flower 1.41.0", 10, 7.0, 9.0, least_seconds(CASE.model_bytes, Kind(10))) == found
    lines = {"rate": 10, "round_trip": 0.04}
    assert [(peers.INSIDE, CASE, 4, "10.77.0.1", tmp_path / "envs" / "flower", lines)] == asked
    assert [] == list(tmp_path.iterdir())


def test_a_peer_that_fails_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of its last words; the rest is in its logs."""

    def run(*_: object) -> None:
        raise subprocess.SubprocessError("waited in vain for round 2:\n--- server.log\nTraceback")

    monkeypatch.setattr(peers.corner, "run", run)
    found = peers.measure("flower", CASE, Kind(10), rounds=3, envs=tmp_path, folder=tmp_path)
    assert Failed("flower 1.41.0", 10, "waited in vain for round 2:") == found


def test_an_order_is_read_as_it_was_written(tmp_path: Path) -> None:
    """The corner it is carried out in has nothing but this file."""
    words = {
        "peer": "flower",
        "case": "2xsmall",
        "rounds": 4,
        "environment": "/e",
        "host": "10.77.0.1",
        "rate": 10,
    }
    (tmp_path / "order.json").write_text(json.dumps(words))
    order = read_order(tmp_path / "order.json")
    assert (CASE, 4, Path("/e"), tmp_path, "10.77.0.1") == (
        order.case,
        order.rounds,
        order.environment,
        order.folder,
        order.host,
    )


def test_bytes_are_those_of_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of all of them, and not what programs of one machine say to each other; without lines the loopback."""
    head = "Inter-|   Receive\n face |bytes packets\n"
    lo = "    lo: 500 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n"
    slow = " line0: 10 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n line1: 3 1 0 0 0 0 0 0 4 1 0 0 0 0 0 0\n"
    monkeypatch.setattr(observing, "INTERFACES", tmp_path / "dev")
    for content, expected in ((head + lo, 500), (head + lo + slow, 37)):
        (tmp_path / "dev").write_text(content)
        assert expected == observing.read_carried() == Gauges(observing.read_carried).read().wire_bytes


def test_a_line_ends_where_its_site_is() -> None:
    """A site's command is run in its namespace; other programs' where they are."""
    lines = Lines(Kind(10), 3)
    assert [*lines.at(2), "x"] == [*lines.inside("site_002"), "x"]
    assert ["ip", "netns", "exec"] == lines.at(0)[:3]
    assert [] == lines.inside("server")
    with pytest.raises(ValueError, match="16 at most"):
        Lines(Kind(10), 17)


@pytest.mark.skipif(bool(lines_lack()), reason=lines_lack() or "lines can be made")
def test_a_line_carries_what_it_should(tmp_path: Path) -> None:
    """Ten million bits a second, not half and not twice, forty milliseconds there and back; nothing is left of it."""
    out = tmp_path / "lines.json"
    words = ["--probe", "--rate", "10", "--sites", "1", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.slow_links", *words],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    (line,) = json.loads(out.read_text())["lines"]
    assert 0.04 <= line["seconds"] < 1.0
    assert 5 < line["carried"] < 12
    assert (
        "pfl-line" not in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    )
