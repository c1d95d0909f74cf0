"""The committed messages are those of proto/, and the protocol can be understood by reading it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from pfl_common.identity import Refusal
from pfl_common.wire import convert

TOP = Path(__file__).parents[4]
WIRE = Path("pfl_common") / "wire"


def test_the_code_is_what_the_protocol_generates(tmp_path: Path) -> None:
    """The line in proto/README.md makes exactly the files that are committed."""
    readme = (TOP / "proto" / "README.md").read_text(encoding="utf-8")
    line = next(line for line in readme.splitlines() if "grpc_tools.protoc" in line)
    made = line.replace(".venv/bin/python", sys.executable).replace("out=common", f"out={tmp_path}")
    subprocess.run(made, shell=True, cwd=TOP, check=True, timeout=60)
    committed = {path.name: path.read_bytes() for path in (TOP / "common" / WIRE).glob("*_pb2.py*")}
    assert committed == {path.name: path.read_bytes() for path in (tmp_path / WIRE).iterdir()}


def test_each_call_says_who_when_and_what_then() -> None:
    """Before each call stands who makes it, when, and what follows on failure."""
    texts = [path.read_text(encoding="utf-8") for path in (TOP / "proto").glob("*.proto")]
    calls = [call for text in texts for call in re.findall(r"((?: *//.*\n)+) *rpc (\w+)", text)]
    assert sum(text.count("  rpc ") for text in texts) == len(calls) > 0
    mute = [name for words, name in calls if not all(w in words for w in ("Who:", "When:", "On failure:"))]
    assert [] == mute


def test_each_reason_is_a_spoken_sentence() -> None:
    """Before each reason for a refusal stands the sentence of the one who refuses."""
    text = (TOP / "proto" / "refusal.proto").read_text(encoding="utf-8")
    spoken = re.findall(r'// "[^"]+".*\n(?: *//.*\n)*  (REASON_\w+) =', text)
    assert re.findall(r"(REASON_\w+) =", text) == spoken


def test_each_code_in_use_is_in_the_list() -> None:
    """Whatever a program of ours refuses has its sentence in the protocol."""
    rooms = [TOP / room for room in ("common", "server", "client")]
    texts = [path.read_text(encoding="utf-8") for room in rooms for path in room.rglob("*.py")]
    used = {code for text in texts for code in re.findall(r"(?:Refused|_refuse)\(\s*\"(\w+)\"", text)}
    used |= {kind.reason.replace("-", "_") for kind in Refusal.__subclasses__() if kind.told}
    assert set() == used - convert.REASONS
