"""A Bench in a process of its own: started when needed, reached over ZeroMQ, ended when told or lost.

No torch here. Socket: `ipc://` in a private folder; it never listens on a network.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import structlog
import zmq

from pfl_client.trainer_process import memory_limit, protocol
from pfl_client.trainer_process.api import DataFolder, Done, Job, Progress, TrainerLost
from pfl_client.trainer_process.buffers import Pool
from pfl_client.trainer_process.mailbox import Mailbox
from pfl_client.trainer_process.memory_limit import Held
from pfl_common.app import logs
from pfl_common.app.called_off import CalledOff, Waiting
from pfl_common.spec.run import Description

log = structlog.get_logger("pfl.site")

LONGEST_SOCKET_PATH = 103
"""In bytes; what macOS allows (Linux allows 107)."""

ENVIRONMENT = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "THP_MEM_ALLOC_ENABLE": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}
"""A workspace of fixed size, without which CUDA sums in an order of its own; huge pages for large tensors; and memory
of up to 64 MiB that was let go of stays for what comes next: the system would clear its pages again.
"""

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

Answer = TypeVar("Answer", bound=protocol.Letter)
Said = TypeVar("Said")


class TrainerFailed(TrainerLost):
    """A fault of the program in the trainer, which has been ended."""


@dataclass(frozen=True)
class Share:
    """What a trainer may take of a machine that others use too."""

    niceness: int = 0
    """By how much it is nicer than the daemon: 19 runs when nobody else wants to."""
    threads: int = 0
    """The most threads of each library that computes; 0 sets no limit."""

    def environment(self) -> dict[str, str]:
        """What such libraries read when they are loaded, before anybody can ask them."""
        return dict.fromkeys(_THREADS, str(self.threads)) if self.threads else {}


class TrainerProcess:
    """A `api.Bench` in a process of its own.

    `warm` keeps the process between tasks; otherwise it ends after each, and all its memory is given back.
    After a loss the next call starts a new process and opens the run again, so a caller just asks once more.
    """

    def __init__(  # noqa: PLR0913  # each call names the few that it changes
        self,
        folder: Path,
        *,
        warm: bool = True,
        pool: Pool | None = None,
        share: Share | None = None,
        memory_limit: int = 0,
        start_seconds: float = 120.0,
        grace_seconds: float = 5.0,
    ) -> None:
        self._folder, self._warm, self._pool = folder, warm, pool or Pool()
        self._share = share or Share()
        self._start_seconds, self._grace_seconds = start_seconds, grace_seconds
        self._memory_limit, self._told = memory_limit, False
        self._running: _Running | None = None
        self._opened: tuple[DataFolder, str, Path] | None = None
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The trainer's process id while there is one."""
        return self._running.process.pid if self._running else None

    async def start(self) -> None:
        """Start the process before it is asked anything, since it takes its time; what prevents that is told by the
        first question.
        """
        async with self._turn:
            if self._running is None:
                with suppress(TrainerLost, OSError):
                    self._running = await self._begin()

    async def describe(self, folder: DataFolder) -> Description:
        """Look at the data folder: shape, class names, counts, warnings."""
        async with self._turn:
            letter, _ = await self._ask(protocol.Describe(folder), expect=protocol.Described)
            return letter.description

    async def open(self, folder: DataFolder, spec: str, init: Path) -> None:
        """Take a run's specification and first model; read the data; refuse what does not fit together."""
        async with self._turn:
            self._opened = None
            await self._ask(protocol.Open(folder, init), spec.encode(), expect=protocol.Opened)
            self._opened = (folder, spec, init)

    async def work(self, job: Job, progress: Progress) -> Done:
        """Do a task."""
        async with self._turn:
            letter, body = protocol.ask_for(job)
            await self._open_again()
            answer, beside = await self._ask(letter, body, expect=protocol.Finished, progress=progress)
            progress(answer.moved)
            if not self._warm:
                await self._end()
            return protocol.read_done(answer, beside)

    async def close(self) -> None:
        """End the trainer and give its memory back; the next task starts another."""
        await self._end()

    async def _open_again(self) -> None:
        if self._running is None and self._opened is not None:
            folder, spec, init = self._opened
            await self._ask(protocol.Open(folder, init), spec.encode(), expect=protocol.Opened)

    async def _ask(
        self,
        letter: protocol.Letter,
        body: protocol.Buffer = b"",
        *,
        expect: type[Answer],
        progress: Progress = lambda samples: None,
    ) -> tuple[Answer, memoryview]:
        try:
            if self._running is None:
                self._running = await self._begin()
            await self._running.send(letter, body)
            answer, beside = await self._listen(self._running, progress)
        except BaseException:
            # Lost, or no longer waited for: its next answer would be taken for one to another question.
            await self._end()
            raise
        if isinstance(answer, protocol.Unable):
            raise protocol.rebuild(answer)
        if isinstance(answer, expect):
            return answer, beside
        await self._end()
        raise TrainerFailed(
            answer.words if isinstance(answer, protocol.Broken) else f"it said {answer.says!r}"
        )

    async def _begin(self) -> _Running:
        seconds, limit = self._start_seconds, self._memory_limit
        running = await _start(self._folder, self._pool, self._share, seconds=seconds, limit=limit)
        self._tell_limit(running.held)
        return running

    def _tell_limit(self, held: Held | None) -> None:
        if held is not None and not self._told:
            log.info("the trainer's memory is limited", mib=held.limit >> 20, by=held.means)
            self._told = True

    async def _listen(self, running: _Running, progress: Progress) -> tuple[protocol.Letter, memoryview]:
        while True:
            letter, body = await running.receive()
            if not isinstance(letter, protocol.Moved):
                return letter, body
            progress(letter.samples)

    async def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            # Shielded: who is cancelled while ending a process would leave it behind.
            await asyncio.shield(running.end(self._grace_seconds))


class _Running:
    """A started trainer: its process, its socket, its secret."""

    def __init__(self, launched: _Launched, mailbox: Mailbox, secret: bytes, pool: Pool) -> None:
        self.process, self.held = launched
        self._mailbox, self._secret, self._pool = mailbox, secret, pool
        self._gone, self._waiting = asyncio.create_task(self.process.wait()), Waiting()
        self._gone.add_done_callback(lambda _: self._waiting.call_off())

    async def send(self, letter: protocol.Letter, body: protocol.Buffer = b"") -> None:
        """Hand a letter over; TrainerLost where nobody takes it, for instance if it was killed while it had no work."""
        await self._together(self._mailbox.send(protocol.pack(self._secret, letter, body)))

    async def receive(self) -> tuple[protocol.Letter, memoryview]:
        """The next letter; TrainerLost as soon as there can be none."""
        try:
            return await self._together(self._arrive())
        except protocol.Garbled as error:
            raise TrainerLost(f"the trainer was not understood: {error}") from None

    async def _together(self, doing: Awaitable[Said]) -> Said:
        """Wait for something that needs the other process, but not longer than that process lives."""
        try:
            return await self._waiting.until_off(doing)
        except CalledOff:
            pass
        except asyncio.CancelledError:
            # A socket that is closed ends what waits at it in this way; who waits here may be cancelled too.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
        raise TrainerLost(describe_end(await asyncio.shield(self._gone), self.held))

    async def _arrive(self) -> tuple[protocol.Letter, memoryview]:
        arrival = protocol.Arrival(self._secret, self._pool)
        # Frame by frame, each let go at once: a whole message more would double the daemon.
        await self._mailbox.receive(arrival.take)
        return arrival.read()

    async def end(self, grace_seconds: float) -> None:
        """End the process, first politely."""
        self._mailbox.close()
        if self.process.stdin is not None:
            self.process.stdin.close()
        with suppress(ProcessLookupError):
            self.process.terminate()
        try:
            await asyncio.wait_for(asyncio.shield(self._gone), grace_seconds)
        except TimeoutError:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self._gone
        if self.held is not None:
            self.held.release()


async def _start(folder: Path, pool: Pool, share: Share, *, seconds: float, limit: int) -> _Running:
    place = _private_place(folder)
    # One context for the process: it owns a thread, and sockets of one-off trainers come and go.
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PAIR)
    mailbox = Mailbox(socket)
    try:
        protocol.limit(socket)
        address = f"ipc://{place / 's'}"
        socket.bind(address)
        secret = secrets.token_bytes(protocol.SECRET_BYTES)
        running = _Running(await _launch(address, secret, share, limit), mailbox, secret, pool)
        await _greet(running, seconds)
    except BaseException:
        mailbox.close()
        raise
    finally:
        # Both ends are connected by now, or never will be: with its name gone nobody else can come in.
        shutil.rmtree(place, ignore_errors=True)
    return running


async def _greet(running: _Running, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            letter, _ = await running.receive()
        if not isinstance(letter, protocol.Hello):
            raise TrainerLost(f"the trainer began with {letter.says!r}")
    except BaseException as error:
        await asyncio.shield(running.end(0.0))
        if isinstance(error, TimeoutError):
            raise TrainerLost(f"the trainer did not start within {seconds:g} s") from None
        raise


class _Launched(NamedTuple):
    process: asyncio.subprocess.Process
    held: Held | None


async def _launch(address: str, secret: bytes, share: Share, limit: int) -> _Launched:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # the current folder is not searched for modules: it may be anybody's
        "-m",
        "pfl_client.trainer",
        address,
        str(share.niceness),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        env={
            **ENVIRONMENT,
            **os.environ,
            **share.environment(),
            logs.STYLE: logs.style(),
        },
        # Ctrl-C on the terminal is for the daemon, which ends the trainer when its work is safe.
        start_new_session=True,
    )
    # It waits for the secret: until then it has allocated next to nothing.
    try:
        held = memory_limit.hold(process.pid, limit) if limit else None
    except BaseException:
        process.kill()
        raise
    if process.stdin is not None:
        # Not as an argument or in the environment: other programs can read those.
        process.stdin.write(secret.hex().encode("ascii") + b"\n")
    return _Launched(process, held)


def _private_place(folder: Path) -> Path:
    """A new folder for one socket, only for this user; below the state folder if its path is short enough."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    longest = folder.absolute() / "pfl-12345678" / "s"
    short = len(os.fsencode(longest)) <= LONGEST_SOCKET_PATH
    return Path(tempfile.mkdtemp(prefix="pfl-", dir=folder.absolute() if short else "/tmp"))


def describe_end(code: int, held: Held | None = None) -> str:
    """How a process ended, from its exit code and the limit of its memory."""
    limited = held.explain() if held is not None else ""
    if code >= 0:
        return f"the trainer ended with exit code {code}; its last words stand in the log above{limited}"
    name = signal.Signals(-code).name
    hint = (
        ": most often the system had no memory left for it" if code == -signal.SIGKILL and not limited else ""
    )
    return f"the trainer was ended by {name}{hint}{limited}"
