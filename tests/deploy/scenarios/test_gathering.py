"""What keeps a run from beginning, and who is left out of it: real processes, as their users start them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.deploy.support.processes import Machine, write_site
from tests.words import Spoken, check_clear


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine whose processes end with the test."""
    place = Machine(tmp_path / "machine")
    yield place
    place.end_all()


def write_table(folder: Path, *, classes: tuple[str, ...] = ("a", "b", "c")) -> Path:
    """A site with a table."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    for part, count in (("train", 12), ("test", 6)):
        y = np.arange(count) % len(classes)
        np.savez(folder / f"{part}.npz", x=rng.normal(size=(count, 7)).astype(np.float32), y=y)
    (folder / "classes.json").write_text(json.dumps(classes))
    return folder


def hears(machine: Machine, log: str, words: str) -> bool:
    """Whether a program has said this."""
    return words in machine.said(log)


def ask(machine: Machine) -> dict[str, Any]:
    """What `pfl status --json` says."""
    return dict(json.loads(machine.call("pfl", "status", "--json").stdout))


def test_one_wrong_site_does_not_end_a_federation(machine: Machine, tmp_path: Path) -> None:
    """Two that differ both hear how, and nobody ends; a third makes a majority: the odd one ends with 3, the others
    train. The operator sees who was not taken, and why.
    """
    server = machine.server("--method", "fedavg", "--backbone", "mlp", "--rounds", "2")
    wrong = machine.client(write_table(tmp_path / "hospital_wrong"))
    machine.wait_for(lambda: "let in, waiting" in machine.said("hospital_wrong"), wrong, "hospital_wrong")
    first = machine.client(write_site(tmp_path / "hospital_a", samples=12))
    for name, site in (("hospital_wrong", wrong), ("hospital_a", first)):
        machine.wait_for(partial(hears, machine, name, "the sites' data do not go together"), site, name)
    words = ask(machine)["words"]
    assert "hospital_a: pictures of 8 bits" in words
    assert "hospital_wrong: a table of 7 columns" in words
    assert "does not begin yet" in machine.call("pfl", "status").stdout

    second = machine.client(write_site(tmp_path / "hospital_b", samples=12))
    ended = Spoken(machine.finish(wrong, log="hospital_wrong"), "", machine.said("hospital_wrong"))
    check_clear(ended, 3, "hospital_wrong has a table of 7 columns", "what to do")
    assert [0, 0] == [machine.finish(first, log="hospital_a"), machine.finish(second, log="hospital_b")]
    status = ask(machine)
    assert ("finished", ["hospital_wrong"]) == (status["status"], list(status["refused"]))
    assert [2, 2] == [line["counted"] for line in status["sites"]]
    assert "hospital_wrong has a table" in " ".join(machine.call("pfl", "status").stdout.split())
    assert 0 == machine.stop(server)


@pytest.mark.long  # test_class_names.py and test_start_warnings.py hold the words
def test_names_that_almost_match_are_told_before_the_first_round(machine: Machine, tmp_path: Path) -> None:
    """To the operator in log and status, to each site in its log; the run is trained all the same."""
    server = machine.server("--method", "fedavg", "--backbone", "mlp", "--rounds", "1")
    data = {"hospital_a": ("Cat", "dog", "cow"), "hospital_b": ("cat", "dog", "cow")}
    sites = {
        name: machine.client(write_site(tmp_path / name, samples=12, classes=classes))
        for name, classes in data.items()
    }
    for name, site in sites.items():
        assert 0 == machine.finish(site, log=name)
    words = "'Cat' (hospital_a) and 'cat' (hospital_b) are two classes and differ only in case"
    for log in (*sites, "server"):
        said = machine.said(log)
        assert words in said, said
        assert said.index(words) < said.index("round opened" if log == "server" else "task"), log
    status = ask(machine)
    assert words in status["warnings"][0]
    assert any(words in event["words"] for event in status["events"])
    assert words in " ".join(machine.call("pfl", "status").stdout.split())
    assert 0 == machine.stop(server)


def test_sites_without_a_common_class_do_not_begin(machine: Machine, tmp_path: Path) -> None:
    """An error for operator and sites; one that comes back with the right names lets the run begin. A name that is not
    on the operator's list is refused at once.
    """
    server = machine.server("--method", "fedavg", "--backbone", "mlp", "--rounds", "1")
    names = {"hospital_a": ("a", "b"), "hospital_b": ("A", "B")}
    sites = {
        name: machine.client(write_site(tmp_path / name, samples=12, classes=classes))
        for name, classes in names.items()
    }
    for name, site in sites.items():
        machine.wait_for(partial(hears, machine, name, "2 of 2 sites have no class in common"), site, name)
    assert "differ only in case" in machine.said("hospital_a")
    assert "2 of 2 sites have no class in common" in ask(machine)["words"]
    assert 0 == machine.stop(sites["hospital_b"])
    (tmp_path / "hospital_b" / "classes.json").write_text('["a", "b"]')
    mended = machine.client(tmp_path / "hospital_b")
    assert 0 == machine.finish(sites["hospital_a"], log="hospital_a")
    assert 0 == machine.finish(mended, log="hospital_b")
    assert 0 == machine.stop(server)

    server = machine.server("--classes", "a,b", "--state", "second")
    write_site(tmp_path / "hospital_c", samples=12, classes=("a", "c"))
    said = machine.call("pfl-client", "--data", tmp_path / "hospital_c")
    check_clear(Spoken(said.returncode, said.stdout, said.stderr), 3, "--classes does not name: 'c'")
    assert 0 == machine.stop(server)


def test_a_site_that_was_stopped_is_away_at_once(machine: Machine, tmp_path: Path) -> None:
    """By its closed line, not by its lease, which goes on for long: its round waits for it. A site of the roster that
    no round asked is told of in red when the run is over.
    """
    words = ("--method", "fedavg", "--backbone", "mlp", "--rounds", "300", "--lease-seconds", "600")
    names = ("hospital_a", "hospital_b", "hospital_c")
    server = machine.server(*words, "--sites", "3", "--participation", "hospital_a,hospital_b")
    sites = [machine.client(write_site(tmp_path / name, samples=12)) for name in names]
    machine.wait_for(lambda: "round closed" in machine.said("server"), server, "server")
    assert 0 == machine.stop(sites[1])

    def line() -> dict[str, Any]:
        return next(dict(found) for found in ask(machine)["sites"] if found["site"] == "hospital_b")

    machine.wait_for(lambda: "away" == line()["state"], server, "server", seconds=30)
    assert "line" in line()["doing"], line()
    assert "closed" in line()["doing"], line()
    sites[1] = machine.client(tmp_path / "hospital_b")
    machine.wait_for(lambda: "here" == line()["state"], server, "server")
    assert 0 == machine.call("pfl", "stop").returncode
    for name, site in zip(names, sites, strict=True):
        assert 0 == machine.finish(site, log=name)
    assert "counted_in_rounds=0" not in machine.said("hospital_a")
    status = ask(machine)
    assert [True, True, False] == [bool(found["counted"]) for found in status["sites"]]
    never = f"{status['curve'][-1]['round']} rounds: hospital_c."
    assert never in " ".join(machine.call("pfl", "status").stdout.split())
    assert re.search("error.* sites=.*hospital_c", machine.said("server"))
    assert 0 == machine.stop(server)


def test_a_simulation_leaves_no_folder_out(machine: Machine, tmp_path: Path) -> None:
    """The wrong one is named, and so is what to do, whether there is a majority or not."""
    data = tmp_path / "data"
    for name in ("hospital_a", "hospital_b"):
        write_site(data / name, samples=12)
    write_table(data / "hospital_wrong")
    said = machine.call("pfl", "simulate", "--data", data, "--rounds", "1", "--out", tmp_path / "out")
    check_clear(
        Spoken(said.returncode, said.stdout, said.stderr), 3, str(data / "hospital_wrong"), "mend the folder"
    )
    (data / "hospital_b").rename(tmp_path / "hospital_b")
    said = machine.call("pfl", "simulate", "--data", data, "--rounds", "1", "--out", tmp_path / "out2")
    check_clear(Spoken(said.returncode, said.stdout, said.stderr), 3, "hospital_wrong: a table of 7 columns")
