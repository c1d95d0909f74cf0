"""Each banned name, and each rule we lean on, is caught by ruff where it is planted."""

from __future__ import annotations

import json

import pytest

from tests.house.skeleton import Skeleton, read_settings

BANNED: list[str] = sorted(read_settings()["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"])
GLOBAL_GENERATORS = [
    name for name in BANNED if name.startswith("torch.") and name not in ("torch.load", "torch.save")
]
PROMISED = {
    "pickle",
    "random",
    "time.sleep",
    "torch.load",
    "torch.save",
    "torch.manual_seed",
    "numpy.random.seed",
    "numpy.random.rand",
}
RULES = [
    ("T201", 'print("round 1")\n'),
    ("FIX002", "rounds = 1  # TODO: more\n"),
    ("ERA001", "# rounds = rounds + 1\n"),
    ("F401", "import json\n"),
    ("E501", f'"""{"word " * 25}"""\n'),
    ("NPY002", "import numpy as np\n\nnp.random.binomial(3, 0.5)\n"),
    ("PGH003", "rounds = 1  # type: ignore\n"),
    ("PLR0913", "def ask(a, b, c, d, e, f):\n    return a, b, c, d, e, f\n"),
    ("B006", "def ask(sites=[]):\n    return sites\n"),
    ("ASYNC251", "import time\n\n\nasync def wait():\n    time.sleep(1)\n"),
]


def find_rules(skeleton: Skeleton) -> set[str]:
    """The rules ruff sees broken anywhere in the skeleton."""
    verdict = skeleton.run("ruff", "check", "--no-cache", "--output-format=json", ".")
    return {finding["code"] for finding in json.loads(verdict.stdout)}


def use(name: str) -> str:
    """A module that uses a banned name and has no other fault."""
    owner, _, member = name.rpartition(".")
    if not owner:
        return f"import {name}\n\n__all__ = [{name!r}]\n"
    return f"from {owner} import {member}\n\n__all__ = [{member!r}]\n"


def test_the_empty_house_is_clean(skeleton: Skeleton) -> None:
    """Nothing is planted, so nothing is found: a finding below comes from its plant alone."""
    assert set() == find_rules(skeleton)


def test_what_was_promised_is_banned() -> None:
    """The names the house promises never to use are on the list."""
    assert set() == PROMISED - set(BANNED)


@pytest.mark.parametrize("name", BANNED)
def test_a_banned_name_is_caught(skeleton: Skeleton, name: str) -> None:
    """Used once, anywhere, it fails the build."""
    skeleton.plant("pfl_server.run.training", use(name))
    assert "TID251" in find_rules(skeleton)


@pytest.mark.parametrize("name", ["torch.manual_seed", "torch.load", "time.sleep", "numpy.random.rand"])
def test_a_banned_name_is_caught_behind_its_module(skeleton: Skeleton, name: str) -> None:
    """Written out in full, as it mostly is, it fails the build as well."""
    module = name.partition(".")[0]
    skeleton.plant("pfl_client.daemon.loop", f"import {module}\n\n{name}(3)\n")
    assert "TID251" in find_rules(skeleton)


@pytest.mark.parametrize("name", GLOBAL_GENERATORS)
def test_only_seeding_touches_the_global_generator(skeleton: Skeleton, name: str) -> None:
    """The one module that is allowed to passes."""
    skeleton.plant("pfl_common.randomness.generators", use(name))
    assert set() == find_rules(skeleton)


@pytest.mark.parametrize(("rule", "text"), RULES)
def test_a_rule_of_manner_is_caught(skeleton: Skeleton, rule: str, text: str) -> None:
    """Prints, left-over code, bare ignores and their like fail the build."""
    skeleton.plant("pfl_server.run.training", text)
    assert rule in find_rules(skeleton)


def test_generated_code_is_left_alone(skeleton: Skeleton) -> None:
    """What protoc writes is not ours to mend."""
    skeleton.plant("pfl_common.wire.coordinator_pb2", "import pickle\n")
    assert set() == find_rules(skeleton)
