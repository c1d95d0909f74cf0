"""A run's specification, at a site's door; a parcel's header and its tensors by their manifest."""

from __future__ import annotations

import io
import json
from functools import cache

from pydantic import ValidationError

from pfl_client.daemon.run_check import hear_run
from pfl_common.errors import Distrusted, Refused
from pfl_common.sealing import bind
from pfl_common.spec.manifest import full_size
from pfl_common.spec.messages import Joined
from pfl_common.spec.run import Header, Kind, Model, RunSpec
from pfl_common.spec.run_bounds import LARGEST_MODEL
from pfl_common.tensors import codec
from pfl_common.tensors.layout import lay_out
from tests.fuzz.bounds import ends_in
from tests.fuzz.target import target
from tests.fuzz.targets.calls import BLOB, ENTRY, HEADER

WORDS = (b"1e999", b"NaN", b"-1", b"99999999999999999999", b"null", b"true", b'"\\ud800"', b"Infinity")


@cache
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
    for manifest in spec.manifests.values():
        groups = {entry.group for entry in manifest if entry.group}
        assert codec.size_of(manifest, groups) == full_size(manifest) <= LARGEST_MODEL
        assert [entry.name for entry in manifest] == [*lay_out(manifest, groups)]


@target("header", Refused, ValidationError, seeds=lambda: [HEADER.to_json().encode()], words=WORDS)
def read_header(content: bytes) -> None:
    """A parcel's header, as sealing reads it, and as the shelf does: both see the same one."""
    with ends_in(Refused):
        binding = bind(content)
        header = Header.from_json(content)
        assert (header.direction, header.sender) == (binding.direction, binding.sender)
        assert Header.from_json(header.to_json()) == header
    Header.from_json(content)


@target("manifest", Refused, seeds=lambda: [bytes(16), bytes(range(16)), bytes(32)])
def read_parcel(content: bytes) -> None:
    """A parcel's plain bytes by a manifest with a group."""
    group = type(ENTRY)("m", "bool", (3,), group="g")
    for groups in ((), ("g",)):
        with ends_in(Refused):
            codec.decode(bytearray(content), (ENTRY, group), groups)


PARCEL = {
    "manifest": [[ENTRY.name, ENTRY.dtype, [*ENTRY.shape], ""], ["m", "bool", [3], "g"]],
    "groups": ["g"],
}


@target(
    "parcel",
    Refused,
    Distrusted,
    seeds=lambda: [json.dumps(PARCEL).encode() + b"\n" + bytes(19)],
    words=(b"float64", b"[0]", b"[]", b'"g"'),
)
def read_pinned(content: bytes) -> None:
    """A parcel by a manifest that is no less hostile: what it says is what comes out, byte for byte."""
    said, _, plain = content.partition(b"\n")
    spec = json.loads(pin().to_json())
    try:
        asked = json.loads(said)
        groups = [str(group) for group in asked["groups"]]
        names = ("name", "dtype", "shape", "group")
        spec["manifests"]["init"] = [dict(zip(names, entry, strict=False)) for entry in asked["manifest"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    manifest = hear_run(Joined(json.dumps(spec), BLOB)).init_manifest
    state, out = codec.decode(bytearray(plain), manifest, groups), io.BytesIO()
    codec.encode(state, manifest, out)
    # A truth is a byte of 0 or 1, but another one is carried as it is.
    assert out.getvalue() == plain
    for entry in manifest:
        if entry.name in state:
            assert (tuple(state[entry.name].shape), state[entry.name].nbytes) == (entry.shape, entry.nbytes)
