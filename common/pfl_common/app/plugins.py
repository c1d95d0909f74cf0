"""Networks and methods of installed packages, found by the entry points `pfl.backbones` and `pfl.methods`.

Only what is installed on this machine is found, and only by its name: nothing that comes over the network says what to
import. Finding reads the packages' metadata and imports none of them, so the site's daemon can do it too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import get_args

from pfl_common.errors import SettingError
from pfl_common.spec.packages import Package, Part
from pfl_common.spec.run import RunSpec

GROUPS: Mapping[Part, str] = {"backbone": "pfl.backbones", "method": "pfl.methods"}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True)
class Plugin:
    """What one package offers under one name."""

    part: Part
    name: str
    package: Package
    point: EntryPoint

    def load(self) -> object:
        """Import it: from here on the package's code runs."""
        try:
            return self.point.load()
        except Exception as error:  # a package may raise anything when it is imported
            raise self.fault(f"cannot be loaded: {type(error).__name__}: {error}") from error

    def fault(self, seen: str) -> SettingError:
        """An error that names the package."""
        return SettingError(
            f"the {self.part} {self.name} of the package {self.package} {seen}",
            expected=f"what deploy/examples/README.md says of an entry point in {GROUPS[self.part]}",
            advice="mend the package, or ask those who made it",
        )


def names(part: Part) -> tuple[str, ...]:
    """What installed packages offer."""
    return tuple(sorted(_offered(part)))


def find(part: Part, name: str, built_in: Collection[str] = ()) -> Plugin | None:
    """The package's own of this name; None if no package has one. Two of one name are refused, whichever they are."""
    found = _offered(part).get(name, ())
    if not found:
        return None
    owners = [f"the package {one.package}" for one in found] + ["pfl itself"] * (name in built_in)
    if len(owners) > 1:
        raise SettingError(
            f"{' and '.join(owners)} have a {part} called {name!r}",
            expected="one of each name",
            advice="remove a package, or have its entry point renamed",
        )
    if not _NAME.fullmatch(name):
        raise found[0].fault("has a name that is none: small letters, digits and _ are expected, 40 at most")
    return found[0]


def pin(method: str, backbone: str) -> dict[Part, Package]:
    """The packages that a run with this method and this network needs; none for what is the product's own."""
    asked: Mapping[Part, str] = {"backbone": backbone, "method": method}
    found = {part: find(part, name) for part, name in asked.items()}
    return {part: plugin.package for part, plugin in found.items() if plugin is not None}


def check_pinned(spec: RunSpec) -> None:
    """Refuse a run whose network or method is not here as its specification says, in words that say what to install."""
    here = pin(spec.method, spec.model.backbone)
    for part in get_args(Part):
        wanted, found = spec.packages.get(part), here.get(part)
        if wanted != found:
            name = spec.method if part == "method" else spec.model.backbone
            raise _other(f"the {part} {name}", wanted, found)


def _other(what: str, wanted: Package | None, found: Package | None) -> SettingError:
    if wanted is None:
        return SettingError(
            f"{what} is pfl's own in this run, and of the package {found} here",
            expected="the same at the coordinator and at all sites",
            advice="compare the versions of pfl, or remove that package",
        )
    return SettingError(
        f"this run needs {what} of the package {wanted}, "
        + (f"and {found} is installed here" if found else "which is not installed here"),
        expected=f"{wanted}, as at the coordinator",
        advice=f"if you trust that package, install it beside pfl and start again: pip install "
        f"'{wanted.name}=={wanted.version}'",
    )


@cache
def _offered(part: Part) -> Mapping[str, tuple[Plugin, ...]]:
    """All offers by name; read once, for packages do not come and go while a program runs."""
    found: dict[str, tuple[Plugin, ...]] = {}
    for point in entry_points(group=GROUPS[part]):
        if point.dist is not None:
            package = Package(point.dist.name, point.dist.version)
            found[point.name] = (*found.get(point.name, ()), Plugin(part, point.name, package, point))
    return found


def forget() -> None:
    """Look again when next asked: for tests, which install packages while they run."""
    _offered.cache_clear()
