"""What the spool takes, what it refuses and why, and what it lets go."""

from __future__ import annotations

import errno
import io
import math
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pfl_common.errors import Refused
from pfl_common.files import recycler
from pfl_common.spec.manifest import Entry
from pfl_common.spec.run import Header, Kind, RunSpec, Task
from pfl_common.tensors import codec
from pfl_common.tensors.encoded import Changes
from pfl_common.tensors.state import State
from pfl_deploy.simulation.loopback import OpenEnvelopes
from pfl_server.store.spool import Spool
from pfl_server.store.update_terms import UpdateTerms
from tests.server.support.federation import build_header, build_offer, digest_of, pin_spec, write_parcel

TASK = Task(Kind.TRAIN, 3, 9, attempt=2)
MANIFEST = (
    Entry("show.mask", "bool", (3,), "show"),
    Entry("sum.w", "float32", (2, 3)),
    Entry("weight.w", "float32", (2,)),
)
GOOD = State({"sum.w": torch.ones(2, 3), "weight.w": torch.ones(2)})


@pytest.fixture
def spec() -> RunSpec:
    return pin_spec(MANIFEST)


@pytest.fixture
def spool(tmp_path: Path, spec: RunSpec) -> Spool:
    return Spool(tmp_path / "spool", spec, OpenEnvelopes())


def parcel(folder: Path, spec: RunSpec, state: State = GOOD, site: str = "a") -> tuple[Path, Header]:
    file = folder / f"up-{site}"
    return file, build_header(spec, site, TASK, write_parcel(file, spec, state))


def admit(spool: Spool, site: str, found: tuple[Path, Header]) -> str:
    file, header = found
    return spool.admit(site, file, build_offer(header, file))


def test_a_good_update_is_taken_over(tmp_path: Path, spool: Spool, spec: RunSpec) -> None:
    """Its file moves into the spool under a name that says round, attempt and site, and reads back equal."""
    state = GOOD | {"show.mask": torch.tensor([True, False, True])}
    file, header = parcel(tmp_path, spec, state)
    name = spool.admit("a", file, build_offer(header, file))
    assert ("000003-2-a", False) == (name, file.exists())
    update = spool.open(name)
    assert torch.equal(torch.ones(2, 3), update.up().summed["w"].value)
    assert [True, False, True] == update.load()["mask"].tolist()


CHANGED: dict[str, tuple[str, Callable[[Header], Header]]] = {
    "another sender": ("header", lambda h: replace(h, sender="b")),
    "another run": ("header", lambda h: replace(h, run="run-2")),
    "another direction": ("header", lambda h: replace(h, direction="down")),
    "a kind without uploads": ("header", lambda h: replace(h, kind=Kind.EVALUATE)),
    "an unknown phase": ("header", lambda h: replace(h, phase="warmup")),
    "another manifest": ("manifest", lambda h: replace(h, manifest="0" * 32)),
    "a group that is not there": ("size", lambda h: replace(h, groups=("show",))),
    "an unknown group": ("groups", lambda h: replace(h, groups=("show", "extra"))),
}


@pytest.mark.parametrize("code, change", CHANGED.values(), ids=CHANGED.keys())
def test_a_header_that_does_not_fit(
    tmp_path: Path, spool: Spool, spec: RunSpec, code: str, change: Callable[[Header], Header]
) -> None:
    """What a header says must be what the run expects of this site."""
    file, header = parcel(tmp_path, spec)
    with pytest.raises(Refused) as refused:
        spool.admit("a", file, build_offer(change(header), file))
    assert code == refused.value.code
    assert file.exists(), "a refused upload is not taken over"


def put(name: str, place: int, value: float) -> State:
    changed = GOOD[name].clone()
    changed.view(-1)[place] = value
    return GOOD | {name: changed}


VALUES = {
    "NaN": ("not_finite", put("sum.w", 5, float("nan"))),
    "infinity": ("not_finite", put("sum.w", 0, float("inf"))),
    "minus infinity": ("not_finite", put("sum.w", 0, float("-inf"))),
    "NaN as a weight": ("not_finite", put("weight.w", 1, float("nan"))),
    "a negative weight": ("weight", put("weight.w", 1, -1.0)),
}


@pytest.mark.parametrize("code, state", VALUES.values(), ids=VALUES.keys())
def test_numbers_that_would_spoil_a_sum(
    tmp_path: Path, spool: Spool, spec: RunSpec, code: str, state: State
) -> None:
    """One bad number anywhere refuses the whole update."""
    file, header = parcel(tmp_path, spec, state)
    with pytest.raises(Refused) as refused:
        spool.admit("a", file, build_offer(header, file))
    assert code == refused.value.code


def test_large_and_negative_values_are_no_error(tmp_path: Path, spec: RunSpec) -> None:
    """Within the run's bound the largest float32 is finite, and only weights have a sign that matters."""
    spool = Spool(tmp_path / "spool", replace(spec, largest_norm=1e39), OpenEnvelopes())
    file, header = parcel(tmp_path, spec, put("sum.w", 2, -3.4e38))
    assert "000003-2-a" == spool.admit("a", file, build_offer(header, file))


def test_an_update_that_would_drown_the_others(tmp_path: Path, spec: RunSpec) -> None:
    """The norm of all values together is bounded by the run; one below is taken, one above refused."""
    file, header = parcel(tmp_path, spec)  # six ones: a norm of 2.449
    for largest, outcome in ((2.4, "norm"), (2.5, "taken")):
        spool = Spool(tmp_path / outcome, replace(spec, largest_norm=largest), OpenEnvelopes())
        try:
            admit(spool, "a", (file, header))
        except Refused as refused:
            assert outcome == refused.code
        else:
            assert "taken" == outcome


def test_a_truth_value_of_two(tmp_path: Path, spool: Spool, spec: RunSpec) -> None:
    """A mask of bytes that are neither 0 nor 1 would be true in one place and false in another."""
    file, header = parcel(tmp_path, spec, GOOD | {"show.mask": torch.tensor([True, False, True])})
    file.write_bytes(b"\2" + file.read_bytes()[1:])
    with pytest.raises(Refused, match="neither 0 nor 1"):
        spool.admit("a", file, build_offer(header, file))


@pytest.mark.parametrize("change", [lambda raw: raw[:-1], lambda raw: raw + b"\0", lambda raw: b""])
def test_a_wrong_size(tmp_path: Path, spool: Spool, spec: RunSpec, change: Callable[[bytes], bytes]) -> None:
    """A byte too few, a byte too many, nothing."""
    file, header = parcel(tmp_path, spec)
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(Refused) as refused:
        spool.admit("a", file, build_offer(header, file))
    assert "size" == refused.value.code


def test_sweeping_keeps_what_is_named(tmp_path: Path, spool: Spool, spec: RunSpec) -> None:
    """Both files of every other update go, and the freed bytes are told."""
    names = [admit(spool, site, parcel(tmp_path, spec, site=site)) for site in "abc"]
    size = sum(f.stat().st_size for f in (tmp_path / "spool").iterdir()) // 3
    assert 2 * size == spool.sweep([names[1], "000009-1-z"])
    assert [False, True, False] == [spool.holds(name) for name in names]
    assert 2 == len(list((tmp_path / "spool").iterdir()))


def test_what_cannot_be_removed_stays(tmp_path: Path, spool: Spool, spec: RunSpec) -> None:
    """A disk that does not let go of a file does not end the run: the others go, and it is tried again."""
    name = admit(spool, "a", parcel(tmp_path, spec))
    size = sum(f.stat().st_size for f in (tmp_path / "spool").iterdir())
    stuck, gone = tmp_path / "spool" / "000001-1-a.raw", tmp_path / "spool" / "gone.raw"
    stuck.mkdir()
    assert size == spool.free([stuck, gone, *spool.unwanted(["000001-1-a"])])
    assert (False, [stuck]) == (spool.holds(name), spool.unwanted(()))


def test_a_full_disk_is_no_reason_to_keep_an_update(
    tmp_path: Path, spool: Spool, spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be kept to be written over is removed."""
    monkeypatch.setattr(recycler, "WORTH", 1)
    name = admit(spool, "a", parcel(tmp_path, spec))

    def refuse(*words: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "mkdir", refuse)
    assert 0 < spool.sweep(())
    assert (False, []) == (spool.holds(name), list((tmp_path / "spool").iterdir()))


def test_a_torn_update_is_noticed(tmp_path: Path, spool: Spool, spec: RunSpec) -> None:
    """After a power loss a file may be short, changed or gone: then it is not whole."""
    name = admit(spool, "a", parcel(tmp_path, spec))
    raw, note = (tmp_path / "spool" / f"{name}.{end}" for end in ("raw", "json"))
    content, digest = raw.read_bytes(), digest_of(spool, name)
    assert spool.whole(name, digest)
    assert not spool.whole("000003-2-b", digest)
    raw.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert not spool.whole(name, digest)
    raw.write_bytes(content)
    note.write_text("")
    assert not spool.whole(name, digest)


ENCODED = (Entry("sum.w", "int8-change", (8, 8)), Entry("weight.w", "int64", ()))
SENT = State({"sum.w": torch.full((8, 8), 5.0)})


@pytest.fixture
def encoded(tmp_path: Path) -> Spool:
    """A spool of a run whose sites send changes of 5."""
    terms = UpdateTerms(pin_spec(ENCODED, encoding="int8"))
    terms.compared = lambda site: SENT
    return Spool(tmp_path / "spool", pin_spec(ENCODED, encoding="int8"), OpenEnvelopes(), terms)


def write_change(
    folder: Path, spoil: Callable[[bytearray], None] = lambda content: None
) -> tuple[Path, Header]:
    """An update that went from 4 to 5.27, from 1.27 on."""
    file, spec = folder / "up-a", pin_spec(ENCODED, encoding="int8")
    trained = State({"sum.w": torch.full((8, 8), 5.27), "weight.w": torch.tensor(3)})
    out = io.BytesIO()
    codec.encode(trained, ENCODED, out, Changes(State({"sum.w": torch.full((8, 8), 4.0)}), State()))
    content = bytearray(out.getvalue())
    spoil(content)
    file.write_bytes(content)
    return file, build_header(spec, "a", TASK)


def test_an_encoded_update_is_read_as_a_change_of_what_was_sent(tmp_path: Path, encoded: Spool) -> None:
    """5 here, 4 as the site decoded it, and 1.27 more after training: 6.27; it went as far as eight times 1.27."""
    name = admit(encoded, "a", write_change(tmp_path))
    update = encoded.open(name)
    assert torch.allclose(torch.full((8, 8), 6.27), update.up().summed["w"].value)
    assert 8 * 1.27 == pytest.approx(encoded.change_of(name))
    encoded.let_letters_go()
    assert 8 * 1.27 == pytest.approx(encoded.change_of(name))


def write_scale(scale: float) -> Callable[[bytearray], None]:
    """Another scale for all 64 numbers."""

    def spoil(content: bytearray) -> None:
        content[:4] = struct.pack("<f", scale)

    return spoil


@pytest.mark.parametrize(
    ("scale", "code"),
    [(math.nan, "encoding"), (math.inf, "encoding"), (3e38, "not_finite"), (1e6, "norm"), (1e5, "change")],
)
def test_an_encoded_update_is_looked_at_as_it_is_decoded(
    tmp_path: Path, encoded: Spool, scale: float, code: str
) -> None:
    """Not a number hides in a scale, and none that would drown the others."""
    encoded.terms = UpdateTerms(pin_spec(ENCODED, encoding="int8", largest_norm=1e9, largest_change=1e7))
    encoded.terms.compared = lambda site: SENT
    with pytest.raises(Refused) as refused:
        admit(encoded, "a", write_change(tmp_path, write_scale(scale)))
    assert code == refused.value.code


def test_an_encoded_update_of_another_length(tmp_path: Path, encoded: Spool) -> None:
    """A block more than the manifest has."""
    with pytest.raises(Refused, match="the manifest says") as refused:
        admit(encoded, "a", write_change(tmp_path, lambda content: content.extend(bytes(68))))
    assert "size" == refused.value.code
