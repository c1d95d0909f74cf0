"""A TCP proxy on loopback that keeps every byte that crosses, as somebody on the way would."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class RecordingProxy:
    """Passes connections on to one port of this machine; `seen` holds all that crossed, both ways."""

    def __init__(self, target: int) -> None:
        self.seen = bytearray()
        self._target, self._lock = target, threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listening.getsockname()[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listening, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._target), timeout=10)
                far.settimeout(None)
                self._ends += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                with self._lock:
                    self.seen += piece
                sink.sendall(piece)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
