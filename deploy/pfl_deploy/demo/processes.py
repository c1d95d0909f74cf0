"""The programs that the demo starts: each in its own session, with its own log, ended by its process id."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from pfl_common.errors import RunFailed, StateError

Hear: TypeAlias = Callable[[str], None]
Answer = TypeVar("Answer")

GENTLE_SECONDS = 10.0
"""How long a program may take to end in good order before it is killed."""
LAST_WORDS = 6
LONGEST_LINE = 1 << 20


@dataclass(frozen=True)
class Running:
    """One started program: its process and its log."""

    name: str
    log: Path
    process: asyncio.subprocess.Process
    reading: asyncio.Task[None]

    async def finish(self) -> None:
        """Wait until it ends by itself; any exit code but 0 is an error that shows its last words."""
        if await self.process.wait():
            raise await self.failure()

    async def failure(self) -> RunFailed:
        """Which program ended, how, what it said last, and where the rest of it is."""
        await asyncio.wait({self.reading}, timeout=1.0)
        code = self.process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code and code < 0 else f"ended with code {code}"
        said = self.log.read_text(errors="replace").strip().splitlines()[-LAST_WORDS:]
        words = "\n    ".join(said or ["nothing"])
        return RunFailed(f"{self.name} {how}\n  it said last:\n    {words}\n  its log: {self.log}")


class Programs:
    """All programs of one demo."""

    def __init__(self, logs: Path, state: Path) -> None:
        self._logs, self._state = logs, state
        self._running: list[Running] = []

    async def start(
        self, program: str, words: Sequence[str | Path], *, name: str, hear: Hear | None = None
    ) -> Running:
        """Start one of our commands; each line of its output goes to its log and to the listener."""
        process = await asyncio.create_subprocess_exec(
            _find(program),
            *map(str, words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self._state,
            env=self._environment(),
            limit=LONGEST_LINE,
            # Ctrl-C on the terminal is for the demo alone, which then ends the others in good order.
            start_new_session=True,
        )
        log = self._logs / f"{name}.log"
        reading = asyncio.create_task(_keep(process, log, hear or _ignore))
        running = Running(name, log, process, reading)
        self._running.append(running)
        return running

    async def during(self, event: Awaitable[Answer], *needed: Running) -> Answer:
        """Wait for something that needs these programs; if one of them ends before, that is an error."""
        waiting = asyncio.ensure_future(event)
        endings = {asyncio.create_task(one.process.wait()): one for one in needed}
        try:
            done, _ = await asyncio.wait({waiting, *endings}, return_when=asyncio.FIRST_COMPLETED)
            if waiting not in done:
                raise await next(endings[ending] for ending in endings if ending in done).failure()
            return await waiting
        finally:
            for task in (waiting, *endings):
                task.cancel()
            await asyncio.gather(waiting, *endings, return_exceptions=True)

    async def end(self, *which: Running) -> None:
        """Ask these programs to end, and kill those that do not."""
        left = [one for one in which if one.process.returncode is None]
        for one in left:
            with suppress(ProcessLookupError):
                one.process.terminate()
        waits = [asyncio.create_task(one.process.wait()) for one in left]
        if waits:
            await asyncio.wait(waits, timeout=GENTLE_SECONDS)
        for one in left:
            if one.process.returncode is None:
                with suppress(ProcessLookupError):
                    # Its whole session, which we began with it; its number is ours until we have waited for it.
                    os.killpg(one.process.pid, signal.SIGKILL)
                await one.process.wait()

    async def end_all(self) -> None:
        """End whatever still runs: sites before their coordinator."""
        first = self._running[:1]
        await self.end(*self._running[1:])
        await self.end(*first)
        for one in self._running:
            one.reading.cancel()
        await asyncio.gather(*(one.reading for one in self._running), return_exceptions=True)

    def _environment(self) -> dict[str, str]:
        """This user's own, less what would set up a program from outside, with a state directory of the demo's."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PFL_")}
        return kept | {"XDG_STATE_HOME": str(self._state), "PYTHONUNBUFFERED": "1"}


async def _keep(process: asyncio.subprocess.Process, log: Path, hear: Hear) -> None:
    assert process.stdout is not None
    with log.open("wb") as file:
        async for line in process.stdout:
            file.write(line)
            file.flush()
            hear(line.decode(errors="replace"))


def _ignore(line: str) -> None:
    """Nobody listens."""


def _find(program: str) -> str:
    """The command that was installed together with this one."""
    path = Path(sys.executable).with_name(program)
    if not path.exists():
        raise StateError(
            f"{path} is not there",
            expected=f"{program} beside the Python that runs this",
            advice="make the environment with deploy/environment, or install the package with pip",
        )
    return str(path)
