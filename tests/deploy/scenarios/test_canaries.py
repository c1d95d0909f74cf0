"""Recognisable values are planted at a site whose policy withholds much; after a real run they are searched for where
they must not be: in what both programs write, tell and keep, and in what crossed between them.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from pfl_common.identity import Addresses, read_join_file
from pfl_common.identity.join_file import write_join_file
from tests.deploy.support.processes import Machine
from tests.deploy.support.recording_proxy import RecordingProxy

NAME, LABEL, OTHER = "Mueller_Hans_1948", "zebra_label", "apple_label"
PATTERN = bytes([7, 201, 33, 144, 90, 11, 250, 66, 129, 18, 240, 3, 77, 160, 52, 221])
"""A row of every training picture: no chance makes it."""
WINDOW = 24
POLICY = """
[runs]
methods = ["fedper"]
smallest_cohort = 1
rounds = 9
[uploads]
largest = "5M"
per_day = "50M"
[joining]
class_names = "no"
counts = "rounded"
fingerprint = false
[metrics]
diagnostics = false
"""


def write_pictures(folder: Path, *, bad: int) -> Path:
    """Pictures with the pattern, by class and under a patient's name; so many of them are no pictures."""
    rng = np.random.default_rng(5)
    for part, count in (("train", 12), ("test", 6)):
        for label in (LABEL, OTHER):
            place = folder / part / label
            place.mkdir(parents=True)
            for number in range(count):
                x = rng.integers(0, 90, (16, 16), dtype=np.uint8)
                x[3] = np.frombuffer(PATTERN, np.uint8)
                x[8:12] += 120 * (label == LABEL)
                Image.fromarray(x).save(place / f"{NAME}_{number}.png")
    for number in range(bad):
        (folder / "train" / LABEL / f"{NAME}_{number}.png").write_bytes(b"no picture " + PATTERN)
    return folder


class Seen:
    """Everything that others may come to see of one run, by where it is."""

    def __init__(self, machine: Machine, state: Path, told: dict[str, str], packets: bytes) -> None:
        self.home, self.site = machine.home, next(iter((state / "sites").glob("*/hospital_a")))
        self.run = next(iter((state / "coordinator" / "runs").glob("*/journal.sqlite"))).parent
        self.told = {name: text.encode() for name, text in told.items()} | {"packets": packets}
        self.told |= {log.name: log.read_bytes() for log in self.home.glob("*.log")}
        self.told["audit"] = (self.site / "audit.jsonl").read_bytes()

    def kept(self, *, checkpoints: bool) -> Iterator[tuple[str, bytes]]:
        """The coordinator's files."""
        for file in self.run.parents[1].rglob("*"):
            if file.is_file() and (checkpoints or file.parent.name != "checkpoints"):
                yield str(file.relative_to(self.home)), file.read_bytes()

    def tensors(self, *names: str) -> set[bytes]:
        """A few stretches of each of these tensors as the site has them, none of which chance makes."""
        files = [*self.site.rglob("generations/*"), *self.site.rglob("serving.safetensors")]
        held = [value for file in files for name, value in load_file(file).items() if name.startswith(names)]
        raw = [value.tobytes() for value in held if value.nbytes > WINDOW]
        pieces = [
            one[at : at + WINDOW] for one in raw for at in range(0, len(one) - WINDOW, len(one) // 5 // 4 * 4)
        ]
        return {piece for piece in pieces if len(set(piece)) > WINDOW // 2}


def overhear(machine: Machine, data: Path, state: Path) -> tuple[dict[str, str], bytes]:
    """A site's run to its end with every byte of its lines kept: what metrics and status told, and the bytes."""
    machine.call("pfl", "invite", "hospital_a", "--out", machine.home)
    join = machine.home / "hospital_a.join"
    invited = read_join_file(join, now=datetime.now(UTC))
    ports = [
        int(address.rpartition(":")[2])
        for address in (invited.addresses.control, invited.addresses.enrolment)
    ]
    with RecordingProxy(ports[0]) as control, RecordingProxy(ports[1]) as enrolment:
        near = Addresses(f"localhost:{control.port}", f"localhost:{enrolment.port}")
        write_join_file(replace(invited, addresses=near), join, replace=True)
        policy = machine.home / "policy.toml"
        words = ("--join", join, "--state", state / "sites", "--policy", policy, "--stay")
        site = machine.client(data, *words)
        over = lambda: "the run is over" in machine.said("hospital_a")  # noqa: E731  # said once
        machine.wait_for(over, site, "hospital_a")
        (own,) = set(re.findall(r"http://127\.0\.0\.1:\d+/metrics", machine.said("hospital_a")))
        page = re.findall(r"http://[^\s/]+:\d+", machine.said("server"))[-1]
        told = {"site metrics": machine.read(own), "coordinator metrics": machine.read(f"{page}/metrics")}
        told["status"] = machine.read(f"{page}/status.json")
        machine.stop(site)
        return told, bytes(control.seen + enrolment.seen)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """A coordinator, a site with a policy whose line is listened to, and one that fails because of its data."""
    machine = Machine(tmp_path_factory.mktemp("canaries"))
    state = machine.home / "kept"
    data = write_pictures(machine.home / "hospital_a", bad=1)
    (machine.home / "policy.toml").write_text(POLICY)
    try:
        rules = ("--method", "fedper", "--sites", "1", "--rounds", "2", "--set", "aggregation=uniform")
        network = ("--backbone", "mlp", "--classes", f"{LABEL},{OTHER}", "--state", state / "coordinator")
        server = machine.server(*rules, *network, "--site-metrics", "--fewest-reporters", "5")
        assert machine.discovery()
        told, packets = overhear(machine, data, state)
        failing = machine.client(
            write_pictures(machine.home / "hospital_b", bad=9), "--state", state / "sites"
        )
        assert 3 == machine.finish(failing, log="hospital_b")
        machine.stop(server)
        yield Seen(machine, state, told, packets)
    finally:
        machine.end_all()


def leaks(needles: dict[str, set[bytes]], places: Iterator[tuple[str, bytes]]) -> set[tuple[str, str]]:
    """Which needle lies where."""
    return {
        (name, place)
        for place, content in places
        for name, each in needles.items()
        if any(n in content for n in each)
    }


def test_nothing_of_patients_and_personal_tensors_is_anywhere(seen: Seen) -> None:
    """Names of files, pixels, personal tensors and secrets: not in logs, metrics, status, lists, journal, spool,
    checkpoints or packets.
    """
    secret = (seen.site / "data.secret").read_bytes()
    keys = {
        line for file in (seen.site / "keys").glob("*.key") for line in file.read_bytes().splitlines()[1:-1]
    }
    needles = {
        "a file's name": {NAME.encode()},
        "pixels": {PATTERN},
        "personal": seen.tensors("head."),
        "secrets": {secret, secret.hex().encode(), *keys},
    }
    assert all(needles.values()), "there is something to search for"
    places = [*seen.told.items(), *seen.kept(checkpoints=True)]
    assert set() == leaks(needles, iter(places))


def test_the_shared_state_lies_open_in_checkpoints_alone(seen: Seen) -> None:
    """It is searched for where it may be too: so the search finds what is there."""
    shared = {"shared": seen.tensors("encoder.")}
    open_ = {place for _, place in leaks(shared, seen.kept(checkpoints=True))}
    assert open_
    assert {"checkpoints"} == {Path(place).parent.name for place in open_}
    assert set() == leaks(shared, iter(seen.told.items()))


def test_a_class_that_is_not_told_is_not_said(seen: Seen) -> None:
    """The coordinator's operator has listed the names; the site says none, nor how many samples it has."""
    label = {"label": {LABEL.encode()}}
    places = {name: seen.told[name] for name in ("packets", "audit", "site metrics", "coordinator metrics")}
    assert set() == leaks(label, iter(places.items()))
    with sqlite3.connect(seen.run / "journal.sqlite") as journal:
        (text,) = journal.execute("select description from site").fetchone()
    said = json.loads(text)
    assert ([], 30, "", []) == (said["classes"], said["samples"], said["data"], said["warnings"])


def test_the_policy_was_kept_and_listed(seen: Seen) -> None:
    """The rules in force, what was withheld of joining and of scores; `pfl audit --verify` finds all of it whole."""
    lines = [json.loads(line) for line in seen.told["audit"].splitlines()]
    kinds = [line["kind"] for line in lines]
    assert 2 == kinds.count("update")
    (policy,) = [line for line in lines if line["kind"] == "policy"]
    assert "no" == policy["rules"]["joining.class_names"]
    withheld = {(line["message"], *line["what"]) for line in lines if line["kind"] == "withheld"}
    assert ("joining", "classes", "samples", "warnings", "sizes", "data") in {
        (one[0], *sorted(one[1:], key=("classes", "samples", "warnings", "sizes", "data").index))
        for one in withheld
        if one[0] == "joining"
    }
    assert ("scores", "counts", "diagnostics") in {(one[0], *sorted(one[1:])) for one in withheld}
    machine, sites = Machine(seen.home), seen.home / "kept" / "sites"
    checked = machine.call("pfl", "audit", "hospital_a", "--state", sites, "--verify", "--all")
    assert 0 == checked.returncode, checked.stdout + checked.stderr
    for words in ("(the policy in force)", "(withheld)", "withheld (", '"joining.class_names": "no"'):
        assert words in checked.stdout, checked.stdout


def test_a_mean_over_one_site_is_not_shown(seen: Seen) -> None:
    """Not by the page, not by metrics, not in the log, which says why; sites have series because that was asked for."""
    metrics = seen.told["coordinator metrics"].decode()
    assert "pfl_accuracy_ratio{" not in metrics
    assert 'pfl_member_counted_total{site="hospital_a"} 2' in metrics
    status = json.loads(seen.told["status"])
    assert {None} == {point["accuracy"] for point in status["curve"]}
    assert {} == status["scores"]
    assert "1 site: the mean over fewer than 5 is not shown" in seen.told["server.log"].decode()
    assert "accuracy" in seen.told["hospital_a.log"].decode(), "a site sees its own"


def test_what_fails_says_no_more(seen: Seen) -> None:
    """The site whose data are no good ended with words about them, and a hash in place of each name."""
    said = seen.told["hospital_b.log"].decode()
    assert "Traceback" not in said
    assert NAME not in said
    assert re.search(r"unreadable|cannot be read|no picture", said), said
