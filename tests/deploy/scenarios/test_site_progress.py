"""What a site's engineer sees of a real run: on a terminal, through a pipe, and after Ctrl-C or a service's stop."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pfl_client.run_folder.audit import entries
from tests.deploy.support.processes import PROGRAMS, Machine, write_site

ROUNDS = 3


class OnTerminal:
    """`pfl-client` on a terminal of its own; what it writes is kept as it comes."""

    def __init__(self, machine: Machine, *words: str, **environment: str) -> None:
        self.text = ""
        ours, its = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAMS["pfl-client"], *words],
            stdin=its,
            stdout=its,
            stderr=its,
            cwd=machine.home,
            env={**machine.environment, "TERM": "xterm", **environment},
        )
        machine.running.append(self.process)
        os.close(its)
        self._reading = threading.Thread(target=self._read, args=(ours,), daemon=True)
        self._reading.start()

    def _read(self, ours: int) -> None:
        with os.fdopen(ours, "rb", buffering=0) as screen:
            try:
                while said := screen.read(4096):
                    self.text += said.decode()
            except OSError:
                return  # how Linux says that the other end was closed

    def finish(self) -> int:
        """Wait for its end."""
        code = self.process.wait(90)
        self._reading.join(30)
        return code


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with two data folders."""
    made = Machine(tmp_path / "machine")
    for number, name in enumerate(("hospital_a", "hospital_b")):
        write_site(made.home / name, samples=90, seed=number)
    yield made
    made.end_all()


def lines(said: str, event: str) -> list[dict[str, Any]]:
    """All lines of a JSON log about one event."""
    return [entry for text in said.splitlines() if (entry := json.loads(text))["event"] == event]


def history(machine: Machine, site: str) -> list[dict[str, Any]]:
    """What the site kept of each task, in an order that a task done twice does not change."""
    (book,) = machine.home.glob(f"state/pfl/sites/*/{site}/runs/*/history.jsonl")
    return [json.loads(line) for line in book.read_text().splitlines()]


def test_a_run_on_a_terminal_and_through_a_pipe(machine: Machine) -> None:
    """A pipe gets one line for each round with what the site measured and what crossed; a terminal a live line too."""
    settings = ("--set", "eval_point=both")
    server = machine.server("--method", "fedavg", "--rounds", str(ROUNDS), *settings)
    shown = OnTerminal(machine, "--data", "hospital_a", "--device", "cpu")
    piped = machine.client(Path("hospital_b"), "--log-format", "json")
    assert [0, 0] == [shown.finish(), machine.finish(piped, log="hospital_b")]
    assert 0 == machine.stop(server)

    told = lines(machine.said("hospital_b"), "round trained")
    kept = [entry for entry in history(machine, "hospital_b") if entry["task"].endswith("train")]
    assert list(range(1, ROUNDS + 1)) == [line["round"] for line in told]
    for line, entry in zip(told, kept, strict=True):
        scores = entry["scores"]
        assert line["accuracy_before_training"] == round(scores["pre/test/combined"]["accuracy"], 4)
        assert line["accuracy_after_training"] == round(scores["post/test/combined"]["accuracy"], 4)
        assert line["training_loss"] == round(entry["metrics"]["loss"], 4)
    (audit,) = machine.home.glob("state/pfl/sites/*/hospital_b/audit.jsonl")
    sent = [entry["bytes"] for entry in entries(audit.parent) if entry["kind"] == "receipt"]
    for line, size in zip(told, sent, strict=True):
        assert size < line["bytes_up"] < size + 10_000, "the update, and the calls around it"
    (over,) = lines(machine.said("hospital_b"), "the run is over")
    assert (ROUNDS, ROUNDS) == (over["rounds_trained"], over["measured_in_round"])
    assert sum(line["bytes_up"] for line in told) <= over["bytes_up"]
    assert "\x1b" not in machine.said("hospital_b")

    assert ROUNDS == len(re.findall(r"round trained", shown.text))
    assert "\r\x1b[2K" in shown.text
    live = [part for part in re.split(r"[\r\n]", shown.text) if part.startswith("hospital_a | ")]
    assert any(f"of {ROUNDS} | " in part for part in live), live
    assert shown.text.rstrip().splitlines()[-1].count("hospital_a |") == 0, "the live line is gone at the end"


@pytest.mark.long  # test_progress.py has the words, test_by_hand.py the signals
def test_a_site_that_is_ended_says_what_it_did(machine: Machine) -> None:
    """Rounds, the last measurement, bytes, where its state lies, and the command that goes on, which does: after
    Ctrl-C, and then after SIGTERM.
    """
    server = machine.server("--method", "fedavg", "--rounds", "100000")
    typed = ("--data", "./hospital_a", "--log-format", "json")
    other, before = machine.client(Path("hospital_b")), 0
    for sign, words in ((signal.SIGINT, "ended by Ctrl-C"), (signal.SIGTERM, "ended by SIGTERM")):
        log = f"hospital_a-{sign}"
        site = machine.start("pfl-client", *typed, log=log)
        trained = partial(says, machine, log, "round trained")
        machine.wait_for(trained, site, log)
        site.send_signal(sign)
        assert 0 == machine.finish(site, log=log)
        done = lines(machine.said(log), "round trained")
        assert before < done[0]["round"], "it went on"
        before = done[-1]["round"]
        (account,) = lines(machine.said(log), words)
        assert len(done) <= account["rounds_trained"] <= len(done) + 1, "one may be trained and not handed in"
        for name in ("bytes_down", "bytes_up"):
            assert account[name] >= done[-1][name]
        assert account["accuracy_before_training"] == done[-1]["accuracy_before_training"]
        assert "pfl-client --data ./hospital_a --log-format json" == account["go_on_with"]
        assert Path(account["own_state"], "vault.json").exists()
        assert "none before the run's end" == account["model"]

    again = machine.start("pfl-client", *typed, log="again")
    machine.wait_for(lambda: says(machine, "again", "round trained"), again, "again")
    assert before < lines(machine.said("again"), "round trained")[0]["round"]
    assert None is other.poll()
    assert [0, 0, 0] == [machine.stop(process) for process in (again, other, server)]


def says(machine: Machine, log: str, event: str) -> bool:
    """Whether a program has told of such an event."""
    return f'"{event}"' in machine.said(log)


def test_a_site_that_never_met_its_coordinator(machine: Machine) -> None:
    """Ended while it waits, it says how it goes on."""
    site = machine.start("pfl-client", "--data", "hospital_a", log="hospital_a")
    machine.wait_for(lambda: "waiting for it" in machine.said("hospital_a"), site, "hospital_a")
    site.send_signal(signal.SIGINT)
    assert 0 == machine.finish(site, log="hospital_a")
    assert "ended by Ctrl-C" in machine.said("hospital_a").splitlines()[-1]
    assert "go_on_with='pfl-client --data hospital_a'" in machine.said("hospital_a")
