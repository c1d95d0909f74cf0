"""What each method's run pins under an encoding; methods that need what crosses to the last digit are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pfl_common import methods
from pfl_common.errors import SettingError
from pfl_common.spec.beginning import Beginning
from pfl_common.spec.encoding import find_unsound
from pfl_common.spec.manifest import full_size
from pfl_common.spec.run import Description, RunSpec
from pfl_common.spec.run_bounds import check_spec
from pfl_server.run.encoded_parcels import pin_encoding
from pfl_server.run.setting_checks import check_words
from pfl_server.run.specification import freeze
from pfl_server.settings import ServerSettings

SITES = {name: Description((3, 12, 12), ("cat", "dog"), 100) for name in ("a", "b")}
REFUSED = {
    "fedamp": "single models",
    "fedcac": "single models",
    "fedfomo": "single models",
    "fedproto": "prototypes",
}


def pin(state: Path, method: str, encoding: str, **words: object) -> RunSpec:
    """A run on small pictures."""
    given = {
        "method": method,
        "backbone": "resnet8",
        "state": state,
        "encoding": encoding,
        "rounds": 4,
    } | words
    return freeze(ServerSettings(**given), SITES, run="run-1")


@pytest.mark.parametrize("method", methods.names())
def test_every_method_is_encoded_or_refused(tmp_path: Path, method: str) -> None:
    """In words at start; one that is not refused pins what a site takes, and statistics stay as they are."""
    settings = ServerSettings(method=method, state=tmp_path, encoding="int8", backbone="mlp")
    if method in REFUSED:
        with pytest.raises(
            SettingError, match=f"--encoding int8 with the method {method}: .*{REFUSED[method]}"
        ):
            check_words(settings)
        return
    check_words(settings)
    spec = pin(tmp_path, method, "int8")
    check_spec(spec)
    assert "" == find_unsound(spec)
    ups = spec.manifests[f"train/{next(iter(phases(spec)))}/up"]
    encoded = {entry.name for entry in ups if entry.dtype == "int8-change"}
    assert bool(encoded) == (method != "local")
    assert all(name.startswith("sum.") for name in encoded)


def test_statistics_stay_as_they_are(tmp_path: Path) -> None:
    """Of batch norms that are shared, means and variances cross whole, both ways, and what is learnt does not."""
    spec = pin(tmp_path, "fedavg", "int8", backbone="resnet10", set={"bn_policy": "share_all"})
    for key, branch in (("train/train/up", "sum."), ("train/train/delta", ""), ("evaluate/train/down", "")):
        forms = {
            e.name: e.dtype for e in spec.manifests[key] if e.name.startswith(branch) and e.shape >= (64,)
        }
        statistics = {name for name in forms if "running_" in name}
        assert statistics
        assert {"float32"} == {forms[name] for name in statistics}
        assert "float32" not in {form for name, form in forms.items() if name not in statistics}


def phases(spec: RunSpec) -> dict[str, int]:
    """The run's phases."""
    method = methods.load(spec.method)
    return dict(method.phases(method.settle(spec.settings), spec.rounds))


SIZES = {"float32": (1.0, 1.0), "bf16": (0.5, 0.5), "int8": (0.26, 0.5), "topk": (0.06, 0.5)}


@pytest.mark.parametrize("encoding", SIZES)
def test_sizes(tmp_path: Path, encoding: str) -> None:
    """The pinned bytes of an update and of a download beside float32; the last download is whole."""
    plain = pin(tmp_path, "fedavg", "float32")

    def beside(key: str) -> float:
        return full_size(spec.manifests[key]) / full_size(plain.manifests[key])

    up, down = SIZES[encoding]
    spec = pin(tmp_path, "fedavg", encoding, downlink="auto" if encoding in ("float32", "bf16") else "bf16")
    assert up == pytest.approx(beside("train/train/up"), abs=0.015)
    assert down == pytest.approx(beside("train/train/down"), abs=0.015)
    assert down == pytest.approx(beside("evaluate/train/down"), abs=0.015)
    assert 1 == beside("finish/train/down") == beside("init")
    said = spec.chosen.get("encoding", "")
    assert said.startswith(f"{encoding}: an update of ") == (encoding != "float32")


def test_downloads_as_changes_of_every_method(tmp_path: Path) -> None:
    """Of those that send every site the same; others keep values, and say why; asked for by name they are refused."""
    found = {}
    for method in set(methods.names()) - REFUSED.keys() - {"local"}:
        spec = pin(tmp_path, method, "int8")
        check_spec(spec)
        found[method] = spec.downlink
        said = spec.chosen["encoding"]
        assert ("is the change for a site that was in the round before" in said) == (spec.downlink == "delta")
    assert {"lgfedavg"} == {method for method, downlink in found.items() if downlink == "bf16"}
    spec = pin(tmp_path, "lgfedavg", "topk")
    assert "cross as values: lgfedavg sends different sites different tensors" in spec.chosen["encoding"]
    asked = ServerSettings(method="lgfedavg", state=tmp_path, encoding="int8", downlink="delta")
    with pytest.raises(SettingError, match="--downlink delta with the method lgfedavg"):
        check_words(asked)


def test_the_sizes_of_changes(tmp_path: Path) -> None:
    """A change down takes a quarter, under topk too, the whole as much as float32."""
    plain = pin(tmp_path, "fedavg", "float32").manifests["train/train/down"]
    for encoding in ("int8", "topk"):
        spec = pin(tmp_path, "fedavg", encoding)
        assert 0.26 == pytest.approx(full_size(spec.delta("train")) / full_size(plain), abs=0.015)
        assert plain == spec.manifests["train/train/down"]
        assert 0.5 == pytest.approx(
            full_size(spec.manifests["evaluate/train/down"]) / full_size(plain), abs=0.015
        )


@pytest.mark.parametrize(
    ("words", "downlink"),
    [
        ({}, "delta"),
        ({"participation": "a,b"}, "delta"),
        ({"participation": "0.8"}, "delta"),
        ({"participation": "0.5"}, "bf16"),
        ({"participation": "0.5", "downlink": "delta"}, "delta"),
        ({"rounds": 1}, "delta"),
        ({"encoding": "int8:stochastic"}, "delta"),
        ({"encoding": "topk"}, "delta"),
        ({"downlink": "bf16"}, "bf16"),
        ({"encoding": "bf16"}, "bf16"),
        ({"encoding": "float32"}, "bf16"),
    ],
)
def test_what_is_taken_unless_somebody_chooses(
    tmp_path: Path, words: dict[str, object], downlink: str
) -> None:
    """Sites that are seldom asked would mostly be sent the whole."""
    given = {"encoding": "int8", "rounds": 30} | words
    spec = pin(tmp_path, "fedavg", **given)
    assert (downlink, downlink == "delta") == (spec.downlink, bool(spec.delta("train")))
    why = spec.chosen.get("encoding", "").partition("a site is asked in ")[2].partition(",")[0]
    assert why == ("50% of 30 rounds" if words == {"participation": "0.5"} else "")


@pytest.mark.parametrize(("rounds", "downlink"), [(3, "bf16"), (4, "delta")])
def test_a_run_that_begins_from_another(tmp_path: Path, rounds: int, downlink: str) -> None:
    """Its first download is whole, which four rounds make up for."""
    begun = replace(pin(tmp_path, "fedavg", "float32"), begins_from=Beginning("run-0", "0" * 64, 3, "0" * 64))
    spec = pin_encoding(replace(begun, encoding="int8", downlink="auto", rounds=rounds))
    assert downlink == spec.downlink
    assert ("100% of 3 rounds" in spec.chosen["encoding"]) == (rounds == 3)


@pytest.mark.parametrize(
    ("encoding", "downlink"), [("float32", "delta"), ("bf16", "delta"), ("float32", "bf16"), ("bf16", "bf16")]
)
def test_nothing_to_choose(tmp_path: Path, encoding: str, downlink: str) -> None:
    """A word without an effect is refused."""
    settings = ServerSettings(method="fedavg", state=tmp_path, encoding=encoding, downlink=downlink)
    with pytest.raises(SettingError, match=f"--downlink {downlink} with --encoding {encoding}"):
        check_words(settings)


def test_a_calibration_needs_its_sums(tmp_path: Path) -> None:
    """SphereFed without it may be encoded."""
    settings = ServerSettings(method="spherefed", state=tmp_path, encoding="bf16", set={"calibrate": True})
    with pytest.raises(SettingError, match="with calibrate = true"):
        check_words(settings)


def test_nothing_that_can_be_encoded(tmp_path: Path) -> None:
    """Two numbers and three features: every tensor is too small to gain anything."""
    with pytest.raises(
        SettingError, match="--encoding topk with fedavg: all that it shares are small tensors"
    ):
        freeze(
            ServerSettings(method="fedavg", backbone="tiny", state=tmp_path, encoding="topk"),
            {name: Description((2,), ("cat", "dog"), 100, "array") for name in "ab"},
            run="run-1",
        )
