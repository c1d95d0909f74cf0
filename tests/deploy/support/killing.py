"""A federation of real processes that die at named lines of their own code, and are started again."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.support.processes import Machine

START = Path(__file__).parent / "dying"


@dataclass
class Mortals(Machine):
    """A machine whose programs die where they are wished to: each once at a point, in one of some rounds."""

    name: str = ""
    wishes: dict[str, dict[str, list[int]]] = field(default_factory=dict)

    def wish(self, name: str, point: str, rounds: Iterable[int]) -> None:
        """From now on this program dies at this point in the first of these rounds that comes to it."""
        self.wishes.setdefault(name, {})[point] = list(rounds)
        self.book.mkdir(parents=True, exist_ok=True)
        draft = self.book / "wishes.tmp"
        draft.write_text(json.dumps(self.wishes))
        draft.replace(self.book / "wishes.json")

    @property
    def book(self) -> Path:
        """Where the programs read what is wished and write where they died."""
        return self.home / "book"

    def start(self, program: str, *words: str | Path, log: str) -> subprocess.Popen[bytes]:
        """Start a program that goes by the name of its log."""
        self.name = log
        return super().start(program, *words, log=log)

    @property
    def environment(self) -> Mapping[str, str]:
        """With a start file that every interpreter reads."""
        before = super().environment
        path = os.pathsep.join([str(START), *filter(None, [before.get("PYTHONPATH")])])
        return {**before, "PYTHONPATH": path, "DYING_NAME": self.name, "DYING_BOOK": str(self.book)}

    def death(self, process: subprocess.Popen[bytes], log: str, *, point: str) -> int:
        """Wait until a process has died by its own hand at this point; gives the round it was in."""
        code = self.finish(process, log=log, seconds=60)
        assert -signal.SIGKILL == code, self.said(log)
        mark = json.loads((self.book / f"{log}-{point}").read_text())
        assert process.pid == mark["pid"]
        return int(mark["round"])


class Federation:
    """A coordinator and its sites on one machine of mortals."""

    def __init__(self, machine: Mortals, folders: Sequence[Path], *words: str) -> None:
        self.machine, self._words = machine, words
        self.folders = list(folders)
        self._ports: tuple[str, ...] = ()
        self.pids: dict[str, list[int]] = {}
        self.clients: dict[str, subprocess.Popen[bytes]] = {}

    def serve(self) -> None:
        """Start the coordinator; the second time with the same command, at the address it had."""
        self.server = self.machine.server(*self._words, *self._ports)
        self.wait(lambda: "listening" in self.machine.said("server"))
        found = self.machine.discovery()
        assert found is not None
        self._ports = ("--port", found["control"].rpartition(":")[2])
        self._note("server", self.server)

    def enter(self, *sites: str) -> None:
        """Start sites, for the first time or once more."""
        for site in sites:
            self.clients[site] = self.machine.client(next(f for f in self.folders if f.name == site))
            self._note(site, self.clients[site])

    def death(self, name: str, point: str) -> int:
        """Wait for a program's death at a point; gives the round."""
        process = self.server if name == "server" else self.clients.pop(name)
        return self.machine.death(process, name, point=point)

    def wait(self, event: object) -> None:
        """Wait for something while the coordinator lives."""
        self.machine.wait_for(event, self.server, "server")

    def end(self) -> list[int]:
        """The sites' exit codes, each by itself."""
        return [self.machine.finish(client, log=site) for site, client in self.clients.items()]

    def run_of(self, site: str) -> Path:
        """A site's folder of the run."""
        return next(self.machine.home.glob(f"state/pfl/sites/*/{site}/runs/*"))

    @property
    def run(self) -> Path:
        """The coordinator's folder of the run."""
        return next((self.machine.home / "pfl-state" / "runs").iterdir())

    def kept(self, site: str) -> tuple[int, bool]:
        """The round of a vault's newest generation, and whether an upload goes with it."""
        pointer = json.loads((self.run_of(site) / "vault.json").read_text())
        return pointer["generations"][0]["mark"]["round"], pointer["upload"] is not None

    def ask(self, question: str, *values: object) -> list[tuple[object, ...]]:
        """What the coordinator's journal says, read beside it."""
        file = self.run / "journal.sqlite"
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as journal:
            return journal.execute(question, values).fetchall()

    def receipts(self, number: int) -> list[str]:
        """Who has a receipt of a round."""
        return [
            str(site)
            for (site,) in self.ask("select site from receipt where round = ? order by site", number)
        ]

    def status(self, number: int) -> list[str]:
        """How each attempt at a round stands."""
        return [str(word) for (word,) in self.ask("select status from attempt where round = ?", number)]

    def _note(self, name: str, process: subprocess.Popen[bytes]) -> None:
        pids = self.pids.setdefault(name, [])
        assert process.pid not in pids
        pids.append(process.pid)
