"""What is read from outside while programs run: memory of processes, bytes on the loopback interface, log lines."""

from __future__ import annotations

import json
import os
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

Event: TypeAlias = dict[str, Any]
"""A line of a log: names and whatever they stand for."""

TICK_SECONDS = 0.01
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
INTERFACES = Path("/proc/net/dev")
SLOW_LINE = "line"
"""How the names of slow lines begin; see `slow_links`."""
MEMORY_EVERY = 5
"""Ticks from one look at a process to the next."""


@dataclass(frozen=True)
class Memory:
    """A process at one moment, in bytes."""

    at: float
    anonymous: int
    resident: int
    cpu: float = 0.0
    """Processor seconds it has used by then."""


@dataclass
class Track:
    """One process over time, and the highest resident memory the kernel saw."""

    pid: int
    samples: list[Memory] = field(default_factory=list)
    highest: int = 0

    def between(self, start: float, end: float) -> list[Memory]:
        """The samples of a stretch of time; the next one, if it was too short for any."""
        found = [sample for sample in self.samples if start <= sample.at <= end]
        return found or [sample for sample in self.samples if sample.at > end][:1]

    def cpu_at(self, moment: float) -> float:
        """Processor seconds used by a moment, between the looks before and after it."""
        place = bisect_right(self.samples, moment, key=lambda sample: sample.at)
        before, after = (self.samples[min(max(0, at), len(self.samples) - 1)] for at in (place - 1, place))
        share = (moment - before.at) / (after.at - before.at) if after.at > before.at else 0.0
        return before.cpu + share * (after.cpu - before.cpu)


class Observer(threading.Thread):
    """Looks at everything named, from `start` to `stop`; moments are wall-clock time, as in the logs."""

    def __init__(self) -> None:
        super().__init__(name="observer", daemon=True)
        self.tracks: dict[str, Track] = {}
        self.wire: list[tuple[float, int]] = []
        self._ending = threading.Event()

    def watch(self, name: str, pid: int) -> None:
        """Look at this process too."""
        self.tracks = {**self.tracks, name: Track(pid)}

    def run(self) -> None:
        tick = 0
        while not self._ending.wait(TICK_SECONDS):
            self.wire.append((time.time(), read_carried()))
            if tick % MEMORY_EVERY == 0:
                for track in self.tracks.values():
                    look_at(track)
            tick += 1

    def stop(self) -> None:
        """Look no more."""
        self._ending.set()
        self.join(5)

    def wire_at(self, moment: float) -> int:
        """Bytes the interface had carried at a moment, by the last look before it."""
        place = bisect_right(self.wire, moment, key=lambda sample: sample[0])
        return self.wire[max(0, place - 1)][1]


def look_at(track: Track) -> None:
    """Add one sample; a process that has ended has no memory any more."""
    try:
        lines = Path(f"/proc/{track.pid}/status").read_text().splitlines()
        spent = Path(f"/proc/{track.pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return
    said = dict(line.split(":", 1) for line in lines)
    if "VmRSS" in said:
        numbers = [int(said[name].split()[0]) * 1024 for name in ("RssAnon", "VmRSS", "VmHWM")]
        cpu = (int(spent[11]) + int(spent[12])) / TICKS_A_SECOND
        track.samples.append(Memory(time.time(), numbers[0], numbers[1], cpu))
        track.highest = numbers[2]


def read_carried() -> int:
    """Bytes that slow lines have carried both ways, of which this network is one end. Where there are none, those that
    `lo` received: each is also counted as sent, so one side is all of it.
    """
    lines = INTERFACES.read_text().splitlines()
    counts = {name.strip(): numbers.split() for name, _, numbers in (line.partition(":") for line in lines)}
    slow = [int(each[0]) + int(each[8]) for name, each in counts.items() if name.startswith(SLOW_LINE)]
    return sum(slow) if slow else int(counts["lo"][0])


@dataclass
class Log:
    """A program's log of JSON lines, read as it grows."""

    path: Path
    events: list[Event] = field(default_factory=list)
    _read: int = 0

    def refresh(self) -> None:
        """Take in whatever has been written since."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        self.events.extend(_parse(whole))

    def find(self, event: str, **fields: object) -> list[Event]:
        """The lines of one kind with these values."""
        self.refresh()
        return [e for e in self.events if e.get("event") == event and fields.items() <= e.items()]

    def ending(self, lines: int = 15) -> str:
        """The last words."""
        return "\n".join(self.path.read_text(errors="replace").splitlines()[-lines:])


def moment(event: Event) -> float:
    """When a line was written."""
    return datetime.fromisoformat(str(event["timestamp"])).timestamp()


def _parse(text: bytes) -> Iterator[Event]:
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event
