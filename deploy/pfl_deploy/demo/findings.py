"""The report's content as plain values, read from the files that the programs left."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from math import prod
from pathlib import Path
from typing import cast

from pfl_client.run_folder.audit import RECEIPT, UPDATE, entries
from pfl_common.identity import site_name
from pfl_common.spec.manifest import Entry, Manifest
from pfl_common.spec.run import Json, RunSpec
from pfl_common.tensors.update import SHOW, SUM
from pfl_deploy.demo.following import Trained, last_value
from pfl_deploy.demo.plan import Plan
from pfl_deploy.demo.samples import Specimens, look
from pfl_deploy.report.facts import describe
from pfl_deploy.report.sources.sites import Curve, read_history, read_numbers
from pfl_deploy.report.sources.traffic import sealed_size_of
from pfl_server.store.comparable import Differences, Subject, find_differences


@dataclass(frozen=True)
class Method:
    """The run of one contestant."""

    name: str
    title: str
    sense: str
    settings: dict[str, Json]
    curves: dict[str, Curve]
    final: dict[str, float]
    round_seconds: tuple[float, ...]
    start_seconds: float
    seconds: float
    processes: int
    shifted: dict[str, float] = field(default_factory=dict)
    """As `final`, on the second test of the sites that have one."""
    differences: Differences = field(default_factory=Differences)
    """Of a yardstick: what differs between the method of the demo and it."""

    @property
    def mean(self) -> float:
        """The plain mean over sites."""
        return sum(self.final.values()) / len(self.final)


@dataclass(frozen=True)
class Traffic:
    """The traffic of one site in the run with real processes."""

    uploads: int
    sent: int
    downloads: int
    received: int
    by_task: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Part:
    """A module of the network, or the half of it that travels or stays; `kinds` are its tensors' last names."""

    name: str
    travels: bool
    kinds: tuple[str, ...]
    tensors: int
    numbers: int


@dataclass(frozen=True)
class Findings:
    """The findings of one demo."""

    methods: tuple[Method, ...]
    sites: dict[str, Specimens]
    traffic: dict[str, Traffic]
    counters: dict[str, int]
    parts: tuple[Part, ...]
    rounds: int
    spec: dict[str, Json]
    machine: dict[str, str]
    seconds: float

    @property
    def real(self) -> Method:
        """The method that real processes trained: the one this demo is about."""
        return self.methods[-1]

    @property
    def rows(self) -> list[tuple[str, list[float]]]:
        """The rows of a table: one per site and their mean, then the same for the shifted test data."""
        shifted = [site for site in self.sites if all(site in method.shifted for method in self.methods)]
        rows = [(site, [method.final[site] for method in self.methods]) for site in self.sites]
        rows.append(("mean", [method.mean for method in self.methods]))
        rows += [(f"{site}, shifted", [method.shifted[site] for method in self.methods]) for site in shifted]
        if shifted:
            means = [sum(method.shifted[site] for site in shifted) / len(shifted) for method in self.methods]
            rows.append(("mean, shifted", means))
        return rows

    @property
    def kinds(self) -> dict[str, Method]:
        """The methods by the colours the page gives them."""
        return {"run" if method is self.real else method.name: method for method in self.methods}

    def to_json(self) -> str:
        """Everything but the pictures, for other programs."""
        plain = asdict(self)
        for site in plain["sites"].values():
            del site["strip"]
        return json.dumps(plain, indent=1, sort_keys=True) + "\n"


def gather(plan: Plan, runs: Sequence[Trained], *, seconds: float) -> Findings:
    """Read what all runs left; the last of them is the one with real processes."""
    real = runs[-1]
    spec = _read_spec(real)
    return Findings(
        methods=tuple(replace(_method(run), differences=_differ(spec, run, plan)) for run in runs),
        sites={site_name(path): look(path) for path in plan.sites},
        traffic={site: read_traffic(folder, spec) for site, folder in real.folders.items()},
        counters=real.counters,
        parts=divide(spec, {name for folder in real.folders.values() for name in read_sent_names(folder)}),
        rounds=spec.rounds,
        spec=describe(spec),
        machine={"system": platform.platform(), "python": platform.python_version(), **spec.versions},
        seconds=seconds,
    )


def _read_spec(run: Trained) -> RunSpec:
    return RunSpec.from_json((next(iter(run.folders.values())) / "spec.json").read_bytes())


def _differ(real: RunSpec, run: Trained, plan: Plan) -> Differences:
    """Of one demo all data are the same folders, whose fingerprints only real sites key."""
    other = replace(_read_spec(run), data={})
    one, beside = (Subject(spec, {}, spec.rounds) for spec in (replace(real, data={}), other))
    return find_differences(one, beside, chosen=plan.chosen_alike)


def read_traffic(folder: Path, spec: RunSpec) -> Traffic:
    """Uploads from the site's own audit; downloads from its tasks and the sizes the run pins for them."""
    kinds = [entry["task"].rpartition("-")[2] for entry in read_history(folder)]
    received = [sealed_size_of(down) for down in (spec.init_manifest, *(_down(spec, kind) for kind in kinds))]
    sent = tuple((str(line["task"]), int(str(line["bytes"]))) for line in _listed(folder, RECEIPT))
    return Traffic(len(sent), sum(size for _, size in sent), len(received), sum(received), sent)


def read_sent_names(folder: Path) -> set[str]:
    """Tensors that left a site, by the names of its model: in an upload they stand below `sum` or `show`."""
    lines = _listed(folder, UPDATE)
    named = {str(name).partition(".") for line in lines for name in cast("list[Json]", line["names"])}
    return {name for branch, _, name in named if branch in (SUM, SHOW)}


def divide(spec: RunSpec, sent: Set[str]) -> tuple[Part, ...]:
    """The network's modules, each divided into what was named in an upload and what never was."""
    parts: dict[tuple[str, bool], list[Entry]] = {}
    for entry in spec.init_manifest:
        parts.setdefault((entry.name.partition(".")[0], entry.name in sent), []).append(entry)
    return tuple(
        Part(
            name,
            travels,
            tuple(sorted({entry.name.rpartition(".")[2] for entry in entries})),
            len(entries),
            sum(prod(entry.shape) for entry in entries),
        )
        for (name, travels), entries in sorted(parts.items(), key=lambda part: (not part[0][1], part[0][0]))
    )


def _down(spec: RunSpec, kind: str) -> Manifest:
    """The manifest of the download for a kind of task; the methods played here have one phase."""
    return next(
        manifest
        for key, manifest in spec.manifests.items()
        if key.startswith(f"{kind}/") and key.endswith("/down")
    )


def _listed(folder: Path, kind: str) -> list[dict[str, Json]]:
    """The entries of one kind in the site's list, for the run in this folder."""
    return [line for line in entries(folder.parent.parent, folder.name) if line["kind"] == kind]


def _method(run: Trained) -> Method:
    numbers = {site: read_numbers(folder) for site, folder in run.folders.items()}
    curves = {site: one.predicting("test") for site, one in numbers.items()}
    spec = _read_spec(run)
    return Method(
        name=run.contestant.method,
        title=run.contestant.title,
        sense=run.contestant.sense,
        settings=spec.settings,
        curves=curves,
        final={site: last_value(curve) for site, curve in curves.items()},
        round_seconds=tuple(run.round_seconds),
        start_seconds=run.start_seconds,
        seconds=run.seconds,
        processes=run.processes,
        shifted={
            site: last_value(curve) for site, one in numbers.items() if (curve := one.predicting("shifted"))
        },
    )
