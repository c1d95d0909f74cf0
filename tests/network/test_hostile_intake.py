"""The long command `tests.hostile.intake` sees what it is for; a hostile coordinator costs a real site only words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.hostile import intake
from tests.hostile.intake import MOST_BYTES, MOST_SECONDS, Outcome, Place
from tests.hostile.intake_files import FOLDERS
from tests.network.federation import Federation

CLEAR = "error: seen\n  expected: something else"


@pytest.mark.parametrize(
    ("outcome", "wrong"),
    [
        (Outcome(3, 1.0, 1 << 20, CLEAR), []),
        (Outcome(0, MOST_SECONDS, MOST_BYTES, "fine", taken=True), []),
        (Outcome(1, 1.0, 0, "Traceback (most recent call last):\n  x"), ["a traceback"]),
        (Outcome(-11, 1.0, 0, CLEAR), ["ended by signal 11"]),
        (Outcome(3, 1.0, MOST_BYTES + 1, CLEAR), ["1024 MB"]),
        (Outcome(3, 61.0, 0, CLEAR), ["61 s"]),
        (Outcome(3, 1.0, 0, "\n"), ["no words"]),
        (Outcome(3, 1.0, 0, CLEAR + "\x1b[2J"), ["signs that a terminal obeys"]),
        (Outcome(3, 1.0, 0, CLEAR, started=["gs"]), ["started gs"]),
    ],
    ids=lambda value: "+".join(value) or "nothing" if isinstance(value, list) else "",
)
def test_what_ends_wrong(outcome: Outcome, wrong: list[str]) -> None:
    """Each of the ends that no program of ours should have, and two that they may."""
    assert wrong == outcome.wrong()
    assert ("WRONG" in outcome.row("name", "program", wrong)) == bool(wrong)


def test_memory_and_programs_of_children_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer is a process of its own, and what it starts is found by its name."""
    ready, looks = tmp_path / "ready", list[bool]()
    inner = (
        "import os, signal; held = bytearray(96 << 20); os.system('gs'); "
        f"open({str(ready)!r}, 'w').close(); signal.pause()"
    )
    program = (
        f"import signal, subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {inner!r}]); "
        "signal.signal(signal.SIGTERM, lambda *_: child.terminate()); child.wait(); print('done')"
    )
    monkeypatch.setitem(intake.PROGRAMS, "parent", program)

    def look() -> bool:
        # At the second look all memory had been taken when the first one was over.
        looks.append(ready.exists())
        return sum(looks) > 1

    outcome = Place(tmp_path).run("parent", until=look)
    assert (0, ["gs"], "done\n") == (outcome.code, outcome.started, outcome.said)
    if sys.platform == "linux":
        assert 96 << 20 < outcome.peak < 192 << 20


async def test_a_hostile_specification_costs_a_site_only_words(
    federation: Federation, tmp_path: Path
) -> None:
    """One of the long command's attacks, as it plays it: the site's own program refuses, and says why."""
    ((program, outcome),) = await intake.hear(federation, tmp_path / "site", "shape too long to write")
    assert ("pfl-client", []) == (program, outcome.wrong())
    assert 2 == outcome.code
    assert "a tensor of shape" in outcome.said


def test_each_hostile_folder_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller than in the long form."""
    monkeypatch.setattr("tests.hostile.intake_files.BOMB_MEGABYTES", 3)
    monkeypatch.setattr("tests.hostile.intake_files.DEEP", 3000)
    monkeypatch.setattr("tests.hostile.intake_files.MEGABYTE", 1 << 12)
    for name, write in FOLDERS.items():
        write(tmp_path / name / "hospital_a")
        assert [
            one for one in (tmp_path / name / "hospital_a").rglob("*") if one.is_file() or one.is_symlink()
        ]
