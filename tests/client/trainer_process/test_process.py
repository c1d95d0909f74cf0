"""Daemon and trainer as two real processes: work gets done, losses are noticed, nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import zmq

from pfl_client.trainer.loop import describe_fault
from pfl_client.trainer.session import Workbench
from pfl_client.trainer_process import process as ipc
from pfl_client.trainer_process import protocol
from pfl_client.trainer_process.api import DataFolder, Done, Job, TrainerLost
from pfl_client.trainer_process.buffers import Pool
from pfl_client.trainer_process.process import Share, TrainerFailed, TrainerProcess
from pfl_client.trainer_process.task_errors import Declined, Diverged, Tampered
from pfl_common.errors import DataError, UserError
from pfl_common.spec.run import Kind, Task
from tests.client.support.runs import Desk

SECRET = b"s" * protocol.SECRET_BYTES


def ignore(samples: int) -> None:
    """Nobody listens to the progress."""


def is_gone(pid: int) -> bool:
    """Whether a process has ended, and its parent has taken note."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest_asyncio.fixture
async def trainer(tmp_path: Path) -> AsyncIterator[TrainerProcess]:
    """A trainer that is ended whatever happens."""
    process = TrainerProcess(tmp_path / "state", grace_seconds=2.0)
    yield process
    await process.close()


def slow(desk: Desk) -> Job:
    """A task that takes longer than any test waits; its settings are the run's."""
    assert desk.spec.settings["epochs"] == 1_000_000
    return desk.job()


async def test_a_process_does_what_the_bench_does(tmp_path: Path, trainer: TrainerProcess) -> None:
    """Description, update, scores and files equal those made here, also for a parcel in a file."""
    desk = Desk(tmp_path, "dualfed")
    here = Workbench()
    here.open(desk.folder, desk.spec.to_json(), desk.init)
    wanted = here.work(desk.job(), ignore)
    kept = (tmp_path / "kept-1.safetensors").read_bytes()
    assert here.describe(desk.folder) == await trainer.describe(desk.folder)
    await trainer.open(desk.folder, desk.spec.to_json(), desk.init)
    seen: list[int] = []
    pid = trainer.pid
    for job in (desk.job(), in_a_file(desk.job(), tmp_path / "down")):
        (tmp_path / "kept-1.safetensors").unlink()
        done = await trainer.work(job, seen.append)
        assert (wanted.up, wanted.groups, wanted.scores) == (done.up, done.groups, done.scores)
        assert wanted.metrics == done.metrics
        assert ("cpu", ["resident"]) == (done.device, list(done.memory))
        assert 10 << 20 < done.memory["resident"] < 10 << 30
        assert kept == (tmp_path / "kept-1.safetensors").read_bytes()
    assert sum(seen) > 0
    assert pid == trainer.pid
    with pytest.raises(DataError) as caught:
        await trainer.describe(DataFolder(tmp_path / "nowhere", "hospital-a"))
    assert "nowhere" not in caught.value.seen, "what was seen crosses the network: it names no path"
    assert caught.value.expected
    assert caught.value.advice
    assert [] == list((tmp_path / "state").iterdir()), (
        "the socket's name is gone once both ends are connected"
    )


def in_a_file(job: Job, path: Path) -> Job:
    """The same job with its download in a file."""
    path.write_bytes(job.down)
    return Job(job.task, path, job.groups, job.kept, job.keep_as)


def test_a_change_and_its_refusal_cross(tmp_path: Path) -> None:
    """Whether a download is a change, the hash of what it leads to, and the reason of one that cannot be used."""
    task = Task(Kind.TRAIN, 2, 3, since=1)
    job = Job(task, b"down", (), tmp_path / "kept", tmp_path / "keep", as_delta=True, sent="ab" * 32)
    letter, body = protocol.ask_for(job)
    assert job == protocol.read_job(letter, body)
    error = protocol.rebuild(protocol.explain(Tampered("other numbers", expected="these", advice="ask")))
    assert ("tampered", "other numbers") == (getattr(error, "reason", ""), error.seen)


async def test_a_trainer_that_was_started_ahead_is_the_one_that_works(
    tmp_path: Path, trainer: TrainerProcess
) -> None:
    """It loads while others are still talked to; the first question finds it there."""
    await trainer.start()
    pid = trainer.pid
    await trainer.start()
    assert pid is not None
    assert pid == trainer.pid
    await trainer.close()
    assert is_gone(pid)


async def test_a_killed_trainer_is_noticed_and_replaced(tmp_path: Path, trainer: TrainerProcess) -> None:
    """The loss says how it ended; the same call again starts a new one with the same run."""
    desk = Desk(tmp_path, epochs=1_000_000)
    await trainer.open(desk.folder, desk.spec.to_json(), desk.init)
    first = trainer.pid
    moving = asyncio.Event()
    work = asyncio.create_task(trainer.work(slow(desk), lambda samples: moving.set()))
    await asyncio.wait_for(moving.wait(), 60)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(TrainerLost, match="SIGKILL: most often the system had no memory left"):
        await asyncio.wait_for(work, 10)
    assert trainer.pid is None
    done = await trainer.work(desk.job(Kind.EVALUATE), ignore)
    assert done.scores
    assert first != trainer.pid


async def test_a_trainer_killed_between_tasks_is_a_loss_too(tmp_path: Path, trainer: TrainerProcess) -> None:
    """Nobody listens any more when the next task comes: it is not waited for somebody who does."""
    desk = Desk(tmp_path)
    await trainer.open(desk.folder, desk.spec.to_json(), desk.init)
    first = trainer.pid
    running = trainer._running
    assert running is not None
    os.kill(first, signal.SIGKILL)
    await asyncio.wait_for(running.process.wait(), 10)
    async with asyncio.timeout(10):
        while running._mailbox._socket.poll(0, zmq.POLLOUT):  # noqa: ASYNC110  # a socket's other end goes unannounced
            await asyncio.sleep(0.01)
    with pytest.raises(TrainerLost, match="SIGKILL"):
        await asyncio.wait_for(trainer.work(desk.job(), ignore), 10)
    assert (await asyncio.wait_for(trainer.work(desk.job(), ignore), 60)).up
    assert first != trainer.pid


async def test_unwanted_work_is_ended(tmp_path: Path, trainer: TrainerProcess) -> None:
    """Who no longer waits for a task ends its process: no answer of it is taken for another's."""
    desk = Desk(tmp_path, epochs=1_000_000)
    await trainer.open(desk.folder, desk.spec.to_json(), desk.init)
    pid, moving = trainer.pid, asyncio.Event()
    work = asyncio.create_task(trainer.work(slow(desk), lambda samples: moving.set()))
    await asyncio.wait_for(moving.wait(), 60)
    os.kill(pid, signal.SIGSTOP)  # a process that hears nothing must end as well
    await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(work, 10)
    assert is_gone(pid)


async def test_closing_in_the_middle_is_a_loss(tmp_path: Path, trainer: TrainerProcess) -> None:
    """A caller that waits for an answer learns that there will be none."""
    desk = Desk(tmp_path, epochs=1_000_000)
    await trainer.open(desk.folder, desk.spec.to_json(), desk.init)
    moving = asyncio.Event()
    work = asyncio.create_task(trainer.work(slow(desk), lambda samples: moving.set()))
    await asyncio.wait_for(moving.wait(), 60)
    await trainer.close()
    with pytest.raises(TrainerLost):
        await asyncio.wait_for(work, 10)


async def test_a_cold_trainer_ends_after_each_task(tmp_path: Path) -> None:
    """Its memory is given back, and a reason to decline comes through as what it is."""
    desk = Desk(tmp_path, lr=1e6, epochs=9)
    trainer = TrainerProcess(tmp_path / "state", warm=False)
    await trainer.open(desk.folder, desk.spec.to_json(), desk.init)
    first = trainer.pid
    assert (await trainer.work(desk.job(Kind.EVALUATE), ignore)).scores
    assert trainer.pid is None
    assert is_gone(first)
    with pytest.raises(Diverged, match="diverged in round 1") as caught:
        await trainer.work(desk.job(), ignore)
    assert "diverged" == caught.value.reason
    await trainer.close()


async def test_a_fault_of_the_program_ends_the_trainer(tmp_path: Path, trainer: TrainerProcess) -> None:
    """Work without a run is such a fault: it comes back in words, and the process is not used again."""
    desk = Desk(tmp_path)
    with pytest.raises(TrainerFailed, match=r"RuntimeError: work\(\) before open\(\).* at session.py:\d+"):
        await trainer.work(desk.job(), ignore)
    assert trainer.pid is None


@pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="needs Linux to watch a process that is not a child"
)
def test_a_trainer_ends_with_its_daemon(tmp_path: Path) -> None:
    """A daemon killed at once leaves no trainer behind."""
    program = (
        "import asyncio, pathlib, sys\n"
        "from pfl_client.trainer_process.api import DataFolder\n"
        "from pfl_client.trainer_process.process import TrainerProcess\n"
        "async def main():\n"
        "    trainer = TrainerProcess(pathlib.Path(sys.argv[1], 'state'))\n"
        "    try:\n"
        "        await trainer.describe(DataFolder(pathlib.Path(sys.argv[1], 'none'), 'a'))\n"
        "    except Exception:\n"
        "        print(trainer.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as daemon:
        pid = int(daemon.stdout.readline())
        handle = os.pidfd_open(pid)
        daemon.kill()
    try:
        poller = zmq.Poller()
        poller.register(handle, zmq.POLLIN)
        assert poller.poll(10_000), "the trainer is still there after ten seconds"
    finally:
        os.close(handle)


async def test_a_trainer_that_does_not_come_up_is_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that ends at once says its exit code; one that says nothing is given up."""
    monkeypatch.setattr(ipc.sys, "executable", "/bin/false")
    with pytest.raises(TrainerLost, match="exit code 1"):
        await TrainerProcess(tmp_path).describe(DataFolder(tmp_path, "a"))
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec cat\n")
    silent.chmod(0o700)
    monkeypatch.setattr(ipc.sys, "executable", str(silent))
    with pytest.raises(TrainerLost, match="did not start"):
        await TrainerProcess(tmp_path, start_seconds=0.3).describe(DataFolder(tmp_path, "a"))
    assert [silent] == list(tmp_path.iterdir())


def test_a_socket_lies_in_a_private_folder_with_a_short_path(tmp_path: Path) -> None:
    """Below the state folder when its path fits into a socket's name, else below the system's."""
    near = ipc._private_place(tmp_path)
    assert tmp_path == near.parent
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    far = ipc._private_place(deep)
    try:
        assert Path("/tmp") == far.parent
        assert {0o700} == {place.stat().st_mode & 0o777 for place in (near, far)}
        assert len(os.fsencode(far / "s")) <= ipc.LONGEST_SOCKET_PATH
    finally:
        far.rmdir()


def test_the_daemons_half_is_light() -> None:
    """Neither torch nor numpy nor the trainer is loaded with it."""
    light = ("trainer_process.process", "run_folder.vault_generations", "run_folder.outbox")
    imports = ", ".join(f"pfl_client.{module}" for module in light)
    program = f"import {imports}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set() == {"torch", "numpy", "pfl_client.trainer", "pfl_client.data", "grpc"} & set(
        done.stdout.split()
    )


def test_nothing_secret_is_in_the_arguments(tmp_path: Path) -> None:
    """The trainer refuses to start without the secret from its daemon, so it is not anywhere else."""
    done = subprocess.run(
        [sys.executable, "-m", "pfl_client.trainer", f"ipc://{tmp_path}/s"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 1 == done.returncode
    assert "started by pfl-client" in done.stderr


def as_frames(parts: list[bytes | memoryview]) -> list[zmq.Frame]:
    """What the other end receives."""
    return [zmq.Frame(bytes(part)) for part in parts]


def test_a_letter_is_read_as_it_was_written() -> None:
    """Floats keep their bits, also those that are no numbers; bytes go in pieces of one MiB."""
    up = os.urandom((5 << 20) // 2)
    scores, held = {"pre/test/combined": [0.1, 1 / 3]}, {"resident": 1 << 40, "device": 5}
    done = Done(scores, {"loss": float("inf")}, up, ("slot",), {"train": 1e-9}, "cuda: Card 7", held)
    parts = protocol.pack(SECRET, *protocol.answer_with(done))
    assert [1 << 20, 1 << 20, 1 << 19] == [len(part) for part in parts[3:]]
    letter, body = protocol.unpack(SECRET, as_frames(parts))
    assert done == protocol.read_done(letter, body)
    nan, _ = protocol.unpack(
        SECRET, as_frames(protocol.pack(SECRET, protocol.Finished(metrics={"loss": float("nan")})))
    )
    assert nan.metrics["loss"] != nan.metrics["loss"]


@pytest.mark.parametrize("up", [None, b"", b"x", Path("/large/parcel")])
def test_an_update_is_told_from_none(up: bytes | Path | None) -> None:
    """An empty update, one in a file and none at all are three things."""
    letter, body = protocol.answer_with(Done(up=up))
    assert (
        up == protocol.read_done(*protocol.unpack(SECRET, as_frames(protocol.pack(SECRET, letter, body)))).up
    )


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [SECRET],
        [b"t" * 32, b'{"says": "hello"}'],
        [SECRET, b"{}"],
        [SECRET, b'{"says": "obey"}'],
        [SECRET, b'{"says": "moved", "samples": "many"}'],
    ],
)
def test_what_is_no_letter_is_not_read(parts: list[bytes]) -> None:
    """Without the secret, or in another form, nothing is done with it."""
    with pytest.raises(protocol.Garbled):
        protocol.unpack(SECRET, as_frames(parts))


def test_a_parcel_too_large_for_a_message_is_not_sent() -> None:
    """It belongs into a file."""
    with pytest.raises(ValueError, match="too many for a message"):
        protocol.pack(SECRET, protocol.Opened(), bytes(protocol.PARCEL_LIMIT + 1))


def test_errors_travel_with_their_words_and_their_kind() -> None:
    """Each known kind arrives as itself, an unknown one as the nearest known."""

    class Special(DataError):
        pass

    for kind in (UserError, DataError, Declined, Diverged):
        back = protocol.rebuild(protocol.explain(kind("seen", expected="this", advice="do", file="f")))
        said = (back.seen, back.expected, back.advice, back.file)
        assert (kind, "seen", "this", "do", "f") == (type(back), *said)
    assert DataError is type(protocol.rebuild(protocol.explain(Special("seen"))))


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("loss is tensor([0.123])"), "ValueError: loss is "),
        (ValueError("got 3 rows and 0.71234e-5"), "ValueError: got 3 rows and #"),
        (FileNotFoundError(2, "No such file", "/data/patient-smith.png"), "FileNotFoundError: No such file"),
        (KeyError("encoder.weight"), "KeyError: 'encoder.weight'"),
    ],
)
def test_a_fault_is_told_without_values_and_file_names(error: Exception, shown: str) -> None:
    """What may be a patient's number or name does not reach the log."""
    assert shown == describe_fault(error)


@pytest.mark.parametrize(("code", "words"), [(0, "exit code 0"), (3, "exit code 3"), (-11, "SIGSEGV$")])
def test_an_end_is_put_into_words(code: int, words: str) -> None:
    """A signal is called by its name."""
    assert re.search(words, ipc.describe_end(code))


async def test_a_trainer_on_a_shared_machine(tmp_path: Path) -> None:
    """It alone steps back, with each of its threads; its libraries are told how many threads they may have."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    running = await ipc._start(tmp_path, Pool(), Share(niceness=7, threads=3), seconds=60, limit=0)
    try:
        pid = running.process.pid
        assert own + 7 == os.getpriority(os.PRIO_PROCESS, pid)
        if (threads := Path(f"/proc/{pid}/task")).is_dir():
            assert {own + 7} == {os.getpriority(os.PRIO_PROCESS, int(one.name)) for one in threads.iterdir()}
            told = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            assert {b"OMP_NUM_THREADS=3", b"MKL_NUM_THREADS=3"} <= set(told)
    finally:
        await running.end(0.0)
    assert own == os.getpriority(os.PRIO_PROCESS, 0)
    assert {} == Share().environment()
