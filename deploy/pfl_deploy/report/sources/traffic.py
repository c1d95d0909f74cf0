"""Bytes that crossed the network, by round: as the coordinator counted them, and as the specification pins them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pfl_common.errors import SettingError
from pfl_common.sealing import sealed_size
from pfl_common.spec.manifest import Manifest, full_size
from pfl_common.spec.run import Kind, RunSpec, Task, parcel_key
from pfl_deploy.report.sources.coordinator import Record, Tried


@dataclass(frozen=True)
class Crossed:
    """Bytes of one round with all its attempts, from the sites' view: down to them, up from them."""

    down: int
    up: int

    @property
    def total(self) -> int:
        """Both ways."""
        return self.down + self.up


@dataclass(frozen=True)
class Traffic:
    """Bytes by round, from two sources; `kinds` is the coordinator's count by direction and kind."""

    measured: Mapping[int, Crossed]
    pinned: Mapping[int, Crossed]
    kinds: Mapping[str, int]
    at_most: bool
    """Some tensors of the pinned parcels come only now and then, so the pinned bytes are a bound."""
    charge: int = 0
    """Bytes that the run's method adds to each transfer in a report: its paper counts them, nobody sends them."""
    transfers: Mapping[int, Crossed] = field(default_factory=dict)
    """How many there were in each round."""

    @property
    def is_measured(self) -> bool:
        """A simulation moves nothing, and an older release wrote nothing down."""
        return any(crossed.total for crossed in self.measured.values())

    def crossed(self, *, measured: bool) -> Mapping[int, Crossed]:
        """One of both, as it was sent."""
        return self.measured if measured else self.pinned

    def by_round(self, *, measured: bool) -> Mapping[int, Crossed]:
        """The same with what the method's paper charges."""
        crossed = self.crossed(measured=measured)
        if not self.charge:
            return crossed
        return {number: _plus(self._charged(number), sent) for number, sent in crossed.items()}

    def _charged(self, number: int) -> Crossed:
        times = self.transfers.get(number, Crossed(0, 0))
        return Crossed(times.down * self.charge, times.up * self.charge)


def sealed_size_of(manifest: Manifest) -> int:
    """Bytes of a parcel as it crosses the network."""
    return sealed_size(full_size(manifest))


def read_traffic(record: Record) -> Traffic:
    """The first model, which every site takes when it joins, is counted with the first round."""
    measured: dict[int, Crossed] = {}
    kinds: Counter[str] = Counter()
    for tried in record.attempts:
        if tried.course is not None:
            kinds.update(tried.course.bytes)
            now = _crossed(tried.course.bytes)
            measured[tried.round] = _plus(measured.get(tried.round), now)
    entries = (entry for manifest in record.spec.manifests.values() for entry in manifest)
    return Traffic(
        measured,
        _pin(record),
        dict(sorted(kinds.items())),
        any(entry.group for entry in entries),
        _charge(record.spec),
        _count_transfers(record),
    )


def exchanged(record: Record) -> dict[int, float]:
    """Bytes of content that a site takes and gives until the end of each round, the mean over all sites.

    Without seals and without the first model: as papers count, and with what the method's own paper charges.
    """
    phase, charge = _phases(record.spec), _charge(record.spec)
    found, total = dict[int, float](), 0
    for tried in sorted(record.attempts, key=lambda tried: tried.round):
        in_phase = phase(tried.round)
        update = full_size(record.spec.manifest(Kind.TRAIN, in_phase, "up"))
        total += sum(full_size(down) + charge for down in _list_downloads(record, tried, in_phase))
        total += tried.received * (update + charge)
        found[tried.round] = total / len(record.sites)
    return found


def count_content(spec: RunSpec, phase: str, *, charge: int) -> Crossed:
    """Bytes of one download's and one update's content, as a report counts them."""
    down, up = (full_size(spec.manifest(Kind.TRAIN, phase, way)) for way in ("down", "up"))
    return Crossed(down + charge, up + charge)


def cumulated(traffic: Mapping[int, Crossed], upto: int) -> int:
    """All bytes of the rounds up to one."""
    return sum(crossed.total for number, crossed in traffic.items() if number <= upto)


def _crossed(counted: Mapping[str, int]) -> Crossed:
    down, up = (
        sum(size for name, size in counted.items() if name.startswith(way)) for way in ("down/", "up/")
    )
    return Crossed(down, up)


def _plus(one: Crossed | None, other: Crossed) -> Crossed:
    return other if one is None else Crossed(one.down + other.down, one.up + other.up)


def _pin(record: Record) -> dict[int, Crossed]:
    phase = _phases(record.spec)
    rounds: dict[int, Crossed] = {}
    for tried in record.attempts:
        in_phase = phase(tried.round)
        update = sealed_size_of(record.spec.manifest(Kind.TRAIN, in_phase, "up"))
        down = sum(map(sealed_size_of, _list_downloads(record, tried, in_phase)))
        now = Crossed(down, tried.received * update)
        rounds[tried.round] = _plus(rounds.get(tried.round), now)
    if rounds:
        first = len(record.sites) * sealed_size_of(record.spec.init_manifest)
        rounds[min(rounds)] = _plus(rounds[min(rounds)], Crossed(first, 0))
    return rounds


def _count_transfers(record: Record) -> dict[int, Crossed]:
    phase = _phases(record.spec)
    rounds: dict[int, Crossed] = {}
    for tried in record.attempts:
        tasks = len(_list_downloads(record, tried, phase(tried.round)))
        now = Crossed(tasks, tried.received)
        rounds[tried.round] = _plus(rounds.get(tried.round), now)
    return rounds


def _charge(spec: RunSpec) -> int:
    """Nothing for a method or a setting that this release does not have."""
    from pfl_common import methods

    try:
        return methods.count_charged(spec)
    except SettingError:
        return 0


def _list_downloads(record: Record, tried: Tried, phase: str) -> list[Manifest]:
    """What each site got that was asked in an attempt; an older release recorded only which sites were asked. Where
    downloads cross as changes, those that were in the round before get one, unless the run fell back meanwhile.
    """
    spec, found = record.spec, list[Manifest]()
    for kind in (Kind.TRAIN, Kind.EVALUATE):
        whole = spec.manifests.get(parcel_key(kind, phase, "down"), ())
        begun = tried.round == 1 and spec.begins_from is not None
        change = spec.delta(phase) if kind is Kind.TRAIN and not begun else ()
        handed = record.handed.get(Task(kind, tried.round, 0, tried.attempt).key, {})
        found += [change if change and since == tried.round - 1 else whole for since in handed.values()]
    return found or [spec.manifest(Kind.TRAIN, phase, "down")] * len(tried.cohort)


def _phases(spec: RunSpec) -> Callable[[int], str]:
    """Which phase a round is in; only a method that has several is asked, since it brings torch along."""
    pinned = {key.split("/")[1] for key in spec.manifests if key.startswith(f"{Kind.TRAIN.value}/")}
    if len(pinned) == 1:
        (only,) = pinned
        return lambda number: only
    from pfl_common import methods

    method = methods.load(spec.method)
    settings = method.settle(spec.settings)
    return lambda number: method.phase(settings, number, spec.rounds)
