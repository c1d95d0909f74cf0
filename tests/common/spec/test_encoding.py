"""Which tensors of a run's parcels are encoded, and what a site takes of a coordinator's word for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pfl_common.spec.encoding import Encoding, encode_manifests, find_unsound, parse_encoding
from pfl_common.spec.manifest import Entry, Manifest, changing_names
from pfl_common.spec.run import Model, RunSpec

DOWN: Manifest = (
    Entry("bn.running_mean", "float32", (64,)),
    Entry("far", "float32", (8, 8), "far"),
    Entry("mask", "bool", (8, 8)),
    Entry("small", "float32", (63,)),
    Entry("w", "float32", (8, 8)),
)
UP: Manifest = (
    Entry("show.w", "float32", (8, 8)),
    *(Entry(f"sum.{e.name}", e.dtype, e.shape) for e in DOWN),
    Entry("sum.other", "float32", (8, 8)),
    Entry("weight.w", "int64", ()),
)
PLAIN = {
    "init": DOWN,
    "train/train/down": DOWN,
    "train/train/up": UP,
    "evaluate/train/down": DOWN,
    "finish/train/down": DOWN,
}
VALUES = {"train": {"far", "mask", "other", "small", "w"}}


def pin(text: str, *, delta: bool = False) -> RunSpec:
    """A run with this encoding, and with downloads that cross as changes."""
    manifests = encode_manifests(PLAIN, parse_encoding(text), VALUES, delta=delta)
    spec = RunSpec("run-1", "fedavg", {}, Model("tiny", (2,), ("a", "b")), ("a",), rounds=2, seed=0)
    return replace(spec, manifests=manifests, encoding=text, downlink="delta" if delta else "bf16")


def forms(spec: RunSpec) -> dict[str, dict[str, str]]:
    """By parcel, the tensors that do not cross as they are."""
    return {
        key: {e.name: e.dtype for e in manifest if e not in PLAIN.get(key, DOWN)}
        for key, manifest in spec.manifests.items()
    }


READ = {
    "float32": Encoding(),
    "bf16": Encoding("bf16"),
    "int8": Encoding("int8"),
    "int8:stochastic": Encoding("int8", is_stochastic=True),
    "topk": Encoding("topk", share=0.05),
    "topk:0.01": Encoding("topk", share=0.01),
}
UP_AS = {"bf16": "bf16-change", "int8": "int8-change", "topk:0.01": "topk-change/0.01"}


@pytest.mark.parametrize("text", READ)
def test_read(text: str) -> None:
    """Each value of the switch."""
    assert READ[text] == parse_encoding(text)


@pytest.mark.parametrize("text", ["", "int4", "int8:", "int8:up", "topk:", "topk:0", "topk:0.6", "bf16:1"])
def test_no_encoding(text: str) -> None:
    """Anything else names those there are."""
    with pytest.raises(ValueError, match=r"float32, bf16, int8, int8:stochastic, topk"):
        parse_encoding(text)


@pytest.mark.parametrize("text", UP_AS)
def test_what_is_encoded(text: str) -> None:
    """A large tensor of values that comes down and goes up; the first model and the last download stay exact."""
    assert {
        "init": {},
        "train/train/down": {"w": "bf16"},
        "train/train/up": {"sum.w": UP_AS[text]},
        "evaluate/train/down": {"w": "bf16"},
        "finish/train/down": {},
    } == forms(pin(text))


CHANGES = ("int8", "int8:stochastic", "topk:0.01")


@pytest.mark.parametrize("text", CHANGES)
def test_downloads_as_changes(text: str) -> None:
    """To train either as a change, in int8 under topk too, or whole; to measure as values, and the last as it is."""
    spec, up = pin(text, delta=True), UP_AS[text.removesuffix(":stochastic")]
    assert {
        "init": {},
        "train/train/down": {},
        "train/train/delta": {"w": "int8-change"},
        "train/train/up": {"sum.w": up},
        "evaluate/train/down": {"w": "bf16"},
        "finish/train/down": {},
    } == forms(spec)
    assert "" == find_unsound(RunSpec.from_json(spec.to_json()))
    assert (("w",), ()) == (changing_names(spec.delta("train")), spec.delta("other"))


def test_a_phase_that_shares_nothing_large_has_no_changes() -> None:
    """Its downloads are what they are; the other phase has its own."""
    manifests = PLAIN | {"train/last/down": DOWN[:1], "train/last/up": UP[-1:]}
    found = encode_manifests(manifests, Encoding("int8"), {**VALUES, "last": set()}, delta=True)
    assert {"train/train/delta"} == found.keys() - manifests.keys()


def test_downloads_as_values_are_not_spoken_of() -> None:
    """A specification of before there was a choice keeps its text."""
    assert "downlink" not in pin("int8").to_json()
    assert '"downlink":"delta"' in pin("int8", delta=True).to_json()


def test_float32_changes_nothing() -> None:
    """Neither a manifest nor the text that names the run."""
    spec = pin("float32")
    assert PLAIN == spec.manifests
    assert "encoding" not in spec.to_json()


@pytest.mark.parametrize("text", READ)
def test_a_sound_run(text: str) -> None:
    """What a coordinator of ours pins a site takes, read back from its text."""
    spec = RunSpec.from_json(pin(text).to_json())
    assert "" == find_unsound(spec)


def change(key: str, name: str, dtype: str) -> Callable[[RunSpec], RunSpec]:
    """Another form for one tensor."""

    def changed(spec: RunSpec) -> RunSpec:
        entries = tuple(replace(e, dtype=dtype) if e.name == name else e for e in spec.manifests[key])
        return replace(spec, manifests={**spec.manifests, key: entries})

    return changed


UNSOUND: dict[str, Callable[[RunSpec], RunSpec]] = {
    "no such encoding": lambda spec: replace(spec, encoding="int4"),
    "another encoding": lambda spec: replace(spec, encoding="bf16"),
    "float32": lambda spec: replace(spec, encoding="float32"),
    "another share": change("train/train/up", "sum.w", "topk-change/0.5"),
    "a change down": change("train/train/down", "w", "int8-change"),
    "a value up": change("train/train/up", "sum.w", "bf16"),
    "the first model": change("init", "w", "bf16"),
    "the last download": change("finish/train/down", "w", "bf16"),
    "a weight": change("train/train/up", "weight.w", "int8-change"),
    "what is shown": change("train/train/up", "show.w", "int8-change"),
    "what never came down": change("train/train/up", "sum.other", "int8-change"),
    "what comes down sometimes": change("train/train/up", "sum.far", "int8-change"),
}


def without(key: str) -> Callable[[RunSpec], RunSpec]:
    """One parcel less."""
    return lambda spec: replace(spec, manifests={k: m for k, m in spec.manifests.items() if k != key})


UNSOUND_CHANGES: dict[str, Callable[[RunSpec], RunSpec]] = {
    "not settled": lambda spec: replace(spec, downlink="auto"),
    "as values": lambda spec: replace(spec, downlink="bf16"),
    "under bf16": lambda spec: replace(spec, encoding="bf16"),
    "another form": change("train/train/delta", "w", "topk-change/0.5"),
    "a value": change("train/train/delta", "w", "bf16"),
    "no change": change("train/train/delta", "w", "float32"),
    "another tensor": change("train/train/delta", "mask", "uint8"),
    "the whole encoded": change("train/train/down", "w", "bf16"),
    "no whole": without("train/train/down"),
}


@pytest.mark.parametrize("spoil", UNSOUND_CHANGES.values(), ids=UNSOUND_CHANGES.keys())
def test_unsound_changes(spoil: Callable[[RunSpec], RunSpec]) -> None:
    """A change that is not the download of its phase, in the run's form, is named."""
    assert find_unsound(spoil(pin("int8", delta=True)))


@pytest.mark.parametrize("spoil", UNSOUND.values(), ids=UNSOUND.keys())
def test_an_unsound_run(spoil: Callable[[RunSpec], RunSpec]) -> None:
    """A form that the run's encoding does not give is named."""
    assert find_unsound(spoil(pin("int8")))
