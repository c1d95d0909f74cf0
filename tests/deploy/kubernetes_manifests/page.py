"""The operator's page, played: its blocks of commands run in order and word for word, beside a copy of the manifests.

`kubectl` and `pfl` are stand-ins: each call of them is answered by the player, who decides what of it is real.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from socketserver import StreamRequestHandler, UnixStreamServer

import pytest

from tests.deploy.kubernetes_manifests.rendering import FOLDER, Object, kubectl

PAGE = FOLDER / "README.md"
STAND_IN = Path(__file__).with_name("stand_in.py")
PROGRAMS = ("kubectl", "pfl")
BESIDE = (FOLDER, FOLDER.parent / "grafana")
"""What the commands read of the repository."""
BLOCK_SECONDS = 600
SERVER = ("apply", "create", "delete", "get", "scale")
"""What an API server answers by itself."""
NODE = ("attach", "exec", "logs", "port-forward", "rollout", "wait")
"""What takes a pod that runs, and so a node."""


@dataclass(frozen=True)
class Asked:
    """One call of a program by the page's commands."""

    program: str
    words: list[str]
    given: str
    folder: str

    @property
    def namespace(self) -> str:
        """The one it names, or kubectl's own choice."""
        return self.words[1] if self.words[:1] == ["-n"] else "default"

    @property
    def order(self) -> list[str]:
        """Its words from the verb on."""
        return self.words[2:] if self.words[:1] == ["-n"] else self.words

    @property
    def verb(self) -> str:
        """What it wants, without flags before it."""
        return next(iter(self.order), "nothing")


@dataclass(frozen=True)
class Played:
    """A block of commands, where it stands, and how it ended."""

    line: int
    code: int
    err: str


Answer = Callable[[Asked], tuple[int, str, str]]
"""Exit code, output, errors."""


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """Each block of commands with the number of its first line."""
    held: list[str] = []
    for number, line in enumerate([*text.splitlines(), "end"], start=1):
        if line.startswith("    ") or (held and not line):
            held.append(line)
        elif held:
            yield number - len(held), textwrap.dedent("\n".join(held)).strip() + "\n"
            held = []


def play(text: str, answer: Answer) -> Iterator[Played]:
    """Run every block of a page, each until its first command that fails."""
    with tempfile.TemporaryDirectory(prefix="pfl-page-") as name, _answering(Path(name), answer) as path:
        top = _furnish(Path(name) / "top")
        for line, block in blocks(text):
            said = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block],
                cwd=top,
                env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=BLOCK_SECONDS,
                check=False,
            )
            yield Played(line, said.returncode, said.stderr)


def split(asked: Asked) -> tuple[int, str, str]:
    """`pfl split`, which runs on the operator's own machine, as far as its folders go."""
    given = dict(zip(asked.words, asked.words[1:], strict=False))
    for number in range(int(given["--sites"])):
        folder = Path(asked.folder) / given["--out"] / f"site_{number:02d}"
        folder.mkdir(parents=True)
        (folder / "train.npz").touch()
    return 0, "", ""


def strangers(text: str) -> list[str]:
    """Calls of kubectl of which nobody has said whether they need a node."""
    return [
        shlex.join(one.words)
        for one in calls(text)
        if one.program == "kubectl" and one.verb not in SERVER + NODE
    ]


def calls(text: str) -> list[Asked]:
    """Every call that a page's commands make, in order."""
    return _tried(text)[0]


def made_by(text: str) -> dict[tuple[str, str, str], frozenset[str]]:
    """What a page has its reader make: kind, namespace and name, and what a Secret holds."""
    return _tried(text)[1]


@cache
def _tried(text: str) -> tuple[list[Asked], dict[tuple[str, str, str], frozenset[str]]]:
    # What is missing leaves a test out here, and not in the thread that answers.
    yaml = pytest.importorskip("yaml", reason="left out: no module yaml (package PyYAML)")
    program = kubectl()
    asked: list[Asked] = []
    made: dict[tuple[str, str, str], frozenset[str]] = {}

    def answer(one: Asked) -> tuple[int, str, str]:
        asked.append(one)
        if one.program == "pfl":
            return split(one)
        given = (
            yaml.safe_load_all(one.given) if one.order[:3] == ["apply", "-f", "-"] else _secrets(one, program)
        )
        for item in given:
            made[item["kind"], one.namespace, item["metadata"]["name"]] = frozenset(item.get("data") or ())
        return 0, "", ""

    failed = [played for played in play(text, answer) if played.code]
    assert [] == failed
    return asked, made


def _secrets(asked: Asked, program: str) -> list[Object]:
    """What a call of `kubectl create secret` would make."""
    if asked.order[:2] != ["create", "secret"]:
        return []
    said = subprocess.run(
        [program, *asked.words, "--dry-run=client", "-o", "json"],
        cwd=asked.folder,
        # No cluster that somebody has at hand is any business of this.
        env={**os.environ, "KUBECONFIG": os.devnull},
        capture_output=True,
        timeout=60,
        check=True,
    )
    return [json.loads(said.stdout)]


def _furnish(top: Path) -> Path:
    """What is there before the first command: the manifests, and a site's data."""
    for folder in BESIDE:
        shutil.copytree(folder, top / folder.relative_to(FOLDER.parents[1]))
    (top / "hospital_a").mkdir()
    (top / "hospital_a" / "train.npz").touch()
    return top


@contextmanager
def _answering(folder: Path, answer: Answer) -> Iterator[Path]:
    """A folder of stand-ins, whose calls are answered."""
    line, path = str(folder / "line"), folder / "path"
    path.mkdir()
    for program in PROGRAMS:
        words = shlex.join([sys.executable, "-I", "-S", str(STAND_IN), line, program])
        (path / program).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (path / program).chmod(0o755)

    class Line(StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(json.dumps(answer(Asked(**json.loads(self.rfile.read())))).encode())

    with UnixStreamServer(line, Line) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield path
        finally:
            server.shutdown()
            thread.join()
