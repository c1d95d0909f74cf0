"""A package in a specification: left out where none is needed, bounded where one is."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from pfl_common.spec.packages import Package
from pfl_common.spec.run import Model, RunSpec


def specify(**more: object) -> RunSpec:
    return RunSpec("run", "fedavg", {}, Model("mlp", (4,), ("a", "b")), ("site",), rounds=1, seed=0, **more)


def test_a_run_without_packages_keeps_its_text() -> None:
    """Runs that were begun before there were packages keep their hash."""
    assert "packages" not in json.loads(specify().to_json())


def test_what_is_pinned_is_read_again() -> None:
    """And is part of the hash."""
    spec = specify(packages={"method": Package("pfl-example", "0.1.0")})
    assert spec == RunSpec.from_json(spec.to_json())
    assert spec.hash != specify().hash


@pytest.mark.parametrize(
    "package",
    [
        {"name": "x; rm -rf ~", "version": "1"},
        {"name": "--index-url=http://elsewhere", "version": "1"},
        {"name": "x", "version": "1 --pre"},
        {"name": "x", "version": "1'"},
        {"name": "x", "version": ""},
        {"name": "x" * 101, "version": "1"},
        {"name": "x", "version": "1", "path": "/tmp"},
    ],
)
def test_nothing_but_a_package_gets_into_the_advice(package: dict[str, str]) -> None:
    """A site's engineer is told to install it: a coordinator must not write commands there."""
    plain = json.loads(specify().to_json()) | {"packages": {"method": package}}
    with pytest.raises(ValidationError):
        RunSpec.from_json(json.dumps(plain))


def test_only_methods_and_networks() -> None:
    """Nothing else is loaded by name."""
    plain = json.loads(specify().to_json()) | {"packages": {"data": {"name": "x", "version": "1"}}}
    with pytest.raises(ValidationError):
        RunSpec.from_json(json.dumps(plain))
