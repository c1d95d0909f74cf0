"""Settings of both programs and of a method, and a site's policy: TOML, environment, flags."""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Mapping
from typing import Any  # settings are of any type
from unittest.mock import patch

from pfl_client.policy import policy_file
from pfl_client.settings import ClientSettings
from pfl_common import methods
from pfl_common.app.config import dump, layered, parse_pairs, settle
from pfl_common.errors import SettingError, UserError
from pfl_common.spec.participation import Participation
from pfl_server.settings import ServerSettings
from tests.fuzz.bounds import ends_in
from tests.fuzz.target import as_file, target

TOML = b"""method = "fedavg"
rounds = 5
quorum = 0.5
participation = "0.1..1.0"
lease-seconds = 9.5
data = "./a"
cache_limit = "2G"
stay = true
[settings]
lr = 0.1
"""


@target(
    "toml",
    UserError,
    seeds=lambda: [TOML, b"nice = 3\nwait = 1e9\n"],
    words=(b"[[", b"= {", b"= 1e999", b"= 0x", b"\xff"),
)
def read_toml(content: bytes) -> None:
    """A file that is given with --config: settings that are taken are taken again, and are the same."""
    file = as_file(content, "run.toml")
    for kind in (ServerSettings, ClientSettings):
        with ends_in(UserError):
            settle_twice(kind, layered(kind, {}, file, prefix="PFL_"))


def settle_twice(kind: type[Any], given: Mapping[str, Any]) -> None:
    """Settings as they are given, and once more as they are then."""
    settled = settle(kind, given, what="pfl")
    plain = {name.removesuffix("_"): getattr(settled, name) for name in kind.__dataclass_fields__}
    assert settle(kind, plain, what="pfl") == settled


@target(
    "environment",
    UserError,
    seeds=lambda: [b"5", b"0.5", b"true", b"2G", b"a=1,b=2", b"majority", b"flip,rotate(30)"],
)
def read_environment(content: bytes) -> None:
    """Every setting of both programs with this value."""
    text = content.replace(b"\0", b"").decode(errors="surrogateescape")
    for kind in (ServerSettings, ClientSettings):
        for name in list(kind.__dataclass_fields__):
            with patch.dict(os.environ, {f"PFL_{name.upper()}": text}), ends_in(UserError):
                settle_twice(kind, layered(kind, {}, None, prefix="PFL_"))


@target(
    "set",
    UserError,
    seeds=lambda: [b"lambda=40", b"lr=0.1\nbatch=8", b"personal=[true,false,true,false]", b"epochs=1e3"],
)
def read_pairs(content: bytes) -> None:
    """A method's settings as --set has them, and who takes part."""
    text = content.decode(errors="replace")
    if "=" not in text:
        asked = Participation.parse(text)
        again = Participation.parse(asked.text)  # written for people: in fewer digits
        assert again.fixed == asked.fixed
        assert math.isclose(again.low, asked.low, rel_tol=1e-4)
    settings = methods.load("dualfed").settle(parse_pairs(text.split("\n")))
    # As a specification holds them, and each site reads them.
    assert methods.load("dualfed").settle(json.loads(json.dumps(dump(settings)))) == settings


POLICY = b"""[runs]
methods = ["fedavg", "dualfed"]
sums = "robust"
smallest_cohort = 2
rounds = 9
[uploads]
largest = "20M"
per_day = "1G"
[joining]
class_names = "hashed"
counts = "rounded"
sizes = false
[metrics]
scores = false
"""


@target(
    "policy",
    SettingError,
    seeds=lambda: [POLICY, b""],
    words=(b"[joining]", b"= []", b"[[runs]]", b"[" * 2000),
)
def read_policy(content: bytes) -> None:
    """A site's policy: a rule that stands there is in force, or there is no policy."""
    file = as_file(content, "policy.toml")
    policy = policy_file.read(file)
    given = tomllib.loads(content.decode())
    named = {f"{section}.{rule}": value for section, rules in given.items() for rule, value in rules.items()}
    flat = {
        f"{name}.{rule}": value for name, rules in policy.every().items() for rule, value in rules.items()
    }
    assert named.keys() <= flat.keys()
    for name, value in named.items():
        assert flat[name] == (tuple(value) if isinstance(value, list) else value)
    assert policy.changed().keys() <= named.keys()
