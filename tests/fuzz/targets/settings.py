"""Settings of both programs and of a method: TOML, environment, flags."""

from __future__ import annotations

import os
from unittest.mock import patch

from pfl_client.settings import ClientSettings
from pfl_common import methods
from pfl_common.app.config import layered, parse_pairs, settle
from pfl_common.errors import UserError
from pfl_common.spec.participation import Participation
from pfl_server.settings import ServerSettings
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
    """A file that is given with --config."""
    file = as_file(content, "run.toml")
    for kind in (ServerSettings, ClientSettings):
        try:
            settle(kind, layered(kind, {}, file, prefix="PFL_"), what="pfl")
        except UserError:
            continue


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
            with patch.dict(os.environ, {f"PFL_{name.upper()}": text}):
                try:
                    settle(kind, layered(kind, {}, None, prefix="PFL_"), what="pfl")
                except UserError:
                    continue


@target(
    "set",
    UserError,
    seeds=lambda: [b"lambda=40", b"lr=0.1\nbatch=8", b"personal=[true,false,true,false]", b"epochs=1e3"],
)
def read_pairs(content: bytes) -> None:
    """A method's settings as --set has them, and who takes part."""
    text = content.decode(errors="replace")
    Participation.parse(text) if "=" not in text else None
    methods.load("dualfed").settle(parse_pairs(text.split("\n")))
