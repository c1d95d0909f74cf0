"""A run's specification, at a site's door; a parcel's header and its tensors by their manifest."""

from __future__ import annotations

from pydantic import ValidationError

from pfl_client.daemon.run_check import hear_run
from pfl_common.errors import Distrusted, Refused
from pfl_common.sealing import bind
from pfl_common.spec.manifest import full_size
from pfl_common.spec.messages import Joined
from pfl_common.spec.run import Header, Kind, Model, RunSpec
from pfl_common.tensors import codec
from tests.fuzz.target import target
from tests.fuzz.targets.calls import BLOB, ENTRY, HEADER

WORDS = (b"1e999", b"NaN", b"-1", b"99999999999999999999", b"null", b"true", b'"\\ud800"', b"Infinity")


def pin() -> RunSpec:
    """A small run with all its parcels."""
    manifests = {f"{kind}/train/{way}": (ENTRY,) for kind in Kind for way in ("down", "up")} | {
        "init": (ENTRY,)
    }
    model = Model("mlp", (1, 4, 4), ("a", "b"), kind="image", high=255.0)
    return RunSpec(
        "run-1", "fedavg", {"batch": 8, "lr": 0.1}, model, ("site-a",), rounds=3, seed=7, manifests=manifests
    )


@target("specification", Distrusted, seeds=lambda: [pin().to_json().encode()], words=WORDS)
def hear(content: bytes) -> None:
    """What a site takes, it can work with: sizes, hashes and all rules."""
    spec = hear_run(Joined(content.decode(errors="replace"), BLOB))
    assert spec.rounds >= 1
    assert spec.lease_seconds > 0
    assert full_size(spec.init_manifest) >= 0
    assert RunSpec.from_json(spec.to_json()).hash == spec.hash


@target("header", Refused, ValidationError, seeds=lambda: [HEADER.to_json().encode()], words=WORDS)
def read_header(content: bytes) -> None:
    """A parcel's header, as sealing reads it, and as the shelf does."""
    bind(content)
    Header.from_json(content)


@target("manifest", Refused, seeds=lambda: [bytes(16), bytes(range(16)), bytes(32)])
def read_parcel(content: bytes) -> None:
    """A parcel's plain bytes by a manifest with a group."""
    group = type(ENTRY)("m", "bool", (3,), group="g")
    for groups in ((), ("g",)):
        codec.decode(bytearray(content), (ENTRY, group), groups)
