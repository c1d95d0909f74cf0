"""The facts of a run for the page and its JSON, as plain values: accuracy, participation, cost."""

from __future__ import annotations

import json
import math
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any  # plain values on their way to JSON

from pfl_common.spec.run import ClientId, Json, RunSpec
from pfl_deploy.report.averages import Reading, best_of_each
from pfl_deploy.report.sources.coordinator import Record, Tried, subject_of
from pfl_deploy.report.sources.evaluations import Measured, Point, read_measures
from pfl_deploy.report.sources.method import Spread, read_diagnostics, read_sharing, read_told
from pfl_deploy.report.sources.sites import Curve, History
from pfl_deploy.report.sources.traffic import Traffic, cumulated, read_traffic
from pfl_server.store.comparable import Differences, find_differences
from pfl_server.telemetry.counters import SITE_PHASES

SHARES = (0.90, 0.95, 0.99)
"""Targets when none is asked for: these shares of the best mean accuracy."""
_PACKAGES = ("pfl-net", "torch", "grpcio", "numpy", "matplotlib")


@dataclass(frozen=True)
class Told:
    """One run of the page: its subject, or one beside it."""

    record: Record
    measured: Measured
    traffic: Traffic
    histories: Mapping[ClientId, History]
    kind: str = "run"
    title: str = ""
    diagnostics: Mapping[str, Curve] = field(default_factory=dict)
    summed: Mapping[str, Mapping[int, Spread]] = field(default_factory=dict)
    """What training said, summed over the sites that told it: by name and round."""
    reading: Reading = field(default_factory=Reading)
    differences: Differences = field(default_factory=Differences)
    """Of a run beside it: what differs between the page's run and this one."""

    @property
    def name(self) -> str:
        """How the page calls it: by its method, unless another one has the same."""
        return self.title or self.record.spec.method

    @property
    def finals(self) -> dict[ClientId, float]:
        """Each known site's own accuracy on test data at the end."""
        return self.finals_of("test")

    @property
    def best(self) -> float | None:
        """The best accuracy as it was asked for; None where each site's own is not known."""
        if self.reading.best_mode == "common_round":
            point = self.measured.best
            return point.counts if point else None
        measure = self.measured.headline[0]
        curves = {site: curve for site, h in self.histories.items() if (curve := h.whole(measure))}
        samples = {site: h.samples[measure] for site, h in self.histories.items() if measure in h.samples}
        if set(curves) != set(self.record.sites) or (self.reading.is_pooled and set(samples) != set(curves)):
            return None
        return best_of_each(curves, samples, self.reading.acc_average)

    @property
    def overfitting(self) -> float | None:
        """How far the last state lies below the best."""
        best, final = self.best, self.measured.final
        return best - final.counts if best is not None and final is not None else None

    @property
    def learning_is_summed(self) -> bool:
        """Whether sums are all there is of what training said: no site's own book is here."""
        return bool(self.summed) and not any(history.learning for history in self.histories.values())

    def finals_of(self, part: str) -> dict[ClientId, float]:
        """The same on another part of the data, of the sites that have it."""
        measure = self.measured.measure(part)
        known = {site: history.final(measure) for site, history in self.histories.items()}
        return {site: value for site, value in known.items() if value is not None}


@dataclass(frozen=True)
class Reached:
    """The first time a run's mean accuracy reached a target; None if it did not."""

    target: float
    round: int
    bytes: int
    measured: bool
    seconds: float | None


@dataclass(frozen=True)
class Target:
    """A mean accuracy to reach; `share` is its part of the run's best one, unless the value was asked for."""

    accuracy: float
    share: float | None = None


@dataclass(frozen=True)
class Facts:
    """A run, and the runs beside it."""

    run: Told
    beside: tuple[Told, ...]
    targets: tuple[Target, ...]
    made: float
    """When this was read."""
    missing: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[Told, ...]:
        """The run, then the others."""
        return (self.run, *self.beside)

    @property
    def measured_bytes(self) -> bool:
        """Whether all runs' bytes are counted ones: what is compared must be told by one measure."""
        return all(told.traffic.is_measured for told in self.all)

    def find(self, kind: str) -> Told | None:
        """The run beside it that plays a part: local, fedavg."""
        return next((told for told in self.beside if told.kind == kind), None)


def tell(
    record: Record,
    histories: Mapping[ClientId, History],
    kind: str = "run",
    reading: Reading = Reading(),  # noqa: B008  # it cannot change
) -> Told:
    """Read everything there is of a run."""
    measured, traffic = read_measures(record.scores, reading.acc_average), read_traffic(record)
    diagnostics, summed = read_diagnostics(record), read_told(record)
    return Told(
        record, measured, traffic, histories, kind, diagnostics=diagnostics, summed=summed, reading=reading
    )


def choose_targets(run: Told, asked: Sequence[float]) -> tuple[Target, ...]:
    """Those asked for, else shares of the best."""
    best = run.measured.best
    if asked or best is None:
        return tuple(Target(accuracy) for accuracy in sorted(set(asked)))
    return tuple(Target(share * best.counts, share) for share in SHARES)


def find_reached(told: Told, target: float, *, measured: bool) -> Reached | None:
    """The first state whose mean is at least the target, and what it took to come there."""
    for point in told.measured.headline[1]:
        if point.counts >= target:
            crossed = told.traffic.by_round(measured=measured)
            return Reached(
                target,
                point.after,
                cumulated(crossed, point.after),
                measured,
                seconds_until(told, point.after),
            )
    return None


def seconds_until(told: Told, number: int) -> float | None:
    """From the opening of the first round to the end of one; None where that was not written down."""
    courses = {tried.round: tried.course for tried in told.record.committed}
    began = next((t.course.opened for t in told.record.attempts if t.course), None)
    if number == 0:
        return 0.0
    course = courses.get(number)
    return course.ended - began if course and began is not None and courses.get(1) else None


def sum_phases(record: Record) -> dict[str, tuple[float, float]]:
    """Seconds by phase: in all, and the mean of a committed round, or of a counted update for what sites do."""
    total: Counter[str] = Counter()
    rounds = updates = 0
    for tried in record.attempts:
        if tried.course is None:
            continue
        total.update(tried.course.seconds)
        rounds += tried.status == "committed"
        updates += len(tried.counted)
    return {
        phase: (seconds, seconds / max(1, updates if phase in SITE_PHASES else rounds))
        for phase, seconds in total.items()
    }


def count_reasons(attempts: Sequence[Tried]) -> dict[str, int]:
    """Why updates did not come; details that follow a reason are left out here."""
    return dict(
        Counter(
            reason.partition(":")[0] for tried in attempts for reason in tried.losses.values()
        ).most_common()
    )


def count_by_site(record: Record) -> dict[ClientId, tuple[int, int, int]]:
    """How often each site was asked, counted and lost, over all attempts."""
    table = {site: [0, 0, 0] for site in record.sites}
    for tried in record.attempts:
        for column, sites in enumerate((tried.cohort, tried.counted, tried.losses)):
            for site in sites:
                table.setdefault(site, [0, 0, 0])[column] += 1
    return {site: (asked, counted, lost) for site, (asked, counted, lost) in sorted(table.items())}


def gains(facts: Facts) -> dict[str, float]:
    """Mean accuracy above that of each run beside it that can be compared with."""
    own = facts.run.measured.final
    others = {told.kind: told.measured.final for told in facts.beside if told.differences.comparable}
    return {kind: own.counts - point.counts for kind, point in others.items() if own and point}


def differ(one: Told, other: Told) -> Differences:
    """The differences between any two of the page's runs."""
    return find_differences(subject_of(one.record), subject_of(other.record))


def site_gains(facts: Facts) -> dict[ClientId, float]:
    """Each known site's gain over training alone, where the two can be compared."""
    alone, own = facts.find("local"), facts.run.finals
    other = alone.finals if alone and alone.differences.comparable else {}
    return {site: own[site] - other[site] for site in own if site in other}


def describe(spec: RunSpec) -> dict[str, Json]:
    """The content of a specification without the long lists of tensors, and its hash."""
    plain: dict[str, Json] = json.loads(spec.to_json())
    return {name: value for name, value in plain.items() if name != "manifests"} | {"hash": spec.hash}


def versions_here() -> dict[str, str]:
    """The versions of the software that made this report."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def to_json(facts: Facts) -> dict[str, Json]:
    """The same facts for other programs; what is not a number is null."""
    plain: dict[str, Any] = {
        **_run_json(facts, facts.run),
        "made": facts.made,
        "reading": asdict(facts.run.reading),
        "beside": [_run_json(facts, told) | _differences_json(told) for told in facts.beside],
        "gain": gains(facts),
        "gain_by_site": site_gains(facts),
        "targets": [asdict(target) for target in facts.targets],
        "versions": {"run": dict(facts.run.record.spec.versions), "report": versions_here()},
        "spec": describe(facts.run.record.spec),
        "missing": list(facts.missing),
    }
    cleaned: dict[str, Json] = _clean(plain)
    return cleaned


def _run_json(facts: Facts, told: Told) -> dict[str, Any]:
    record, measured = told.record, told.measured
    headline, points = measured.headline
    return {
        "run": record.spec.id,
        "method": record.spec.method,
        "kind": told.kind,
        "status": record.status,
        "words": record.words,
        "seed": record.spec.seed,
        "rounds": {"planned": record.spec.rounds, "committed": len(record.committed)},
        "sites": list(record.sites),
        "headline": headline,
        "final": _plain(measured.final),
        "best": _plain(measured.best),
        "best_accuracy": told.best,
        "overfitting": told.overfitting,
        "shifted": _plain(measured.final_of("shifted")),
        "curve": [asdict(point) for point in points],
        "measures": {name: [asdict(p) for p in measured.curve(name)] for name in measured.curves},
        "end": {name: asdict(point) for name, point in measured.end.items()},
        "spread": measured.spread,
        "accuracy_by_site": told.finals,
        "shifted_by_site": told.finals_of("shifted"),
        "best_by_site": {site: history.best for site, history in told.histories.items() if history.best},
        "bytes": _bytes_json(told),
        "reached": [
            _plain(find_reached(told, target.accuracy, measured=facts.measured_bytes))
            for target in facts.targets
        ],
        "attempts": [_attempt_json(tried) for tried in record.attempts],
        "phases": {n: {"total": total, "mean": mean} for n, (total, mean) in sum_phases(record).items()},
        "losses": count_reasons(record.attempts),
        "by_site": {
            site: {"asked": a, "counted": c, "lost": x} for site, (a, c, x) in count_by_site(record).items()
        },
        "diagnostics": {name: dict(curve) for name, curve in told.diagnostics.items()},
        "sharing": asdict(read_sharing(record.spec)),
        "learning_summed": {
            name: {number: asdict(spread) for number, spread in rounds.items()}
            for name, rounds in told.summed.items()
        },
        "learning": {site: dict(history.learning) for site, history in told.histories.items()},
    }


def _differences_json(told: Told) -> dict[str, Any]:
    differences = told.differences
    return {"not_comparable": list(differences.hindering), "differs": list(differences.own)}


def _bytes_json(told: Told) -> dict[str, Any]:
    traffic = told.traffic
    return {
        "measured": {number: asdict(crossed) for number, crossed in traffic.measured.items()}
        if traffic.is_measured
        else None,
        "by_kind": dict(traffic.kinds),
        "pinned": {number: asdict(crossed) for number, crossed in traffic.pinned.items()},
        "pinned_is_bound": traffic.at_most,
        "charged_each_transfer": traffic.charge,
    }


def _attempt_json(tried: Tried) -> dict[str, Any]:
    course = tried.course
    return {
        "round": tried.round,
        "attempt": tried.attempt,
        "status": tried.status,
        "asked": len(tried.cohort),
        "drawn_to_drop_out": len(tried.drops),
        "counted": len(tried.counted),
        "losses": dict(tried.losses),
        "reason": tried.reason,
        "opened": course.opened if course else None,
        "ended": course.ended if course else None,
        "seconds": dict(course.seconds) if course else None,
    }


def _plain(found: Point | Reached | None) -> dict[str, Any] | None:
    return asdict(found) if found is not None else None


def _clean(value: Any) -> Any:
    """JSON has neither infinities nor whole numbers as names."""
    if isinstance(value, Mapping):
        return {str(name): _clean(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def mean_curve(curves: Sequence[Curve]) -> tuple[Curve, dict[int, tuple[float, float]]]:
    """The mean over sites, and the least and greatest value, at each round that any of them knows."""
    rounds = sorted({number for curve in curves for number in curve})
    values = {number: [curve[number] for curve in curves if number in curve] for number in rounds}
    mean = {number: sum(known) / len(known) for number, known in values.items()}
    return mean, {number: (min(known), max(known)) for number, known in values.items()}
