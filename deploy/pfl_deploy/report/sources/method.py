"""A method's own numbers: the coordinator's by round, their meanings, and the list of shared tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from pfl_common import evaluation
from pfl_common.errors import SettingError
from pfl_common.spec.run import Kind, RunSpec, Task
from pfl_common.tensors.update import SHOW
from pfl_deploy.report.sources.coordinator import Record
from pfl_deploy.report.sources.sites import Curve


@dataclass(frozen=True)
class Part:
    """A module of a site's network: its number of values, and how many of them cross the network."""

    module: str
    numbers: int
    shared: int

    @property
    def stays(self) -> int:
        """Numbers that never leave the site."""
        return self.numbers - self.shared


@dataclass(frozen=True)
class Sharing:
    """The part of a site's state that crosses, as the run's specification pins it."""

    parts: tuple[Part, ...]
    staying: tuple[tuple[str, int], ...]
    """Tensors that never leave the site, with their size."""
    shown: bool
    """Whether the coordinator sees single sites' updates and not only their sum."""


@dataclass(frozen=True)
class Spread:
    """One number of the training report, over the sites that reported it in one round."""

    mean: float
    deviation: float
    sites: int


def read_told(record: Record) -> dict[str, dict[int, Spread]]:
    """The sites' training numbers, as sums over sites for each committed round, by name."""
    found: dict[str, dict[int, Spread]] = {}
    for tried in record.committed:
        key = Task(Kind.TRAIN, tried.round, record.spec.rounds, tried.attempt).key
        for name, values in evaluation.told(record.scores.get(key, {})).items():
            found.setdefault(name, {})[tried.round] = Spread(*evaluation.spread(values), int(values[2]))
    return dict(sorted(found.items()))


def read_diagnostics(record: Record) -> dict[str, Curve]:
    """Numbers of the coordinator's half of the method for each committed round, by name."""
    found: dict[str, Curve] = {}
    for tried in record.committed:
        for name, value in (tried.course.diagnostics if tried.course else {}).items():
            found.setdefault(name, {})[tried.round] = value
    return dict(sorted(found.items()))


def group(numbers: Mapping[str, Curve]) -> dict[str, dict[str, Curve]]:
    """Numbers that belong into one picture: what stands before the stroke of their names is the same."""
    families: dict[str, dict[str, Curve]] = {}
    for name, curve in numbers.items():
        family, _, part = name.partition("/")
        families.setdefault(family, {})[part] = curve
    return families


def explain(method: str) -> Mapping[str, str]:
    """The meaning of each number of a method, in its file's words; empty for a method this release does not have."""
    # Here and not above: the methods bring torch along, and only the page has words.
    from pfl_common import methods

    try:
        return methods.load(method).diagnostics
    except SettingError:
        return {}


def read_sharing(spec: RunSpec) -> Sharing:
    """Compare the first model with the parcels of all phases."""
    sizes = {entry.name: prod(entry.shape) for entry in spec.init_manifest}
    pinned = [key for key in spec.manifests if key.startswith(f"{Kind.TRAIN}/")]
    crossing = {entry.name for key in pinned for entry in spec.manifests[key]}
    shared = {own for name in crossing if (own := _find(name, sizes))}
    modules = sorted({name.partition(".")[0] for name in sizes})
    parts = tuple(
        Part(module, sum(of.values()), sum(size for name, size in of.items() if name in shared))
        for module in modules
        for of in [{name: size for name, size in sizes.items() if name.partition(".")[0] == module}]
    )
    staying = tuple((name, size) for name, size in sorted(sizes.items()) if name not in shared)
    return Sharing(parts, staying, any(name.startswith(f"{SHOW}.") for name in crossing))


def _find(name: str, known: Mapping[str, int]) -> str:
    """The tensor of the site's own that a parcel's name means: the name less the branches it lies in."""
    while name and name not in known:
        name = name.partition(".")[2]
    return name
