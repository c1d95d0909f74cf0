"""What the demo starts is heard, ends with it, and is told of when it ends by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pfl_common.errors import RunFailed, StateError
from pfl_deploy.demo import processes
from pfl_deploy.demo.processes import Programs

WAIT = "import time; print('here', flush=True); time.sleep(60)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAIT


@pytest.fixture
async def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Programs]:
    """Python stands in for every program; whatever a test leaves behind is ended."""
    monkeypatch.setattr(processes, "_find", lambda program: sys.executable)
    monkeypatch.setattr(processes, "GENTLE_SECONDS", 1.0)
    made = Programs(tmp_path, tmp_path)
    yield made
    await made.end_all()


async def test_what_it_says_is_heard_and_kept(programs: Programs, tmp_path: Path) -> None:
    """Line by line, both streams, in a log of its name."""
    heard: list[str] = []
    words = ["-c", "import sys; print('one'); print('two', file=sys.stderr)"]
    one = await programs.start("x", words, name="talker", hear=heard.append)
    await one.finish()
    await one.reading
    assert {"one\n", "two\n"} == set(heard)
    assert "".join(heard) == (tmp_path / "talker.log").read_text()


async def test_nothing_is_set_up_from_outside(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's own settings do not reach the demo, and its state is not the user's."""
    monkeypatch.setenv("PFL_ROUNDS", "1")
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    program = "import os; print(os.getenv('PFL_ROUNDS'), os.environ['XDG_STATE_HOME'])"
    one = await programs.start("x", ["-c", program], name="asker")
    await one.finish()
    await one.reading
    assert f"None {tmp_path}\n" == one.log.read_text()


async def test_a_failure_tells_its_last_words(programs: Programs) -> None:
    """Which program, its exit code, the end of its log and where the rest is."""
    program = "import sys; [print('line', n) for n in range(9)]; sys.exit(3)"
    one = await programs.start("x", ["-c", program], name="site-a")
    with pytest.raises(RunFailed) as error:
        await one.finish()
    words = str(error.value)
    assert "site-a ended with code 3" in words
    assert ["line 3", "line 8"] == [words.split("\n    ")[place].splitlines()[0] for place in (1, 6)]
    assert "line 2" not in words
    assert str(one.log) in words


async def test_to_wait_for_what_needs_a_program_that_ends(programs: Programs) -> None:
    """It is not waited for any longer; while the program lives the answer comes."""
    alive = await programs.start("x", ["-c", WAIT], name="alive")
    assert 5 == await programs.during(asyncio.sleep(0.05, 5), alive)
    alive.process.terminate()
    with pytest.raises(RunFailed, match="alive was ended by SIGTERM"):
        await asyncio.wait_for(programs.during(asyncio.sleep(60), alive), 20)


async def test_who_does_not_end_is_killed(programs: Programs) -> None:
    """After it was asked to end; a session of its own keeps a signal on the terminal from it."""
    heard = asyncio.Event()
    one = await programs.start("x", ["-c", DEAF], name="deaf", hear=lambda line: heard.set())
    await asyncio.wait_for(heard.wait(), 20)
    assert os.getsid(one.process.pid) != os.getsid(0)
    await programs.end_all()
    assert -signal.SIGKILL == one.process.returncode


async def test_a_program_that_is_not_installed(tmp_path: Path) -> None:
    """Said with what to do."""
    with pytest.raises(StateError, match="is not there"):
        await Programs(tmp_path, tmp_path).start("pfl-nothing", [], name="nothing")
