"""The coordinator's numbers for Prometheus, read from live state at each scrape. No label names a site, but for those
that an operator asks for (--site-metrics).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol  # a mapping's key type does not vary

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pfl_common.metric import Number, Summed, Value, fill, fill_choice
from pfl_server.run.attempt import OUTCOMES, Watch
from pfl_server.telemetry.counter_reading import Reading
from pfl_server.telemetry.history import COMBINED

STATES = ("gathering", "running", "finishing", "finished", "stopped", "failed")
STATISTICS = ("macro", "micro", "std", "worst_decile", "variation")
ENDINGS = "outcome: committed, abandoned"
DIRECTIONS = "direction: down, up (as the site sees it)"
KINDS = "kind: init, train, evaluate, finish, calls"

NUMBERS = (
    Number("pfl_run", "info", "The run that is served.", ("run", "method", "version")),
    Number(
        "pfl_run_state",
        "gauge",
        "How the run stands: one of the states is 1.",
        ("state",),
        "state: " + ", ".join(STATES),
    ),
    Number("pfl_run_started_timestamp_seconds", "gauge", "When the run began."),
    Number("pfl_rounds_planned", "gauge", "Rounds the run is to have."),
    Number("pfl_round", "gauge", "Round that is under way, or the last one."),
    Number("pfl_round_attempt", "gauge", "Which attempt at the round it is."),
    Number(
        "pfl_round_opened_timestamp_seconds",
        "gauge",
        "When the round under way, or the last one, was opened.",
    ),
    Number("pfl_round_closed_timestamp_seconds", "gauge", "When the last committed round was closed."),
    Number("pfl_round_seconds", "summary", "Time from opening to end of a round.", ("outcome",), ENDINGS),
    Number("pfl_rounds", "counter", "Rounds by how they ended.", ("outcome",), ENDINGS),
    Number("pfl_round_cohort", "gauge", "Sites asked in the round."),
    Number("pfl_round_counted", "gauge", "Sites counted in the last closed round."),
    Number("pfl_round_awaited", "gauge", "Sites the round still waits for."),
    Number(
        "pfl_phase_seconds",
        "summary",
        "Time in a phase: download, work, upload and verify for each site, the others for each round. A parcel up to "
        "128 KiB goes with its task or offer: the time on its way is part of work.",
        ("phase",),
        "phase: wait (for sites), seal, download, work, upload, verify, fold, commit",
    ),
    Number(
        "pfl_bytes",
        "counter",
        "Bytes of the run's messages as they crossed, repeated parts included; without what TLS and TCP add.",
        ("direction", "kind"),
        f"{DIRECTIONS}; {KINDS}",
    ),
    Number(
        "pfl_sites",
        "gauge",
        "Registered sites by whether they are heard.",
        ("state",),
        "state: here, away (silent for a lease, or the line closed), left (said goodbye)",
    ),
    Number(
        "pfl_losses",
        "counter",
        "Updates that did not come, by reason and by how far the site was.",
        ("reason", "stage"),
        "reason: lease, deadline, straggler, aside, left, removed, dropped, refused or what the site said; "
        "stage: called, working, uploading, drawn (to drop out)",
    ),
    Number(
        "pfl_refusals",
        "counter",
        "Messages not taken, by code.",
        ("code",),
        "code: runbook.md explains each, under PflRefusalsRising",
    ),
    Number(
        "pfl_accuracy_ratio",
        "gauge",
        "Accuracy over the sites of the last evaluation; none where fewer than --fewest-reporters (5) measured: it "
        "would say much about each of them.",
        ("split", "view", "statistic"),
        "split: test, shifted, validation, train; view: combined or one head's name; "
        "statistic: macro (mean of sites), micro (mean of samples), std, worst_decile, variation (std / macro)",
    ),
    Number(
        "pfl_gain_ratio",
        "gauge",
        "Mean accuracy above that of another method's finished run: the newest that differs in nothing else, or one "
        "that was named; none where the accuracy is not told.",
        ("baseline",),
        "baseline: local, fedavg, or the method of a run that --baseline names",
    ),
    Number(
        "pfl_certificate_end_timestamp_seconds",
        "gauge",
        "When a certificate ends.",
        ("of",),
        "of: coordinator, authority, site_soonest (of the registered sites heard within a week that have not left)",
    ),
    Number(
        "pfl_member_here",
        "gauge",
        "1 for a registered site that is heard, 0 for one that is away or has left; only with --site-metrics.",
        ("site",),
        "site: its name; none of them where there are more than 1000",
    ),
    Number(
        "pfl_member_counted",
        "counter",
        "Rounds of the run in which a site's update was counted; only with --site-metrics.",
        ("site",),
        "site: as of pfl_member_here",
    ),
    Number("pfl_checkpoint_timestamp_seconds", "gauge", "When the newest checkpoint was written."),
    Number("pfl_disk_free_bytes", "gauge", "Free on the disk of the state folder."),
    Number("pfl_disk_used_bytes", "gauge", "Taken by the run's folder."),
)
_BY_NAME = {number.name: number for number in NUMBERS}


class Scene(Protocol):
    """The input of a scrape; values that are slow to find were found before."""

    @property
    def watch(self) -> Watch | None: ...

    @property
    def counters(self) -> Reading:
        """Traffic, time and refusals, as they may be told."""

    @property
    def named(self) -> tuple[str, str, str]:
        """Run, method and version of this program."""

    @property
    def state(self) -> str:
        """One of STATES."""

    @property
    def planned(self) -> int:
        """Rounds the run is to have."""

    @property
    def heard(self) -> tuple[int, int, int]:
        """Registered sites that are here, those that are away, and those that have said goodbye."""

    @property
    def members(self) -> Mapping[str, tuple[bool, int]]:
        """By site whether it is here and in how many rounds it was counted; empty unless the operator asks for it."""

    @property
    def around(self) -> Mapping[str, float]:
        """Disk and checkpoint, by the number's name; only what is known."""

    @property
    def ends(self) -> Mapping[str, float]:
        """When certificates end, by whose they are."""


class CoordinatorMetrics(Collector):
    """Exposes the numbers declared in NUMBERS, and no others."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def collect(self) -> Iterable[Metric]:
        """All numbers as they are now."""
        scene, watch = self._scene, self._scene.watch
        here, away, left = scene.heard
        yield fill(_BY_NAME["pfl_run"], {scene.named: 1.0})
        yield fill_choice(_BY_NAME["pfl_run_state"], STATES, scene.state)
        yield _one("pfl_rounds_planned", scene.planned)
        yield fill(_BY_NAME["pfl_sites"], {("here",): here, ("away",): away, ("left",): left})
        members = scene.members
        yield _by("pfl_member_here", {site: float(heard) for site, (heard, _) in members.items()})
        yield _by("pfl_member_counted", {site: counted for site, (_, counted) in members.items()})
        yield from _of_counters(scene.counters)
        yield _by("pfl_certificate_end_timestamp_seconds", scene.ends)
        for name, value in sorted(scene.around.items()):
            yield _one(name, value)
        if watch is not None:
            yield from _of_round(watch)
            yield from _of_rounds(watch)
            yield from _of_scores(watch)


def _of_counters(counted: Reading) -> Iterable[Metric]:
    yield _by("pfl_phase_seconds", {phase: Summed(*spent) for phase, spent in counted.seconds.items()})
    crossed = {tuple(place.split("/")): float(count) for place, count in counted.bytes.items()}
    yield fill(_BY_NAME["pfl_bytes"], crossed)
    yield _by("pfl_refusals", counted.refusals)


def _of_round(watch: Watch) -> Iterable[Metric]:
    yield _one("pfl_run_started_timestamp_seconds", watch.started)
    yield _one("pfl_round", watch.round)
    yield _one("pfl_round_attempt", watch.attempt)
    yield _one("pfl_round_cohort", watch.cohort)
    yield _one("pfl_round_counted", watch.counted)
    yield _one("pfl_round_awaited", len(watch.awaited))
    yield _one("pfl_round_opened_timestamp_seconds", watch.opened)
    yield _one("pfl_round_closed_timestamp_seconds", watch.closed)


def _of_rounds(watch: Watch) -> Iterable[Metric]:
    yield _by("pfl_round_seconds", watch.seconds)
    yield _by("pfl_rounds", {outcome: watch.outcomes[outcome] for outcome in OUTCOMES})
    yield fill(_BY_NAME["pfl_losses"], {place: float(count) for place, count in watch.losses.items()})


def _of_scores(watch: Watch) -> Iterable[Metric]:
    found: dict[tuple[str, ...], Value] = {}
    for name, summary in watch.scores.items():
        split, _, view = name.partition("/")
        found |= {(split, view, statistic): summary[f"acc_{statistic}"] for statistic in STATISTICS}
    yield fill(_BY_NAME["pfl_accuracy_ratio"], found)
    if (latest := watch.scores.get(COMBINED)) is not None:
        yield _by(
            "pfl_gain_ratio", {name: latest["acc_macro"] - had for name, had in watch.baselines.items()}
        )


def _one(name: str, value: float | None) -> Metric:
    return fill(_BY_NAME[name], {} if value is None else {(): value})


def _by(name: str, values: Mapping[Any, Value] | Mapping[Any, int]) -> Metric:  # words, some of a fixed list
    return fill(_BY_NAME[name], {(label,): value for label, value in values.items()})
