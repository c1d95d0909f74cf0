"""The trainer process: answers the daemon's messages one by one until the daemon is gone."""

from __future__ import annotations

import os
import re
import sys
import threading
import traceback
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

import zmq

from pfl_client.trainer_process import protocol
from pfl_client.trainer_process.buffers import Pool
from pfl_common.app import logs
from pfl_common.app.allocator import let_go_of_free_memory
from pfl_common.app.loading import loading
from pfl_common.errors import UserError

if TYPE_CHECKING:
    from pfl_client.trainer.session import Workbench

PROGRESS_SECONDS = 0.2
LONGEST_WORDS = 300
KEPT = 96 << 20
"""What a task has let go of stays for the next one if it is no more: clearing a model's pages anew is a third of what a
task without training takes. A model of 44.6 MiB leaves 80, for its tensors begin where huge pages do.
"""


def main(address: str) -> None:
    """Serve the daemon at this address; the launch's secret is the first line of standard input."""
    secret = bytes.fromhex(sys.stdin.buffer.readline().decode("ascii"))
    if len(secret) != protocol.SECRET_BYTES:
        raise SystemExit("the trainer is started by pfl-client, not by hand")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logs.configure_beside()
    with zmq.Context() as context, context.socket(zmq.PAIR) as socket:
        protocol.limit(socket)
        socket.connect(address)
        wire = _Wire(socket, secret)
        wire.send(protocol.Hello())
        # Torch takes its time to load: the daemon knows by now that its trainer lives.
        with loading():
            from pfl_client.trainer.session import Workbench

        serve(wire, Workbench(Pool()))


def serve(wire: _Wire, bench: Workbench) -> None:
    """Answer one letter after the other."""
    while True:
        letter, body = wire.receive()
        try:
            answer = _answer(letter, body, bench, _Meter(wire))
        except UserError as error:
            answer = protocol.explain(error), b""
        except Exception as error:  # whatever it is, the daemon must hear of it and decide
            answer = protocol.Broken(describe_fault(error)), b""
        wire.send(*answer)
        # Warm memory is for the batches of a task: between tasks all but a little of it is the machine's.
        let_go_of_free_memory(beyond=KEPT)
        # A machine without memory for that finds out at the next task, where it can be told.
        with suppress(MemoryError, RuntimeError):
            bench.make_ready()


class _Wire:
    """The socket, and the secret that goes with each message."""

    def __init__(self, socket: zmq.Socket[bytes], secret: bytes) -> None:
        self._socket, self._secret, self._pool = socket, secret, Pool()

    def send(self, letter: protocol.Letter, body: protocol.Buffer = b"") -> None:
        self._socket.send_multipart(protocol.pack(self._secret, letter, body), copy=False)

    def receive(self) -> tuple[protocol.Letter, memoryview]:
        arrival, more = protocol.Arrival(self._secret, self._pool), True
        while more:
            frame = self._socket.recv(copy=False)
            arrival.take(frame)
            more = frame.more
        return arrival.read()


def _answer(
    letter: protocol.Letter, body: protocol.Buffer, bench: Workbench, meter: _Meter
) -> tuple[protocol.Letter, protocol.Buffer]:
    match letter:
        case protocol.Describe():
            return protocol.Described(bench.describe(letter.folder)), b""
        case protocol.Open():
            bench.open(letter.folder, bytes(body).decode(), letter.init)
            return protocol.Opened(), b""
        case protocol.Work():
            done = bench.work(protocol.read_job(letter, body), meter.move)
            return protocol.answer_with(done, moved=meter.waiting)
        case _:
            raise ValueError(f"a trainer is not asked {letter.says!r}")


class _Meter:
    """Reports training progress to the daemon, summed up so that messages stay few."""

    def __init__(self, wire: _Wire) -> None:
        self._wire, self._told = wire, monotonic()
        self.waiting = 0
        """Samples that nothing was said of yet."""

    def move(self, samples: int) -> None:
        self.waiting += samples
        # Also without samples it is a sign of life: an evaluation passes none.
        if monotonic() - self._told >= PROGRESS_SECONDS:
            self._wire.send(protocol.Moved(self.waiting))
            self.waiting, self._told = 0, monotonic()


def describe_fault(error: Exception) -> str:
    """Where the program failed and in which words, without what could be a value or a file's name."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = f" at {os.path.basename(last[0].filename)}:{last[0].lineno}" if last else ""
    words = error.strerror or "" if isinstance(error, OSError) else str(error).partition("\n")[0]
    for opening in ("tensor(", "array("):
        words = words.partition(opening)[0]
    words = re.sub(r"-?\d+\.\d*(e[-+]?\d+)?", "#", words)[:LONGEST_WORDS]
    return f"{type(error).__name__}: {words}{place}"


def _end_with_parent() -> None:
    """Standard input stays open as long as the daemon lives: its end is the daemon's, however that came."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(0)
