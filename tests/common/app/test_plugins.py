"""Networks and methods of installed packages: found by name, loaded when asked for, pinned by package and version."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pfl_common import methods, models
from pfl_common.app import completion, plugins
from pfl_common.errors import SettingError
from pfl_common.spec.packages import Package
from pfl_common.spec.run import Model, RunSpec
from tests.common.support.installed import install

NETWORK = """
from torch import nn
from pfl_common.models import Backbone
def make(shape, classes):
    return Backbone(nn.Flatten(), nn.Linear(shape[0], classes), shape[0])
wrong = 3
def nothing(shape, classes):
    return None
"""
METHOD = (
    '"""Mine: as FedAvg.\n\nRule: none."""\nfrom pfl_common.methods.fedavg import Client, Config, Server\n'
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which packages are found for the time of one test."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    plugins.forget()
    yield tmp_path
    plugins.forget()
    for name in set(sys.modules) - before:
        if name.startswith("outside_"):
            del sys.modules[name]


def give(place: Path, package: str = "outside-pfl", version: str = "1.0", **points: dict[str, str]) -> None:
    """Install a package with these entry points."""
    named = {f"pfl.{group}": own for group, own in points.items()}
    modules = {"outside_net": NETWORK, "outside_method": METHOD, "outside_broken": "import nowhere_at_all\n"}
    install(place, package, version, points=named, modules=modules)


def specify(packages: dict[str, Package], method: str = "fedavg", backbone: str = "mlp") -> RunSpec:
    """A run as a coordinator pins it."""
    model = Model(backbone, (4,), ("a", "b"))
    return RunSpec("run", method, {}, model, ("site",), rounds=1, seed=0, packages=packages)


def test_a_network_and_a_method_are_found_by_name(place: Path) -> None:
    """Built and loaded like our own; nothing of the package is imported before."""
    give(place, backbones={"mine": "outside_net:make"}, methods={"own": "outside_method"})
    assert (("mine",), ("own",)) == (plugins.names("backbone"), plugins.names("method"))
    models.check_name("mine")
    assert {"backbone": Package("outside-pfl", "1.0")} == plugins.pin("fedavg", "mine")
    assert not {"outside_net", "outside_method"} & set(sys.modules)
    assert ("mine", 4) == (lambda made: (made.name, made.features))(
        models.build("mine", shape=(4,), classes=2)
    )
    method = methods.load("own")
    assert ("own", Package("outside-pfl", "1.0")) == (method.name, method.package)
    assert "own" in methods.list_names()
    assert "own" not in methods.names()


def test_the_shell_completes_them(place: Path) -> None:
    """Beside our own."""
    give(place, backbones={"mine": "outside_net:make"}, methods={"mineral": "outside_method"})
    assert (["mine"], ["mineral"]) == (completion.complete_backbones("mi"), completion.complete_methods("mi"))


@pytest.mark.parametrize(
    ("part", "group", "own"), [("method", "methods", "fedavg"), ("backbone", "backbones", "mlp")]
)
def test_a_name_of_ours_is_refused(place: Path, part: str, group: str, own: str) -> None:
    """A user who names it must not get the one when the other was meant."""
    give(place, **{group: {own: "outside_net:make"}})
    with pytest.raises(SettingError, match=f"outside-pfl 1.0 and pfl itself have a {part} called '{own}'"):
        methods.load(own) if part == "method" else models.build(own, shape=(4,), classes=2)
    assert "outside_net" not in sys.modules


def test_one_name_of_two_packages_is_refused(place: Path) -> None:
    """Whichever comes first on a machine's path would decide."""
    give(place, "one", backbones={"mine": "outside_net:make"})
    give(place, "two", backbones={"mine": "outside_net:make"})
    with pytest.raises(
        SettingError, match=r"package (one|two) 1.0 and the package (one|two) 1.0 have a backbone"
    ):
        models.check_name("mine")


@pytest.mark.parametrize("name", ["../x", "Mine", "torchvision", "a" * 41, "os.system"])
def test_only_plain_names(place: Path, name: str) -> None:
    """Names stand in file names, metrics and commands."""
    give(place, backbones={name: "outside_net:make"})
    if name == "torchvision":
        models.check_name(name)
        return
    with pytest.raises(SettingError, match="a name that is none"):
        models.check_name(name)


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("outside_net:wrong", "is not a function"),
        ("outside_net:nothing", "returns a NoneType"),
        ("outside_net:absent", "cannot be loaded: AttributeError"),
        ("outside_broken:make", "cannot be loaded: ModuleNotFoundError"),
    ],
)
def test_what_is_no_network(place: Path, value: str, seen: str) -> None:
    """The package is named, and what is wrong with it."""
    give(place, backbones={"mine": value})
    with pytest.raises(SettingError) as caught:
        models.build("mine", shape=(4,), classes=2)
    assert f"the backbone mine of the package outside-pfl 1.0 {seen}" in caught.value.seen


@pytest.mark.parametrize(
    ("value", "seen"),
    [("outside_net:make", "is no module"), ("outside_net", "has no class Config below Settings")],
)
def test_what_is_no_method(place: Path, value: str, seen: str) -> None:
    """A method is a module with three names."""
    give(place, methods={"own": value})
    with pytest.raises(SettingError, match=seen):
        methods.load("own")


def test_a_pinned_package_is_checked(place: Path) -> None:
    """By name and version; a run of our own parts needs none."""
    give(place, backbones={"mine": "outside_net:make"}, methods={"own": "outside_method"})
    package = Package("outside-pfl", "1.0")
    plugins.check_pinned(specify({}))
    plugins.check_pinned(specify({"method": package}, method="own"))
    plugins.check_pinned(specify({"method": package, "backbone": package}, method="own", backbone="mine"))


@pytest.mark.parametrize(
    ("method", "packages", "words"),
    [
        (
            "own",
            {"method": Package("outside-pfl", "1.1")},
            "outside-pfl 1.1, and outside-pfl 1.0 is installed here",
        ),
        (
            "own",
            {"method": Package("other", "1.0")},
            "package other 1.0, and outside-pfl 1.0 is installed here",
        ),
        ("other", {"method": Package("other", "1.0")}, "package other 1.0, which is not installed here"),
        ("fedavg", {"method": Package("other", "1.0")}, "package other 1.0, which is not installed here"),
        ("own", {}, "pfl's own in this run, and of the package outside-pfl 1.0 here"),
    ],
)
def test_another_package_than_the_pinned_one(
    place: Path, method: str, packages: dict[str, Package], words: str
) -> None:
    """The site, and a coordinator that was started again, say what to install and load nothing."""
    give(place, methods={"own": "outside_method"})
    with pytest.raises(SettingError) as caught:
        methods.build_participant(specify(packages, method=method))
    assert words in caught.value.seen
    if packages:
        wanted = packages["method"]
        assert f"pip install '{wanted.name}=={wanted.version}'" in caught.value.advice
    assert "outside_method" not in sys.modules
