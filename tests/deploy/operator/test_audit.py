"""`pfl audit`: what a real site listed, and what is found when its list was changed."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from pfl_client.run_folder.audit import Audit, entries
from pfl_deploy.cli import main
from pfl_deploy.operator import audit as auditing
from pfl_deploy.simulation.simulate import simulate
from pfl_server.settings import ServerSettings
from tests.deploy.support.processes import Machine, write_site
from tests.words import Spoken, check_clear, speak

ROUNDS = 2


@dataclass(frozen=True)
class Run:
    """A run that is over: its machine, one site's state folder, what that site said."""

    home: Path
    site: Path
    log: str

    @property
    def name(self) -> str:
        return next((self.site / "runs").iterdir()).name


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Two real sites and their coordinator."""
    machine = Machine(tmp_path_factory.mktemp("audit"))
    try:
        for number, name in enumerate(("hospital_a", "hospital_b")):
            write_site(machine.home / name, samples=60, seed=number)
        server = machine.server("--method", "fedavg", "--rounds", str(ROUNDS))
        sites = [machine.client(Path(name), "--log-format", "json") for name in ("hospital_a", "hospital_b")]
        assert [0, 0] == [machine.finish(site, log="hospital_a") for site in sites]
        assert 0 == machine.stop(server)
    finally:
        machine.end_all()
    (site,) = machine.home.glob("state/pfl/sites/*/hospital_a")
    yield Run(machine.home, site, machine.said("hospital_a"))


@pytest.fixture
def copied(played: Run, tmp_path: Path) -> Run:
    """The same, to be changed."""
    site = tmp_path / "sites" / "hospital_a"
    shutil.copytree(played.site, site)
    return Run(tmp_path, site, played.log)


def audit(*words: str | Path) -> Spoken:
    """The command with these words."""
    return speak(main, "audit", *words)


def plain(*words: str | Path) -> list[dict[str, object]]:
    """What it says to programs."""
    said = audit(*words, "--json")
    assert 0 == said.code, said
    return json.loads(said.out)


def test_everything_that_left_is_listed(played: Run) -> None:
    """How it came in, what it said at joining, its scores, its updates, its goodbye; and all that crossed is summed."""
    (listed,) = plain("--sites", played.home / "state" / "pfl" / "sites", "hospital_a")
    kinds = [entry["kind"] for entry in listed["entries"]]
    assert ["enrolment", "joining"] == kinds[:2]
    assert {"enrolment": 1, "joining": 1, "update": ROUNDS, "scores": ROUNDS + 1, "goodbye": 1} == {
        kind: kinds.count(kind) for kind in ("enrolment", "joining", "update", "scores", "goodbye")
    }
    assert all(entry["receipt"] for entry in listed["entries"] if entry["kind"] == "update")
    (joining,) = [entry["said"]["said"] for entry in listed["entries"] if entry["kind"] == "joining"]
    assert (["a", "b", "c"], [1, 16, 16]) == (joining["classes"], joining["shape"])
    over = next(
        line for line in map(json.loads, played.log.splitlines()) if line["event"] == "the run is over"
    )
    sums = {(row["run"], row["kind"]): row["bytes"] for row in listed["sums"]}
    later = ("enrolment", "goodbye")
    crossed = sum(size for (_, kind), size in sums.items() if kind not in later)
    # A heartbeat that was under way when its task ended is listed; whether it crossed nobody knows.
    assert over["bytes_up"] <= crossed <= over["bytes_up"] + 2_000
    scores = next(e["said"]["said"]["scores"] for e in listed["entries"] if e["kind"] == "scores")
    assert {"correct", "samples", "accuracy"} < set(scores["pre/test/combined"])


def test_the_table(played: Run) -> None:
    """For people: a line for each, sums by run and kind, and what was checked in words."""
    said = audit("--state", played.site, "--verify", "--all")
    assert 0 == said.code, said
    assert '"classes" ' not in said.text
    assert 'classes ["a", "b", "c"]' in said.text
    for phrase in ("joining", "update", "yes", "(before a run)", played.name, f"{ROUNDS} receipts are the"):
        assert phrase in said.text, phrase
    assert "BROKEN" not in said.text
    assert "Not to be seen here" in said.text


def test_sums_come_first(played: Run) -> None:
    """A line for each site, run and kind; each message only where a site and a run are named, or all are asked for."""
    root = ("--sites", played.home / "state" / "pfl" / "sites")
    digests = [
        entry["said"]["digest"]
        for entry in plain(*root, "hospital_a")[0]["entries"]
        if entry["kind"] == "update"
    ]
    for words in ((), ("hospital_a",)):
        said = audit(*root, *words)
        assert not any(digest[:8] in said.text for digest in digests)
        assert (True, True) == ("hospital_a" in said.out, "pfl audit SITE RUN, or --all" in said.text)
    for words in (("hospital_a", played.name), ("--all",)):
        said = audit(*root, *words)
        assert [] == [digest for digest in digests if digest not in said.out]
        assert said.out.index("what left") < said.out.index("sha-256")


def test_nothing_is_cut(played: Run) -> None:
    """In a pipe each row is one line; on a terminal of 80 columns a hash is folded, and every letter of it is there."""
    listed = auditing.read(played.site, None, played.name, verify=False)
    digests = [str(entry.said["digest"]) for one in listed for entry in one.entries if entry.kind == "update"]
    shown = {}
    for terminal in (False, True):
        console = Console(
            file=io.StringIO(), width=80, force_terminal=terminal, color_system=None, soft_wrap=True
        )
        auditing.show(listed, console, each=True)
        shown[terminal] = console.file.getvalue()
        assert "…" not in shown[terminal]
    assert [] == [digest for digest in digests if digest not in shown[False]]
    rows = [line for line in shown[False].splitlines() if any(digest in line for digest in digests)]
    assert [True] * ROUNDS == ["-train " in row and "Z │ update " in row for row in rows]
    assert 80 >= max(len(line) for line in shown[True].splitlines() if line.startswith(("│", "┃")))
    quarters = [digest[at : at + 16] for digest in digests for at in range(0, 64, 16)]
    assert [] == [part for part in quarters if part not in shown[True]]


def test_one_run_of_one_site(played: Run) -> None:
    """A site and a run can be named; a wrong word names the right ones."""
    root = ("--sites", played.home / "state" / "pfl" / "sites")
    (listed,) = plain(*root, "hospital_b", played.name)
    assert {played.name} == {entry["said"]["run"] for entry in listed["entries"]}
    assert 2 == len(plain(*root))
    check_clear(audit(*root, "hospital_c"), 2, "no site 'hospital_c'", "did you mean 'hospital_")
    check_clear(audit(*root, "hospital_a", "run-x"), 2, "of a run 'run-x'", played.name)
    check_clear(
        audit("--sites", played.home / "hospital_a"), 2, "no site has listed anything below", "--sites"
    )


def change_line(number: int, before: str, after: str) -> Callable[[Path], None]:
    """Write something else in a line."""

    def change(book: Path) -> None:
        lines = book.read_text().splitlines(keepends=True)
        assert before in lines[number - 1]
        lines[number - 1] = lines[number - 1].replace(before, after)
        book.write_text("".join(lines))

    return change


def drop_lines(first: int, last: int | None) -> Callable[[Path], None]:
    """Take lines out."""

    def change(book: Path) -> None:
        lines = book.read_text().splitlines(keepends=True)
        del lines[first - 1 : last]
        book.write_text("".join(lines))

    return change


def change_and_bind(book: Path) -> None:
    """Another size for an update, and all lines after it written anew, with the head: only the receipt can tell."""
    lines, before, written = [json.loads(text) for text in book.read_text().splitlines()], "", []
    for line in lines:
        if line["kind"] in ("update", "receipt"):
            line["digest"] = "ab" * 32
        written.append(json.dumps({**line, "before": before}, sort_keys=True))
        before = hashlib.sha256(written[-1].encode()).hexdigest()
    book.write_text("".join(f"{text}\n" for text in written))
    book.with_name("audit.head").write_text(json.dumps({"lines": len(written), "sha256": before}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (change_line(2, '"a"', '"z"'), "line 3 does not follow the line before it: line 2 was"),
        (drop_lines(2, 2), "line 2 does not follow the line before it"),
        (drop_lines(1, 1), "line 1 does not follow the line before it: a first line was removed"),
        (drop_lines(4, None), "here are 3: the last ones were removed"),
        (lambda book: book.with_name("audit.head").unlink(), "audit.head is gone"),
        (lambda book: book.write_text("junk\n" + book.read_text()), "line 1 cannot be read"),
        (change_and_bind, "is not the coordinator's word for abababababab..."),
    ],
    ids=["changed", "removed", "the first", "the last", "the head", "junk", "written anew"],
)
def test_a_list_that_was_changed(copied: Run, change: Callable[[Path], None], words: str) -> None:
    """It is found, the line is told, and the exit code is not 0; without --verify it is only shown."""
    change(copied.site / "audit.jsonl")
    check_clear(audit("--sites", copied.site, "--verify"), 4, words, "BROKEN")
    assert 0 == audit("--sites", copied.site).code


def test_lines_missed_by_the_site_itself(copied: Run) -> None:
    """Removed, then the site was started again: what it noted then is still told."""
    drop_lines(4, None)(copied.site / "audit.jsonl")
    Audit(copied.site).settle()
    check_clear(
        audit("--sites", copied.site, "--verify"), 4, "line 4: when the site began here it found 3 of"
    )


def test_half_a_last_line_is_no_fault(copied: Run) -> None:
    """Nor is what the next start makes of it."""
    with (copied.site / "audit.jsonl").open("a") as book:
        book.write('{"kind": "upd')
    said = audit("--sites", copied.site, "--verify")
    assert (0, True) == (said.code, "note: line" in said.text and "is not whole" in said.text)
    Audit(copied.site).settle()
    said = audit("--sites", copied.site, "--verify")
    assert (0, True) == (said.code, "13 bytes" in said.text)


def test_an_earlier_release_and_an_update_without_receipt(copied: Run) -> None:
    """Old lists are shown, and said not to be bound; an update without an answer is told, and neither is a fault."""
    (receipt,) = [e for e in entries(copied.site) if e["kind"] == "receipt"][:1]
    old = {"task": receipt["task"], "run": copied.name, "bytes": receipt["bytes"], "names": ["encoder"]}
    lost = {**old, "digest": receipt["digest"], "receipt": receipt["receipt"]}
    (copied.site / "runs" / copied.name / "audit.jsonl").write_text(json.dumps(lost) + "\n")
    book = Audit(copied.site)
    book.note("update", run=copied.name, task="000009-1-train", digest="cd" * 32, bytes=5, names=["encoder"])
    book.settle()
    said = audit("--sites", copied.site, "--verify")
    assert 0 == said.code, said
    assert "of an earlier release, whose lines are not bound" in said.text
    assert "1 updates were sent, or about to be, and have no receipt" in said.text
    assert f"{ROUNDS + 1} receipts are the coordinator's" in said.text


def test_a_simulation_has_lists_too(tmp_path: Path) -> None:
    """Nothing leaves there, and what would have is listed; its receipts have no signature, which is said."""
    data = [write_site(tmp_path / name, samples=12) for name in ("hospital_a", "hospital_b")]
    settings = ServerSettings(method="fedavg", rounds=1, sites=2, state=tmp_path / "coordinator")
    simulate(settings, data, tmp_path / "sites")
    assert ["hospital_a", "hospital_b"] == [one["site"] for one in plain("--sites", tmp_path / "sites")]
    said = audit("--sites", tmp_path / "sites", "--verify")
    assert (0, True) == (said.code, "a receipt without a signature" in said.text)
