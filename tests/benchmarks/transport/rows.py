"""The rows of the table: what each budget asks, what was measured, and the ratio between the two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from statistics import median

from tests.benchmarks.transport.laboratory import Laboratory
from tests.benchmarks.transport.ours import Recording
from tests.benchmarks.transport.workload import Workload

MIB = 1 << 20
MB = 1_000_000


@dataclass(frozen=True)
class Row:
    """One line. `ratio` is measured by reference; the target holds if `judged` is at most `limit`."""

    budget: str
    workload: str
    unit: str
    measured: float
    target: str
    limit: float
    judged: float
    reference: float | None = None
    details: dict[str, object] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """How much more than the reference, where there is one."""
        return self.measured / self.reference if self.reference else None

    @property
    def met(self) -> bool:
        """Whether the target holds."""
        return self.judged <= self.limit

    def to_json(self) -> dict[str, object]:
        """Everything as plain values."""
        return {**asdict(self), "ratio": self.ratio, "met": self.met}


def round_times(budget: str, workload: Workload, limit: float, laboratory: Laboratory) -> Iterator[Row]:
    """A round of ours against the one written by hand, the two taking turns in one session."""
    recordings, yardsticks = laboratory.pairs(workload)
    ours = [seconds for recording in recordings for seconds in recording.rounds]
    theirs = [seconds for rounds in yardsticks for seconds in rounds]
    mine, yard = median(ours), median(theirs)
    spread = {"ours_s": _spread(ours), "by_hand_s": _spread(theirs), "turns": len(recordings)}
    yield Row(
        budget,
        f"round, {_described(workload)}",
        "s",
        mine,
        f"≤ {limit}× by hand",
        limit,
        mine / yard,
        reference=yard,
        details=spread,
    )


def b1(laboratory: Laboratory) -> Iterator[Row]:
    """A round with ten sites."""
    yield from round_times("B1", laboratory.plan.many, 1.6, laboratory)


def b2(laboratory: Laboratory) -> Iterator[Row]:
    """A round with two sites."""
    yield from round_times("B2", laboratory.plan.few, 1.9, laboratory)


def b3(laboratory: Laboratory) -> Iterator[Row]:
    """Bytes on the wire, all headers and control calls included."""
    recording = laboratory.play(laboratory.plan.many)
    workload, carried = recording.workload, median(recording.wire)
    ideal = 2 * workload.cohort * workload.model_bytes
    yield Row(
        "B3",
        f"bytes a round, {_described(workload)}",
        "MiB",
        carried / MIB,
        "≤ 1.01 × 2 × N × model",
        1.01,
        carried / ideal,
        reference=ideal / MIB,
        details={"bytes": _spread(recording.wire), "own_network": laboratory.own_network},
    )


def b4(laboratory: Laboratory) -> Iterator[Row]:
    """The coordinator's memory for few and many sites."""
    for workload in laboratory.plan.memory:
        recording = laboratory.play(workload)
        limit = 4 * workload.model_bytes + 4 * MIB * workload.cohort
        yield _memory_row("B4", recording, limit, "≤ 4 models + 4 MiB × uploads")


def b5(laboratory: Laboratory) -> Iterator[Row]:
    """The coordinator's memory with a model that fills gigabytes."""
    recording = laboratory.play(laboratory.plan.huge)
    limit = 2 * recording.workload.model_bytes + 1024 * MIB
    yield _memory_row("B5", recording, limit, "≤ 2 models + 1 GiB")


def _memory_row(budget: str, recording: Recording, limit: int, target: str) -> Row:
    workload, peak = recording.workload, recording.server_peak()
    details = {
        "in_models": peak / workload.model_bytes,
        "from_first_commit_MB": recording.server_peak(recording.commits[0]) / MB,
        "idle_anonymous_MB": recording.server_idle.anonymous / MB,
        "resident_peak_above_idle_MB": (recording.server.highest - recording.server_idle.resident) / MB,
        "sites": "light" if workload.light else "real",
    }
    return Row(
        budget,
        f"coordinator's peak above idle, {_described(workload)}",
        "MB",
        peak / MB,
        target,
        limit / MB,
        peak / MB,
        reference=limit / MB,
        details=details,
    )


def b6(laboratory: Laboratory) -> Iterator[Row]:
    """The daemon's memory, alone and while it moves a model."""
    recording = laboratory.play(laboratory.plan.few)
    idle = recording.daemons[0].between(*recording.idle)
    busy = [
        s for track in recording.daemons for s in track.between(recording.commits[0], recording.commits[-1])
    ]
    for name, samples, limit in (("idle", idle, 80), ("in transfer", busy, 160)):
        resident = max(sample.resident for sample in samples) / MB
        yield Row(
            "B6",
            f"daemon {name}, {_described(recording.workload)}",
            "MB",
            resident,
            f"≤ {limit} MB",
            limit,
            resident,
            reference=limit,
            details={"anonymous_MB": max(sample.anonymous for sample in samples) / MB},
        )


def b7(laboratory: Laboratory) -> Iterator[Row]:
    """From the start of a process to its use."""
    recordings = laboratory.several(laboratory.plan.start, 2 * laboratory.plan.turns - 1)
    ready = [recording.ready_seconds for recording in recordings]
    begun = [recording.begun_seconds for recording in recordings]
    for name, seconds, limit in (
        ("pfl-server ready", ready, 2.5),
        ("pfl-client at its first task", begun, 4.0),
    ):
        yield Row(
            "B7",
            name,
            "s",
            median(seconds),
            f"≤ {limit} s",
            limit,
            median(seconds),
            reference=limit,
            details={"spread_s": _spread(seconds)},
        )


def b8(laboratory: Laboratory) -> Iterator[Row]:
    """What a killed site costs its round."""
    recording = laboratory.play(laboratory.plan.killed)
    usual = median(recording.rounds)
    delay, lease = recording.killed_round_seconds - usual, recording.workload.lease or 15.0
    counted, lost = recording.killed_counted
    yield Row(
        "B8",
        f"delay by a killed site, {_described(recording.workload)}",
        "s",
        delay,
        f"≤ the lease, {lease:g} s",
        lease,
        delay,
        reference=lease,
        details={
            "usual_round_s": usual,
            "round_after_s": recording.after_kill_seconds,
            "counted": counted,
            "lost": lost,
            "had_its_task": recording.killed_in_task,
        },
    )


def b9(laboratory: Laboratory) -> Iterator[Row]:
    """Small rounds in a second."""
    for workload, least in laboratory.plan.small:
        recording = laboratory.play(workload)
        rate = len(recording.rounds) / sum(recording.rounds)
        kept = f", --durability {workload.durability}" if workload.durability else ", full durability"
        yield Row(
            "B9",
            f"rounds a second, {_described(workload)}{kept}",
            "1/s",
            rate,
            f"≥ {least} a second",
            1.0,
            least / rate,
            reference=least,
            details={"round_s": _spread(recording.rounds)},
        )


def b11(laboratory: Laboratory) -> Iterator[Row]:
    """A large federation of which each round asks a few."""
    recording = laboratory.play(laboratory.plan.crowd)
    workload, start = recording.workload, recording.commits[0]
    in_rounds = recording.server.between(start, recording.commits[-1])
    resident, seconds = max(sample.resident for sample in in_rounds) / MB, median(recording.rounds)
    about = f"{_described(workload)}, cohort {workload.cohort}"
    gathered = {
        "highest_MB": recording.server.highest / MB,
        "anonymous_MB": max(sample.anonymous for sample in in_rounds) / MB,
        "gathering_to_first_commit_s": start - recording.began,
        "sites": "light",
    }
    yield Row(
        "B11",
        f"coordinator, {about}",
        "MB",
        resident,
        "≤ 600 MB",
        600,
        resident,
        reference=600,
        details=gathered,
    )
    spread: dict[str, object] = {"round_s": _spread(recording.rounds)}
    yield Row("B11", f"round, {about}", "s", seconds, "≤ 3 s", 3, seconds, reference=3, details=spread)


def _described(workload: Workload) -> str:
    size = workload.model_bytes
    model = f"{size / MIB:.1f} MiB" if size >= MIB else f"{size / 1000:.0f} kB"
    return f"{workload.sites} × {model}"


def _spread(values: list[float] | list[int]) -> dict[str, float]:
    ordered = sorted(values)
    return {"least": ordered[0], "median": median(ordered), "most": ordered[-1], "count": len(ordered)}


ROWS: dict[str, Callable[[Laboratory], Iterator[Row]]] = {
    "B1": b1,
    "B2": b2,
    "B3": b3,
    "B4": b4,
    "B5": b5,
    "B6": b6,
    "B7": b7,
    "B8": b8,
    "B9": b9,
    "B11": b11,
}
LONG = {"B5"}
"""Only when asked for by name: it wants many gigabytes of memory and disk, and many minutes."""
