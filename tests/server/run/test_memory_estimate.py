"""A rehearsal that dies for want of memory says so, with what it would need and what makes it less."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pfl_common import methods, models
from pfl_common.errors import RunFailed
from pfl_common.spec.run import Description, Model, RunSpec
from pfl_server.run import memory_estimate
from pfl_server.run import specification as opening
from pfl_server.run.kept_figures import read_kept
from pfl_server.run.memory_estimate import NO_MEMORY, estimate, estimate_site, lacks_memory
from pfl_server.run.rehearsal import count_samples
from pfl_server.settings import ServerSettings
from tests.server.support.federation import build_spec

LARGE = Description((3, 3000, 4000), ("cat", "dog"), 6, sizes=((3000, 4000, 6),), high=255)


def on(*shape: int, backbone: str = "resnet18", classes: int = 2) -> RunSpec:
    """A run on samples of this shape."""
    names = tuple(f"c{n}" for n in range(classes))
    return replace(build_spec(), model=Model(backbone, shape, names), settings={"batch": 32}, manifests={})


def freeze(tmp_path: Path, **given: object) -> RunSpec:
    """A run of two sites with large photographs."""
    settings = ServerSettings(method="fedavg", state=tmp_path, **given)
    return opening.freeze(settings, {"a": LARGE, "b": LARGE}, run="run-1")


def end_with(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """Have the rehearsal's process end otherwise."""
    monkeypatch.setattr(opening, "REHEARSAL", (sys.executable, "-c", line))
    monkeypatch.setattr(opening, "REHEARSED_HERE", 0)


@pytest.mark.parametrize(
    "line",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "raise SystemExit(137)",
        f"raise SystemExit({NO_MEMORY})",
    ],
    ids=["killed by the system", "killed in a container", "refused memory"],
)
def test_a_rehearsal_without_memory_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """A real process that really dies: the words say why, how much is needed and which settings to change."""
    end_with(monkeypatch, line)
    with pytest.raises(RunFailed, match="fedavg") as error:
        freeze(tmp_path, image_size=2048)
    words = str(error.value)
    assert re.search(r"\d GB.* resnet18 .*3x2048x2048.* batch of 32", words)
    for setting in ("--image-size 224", "--backbone cnn", "--set batch=8"):
        assert setting in words


def test_another_end_is_not_said_to_be_hunger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the program stands in the log."""
    end_with(monkeypatch, "raise SystemExit(3)")
    with pytest.raises(RunFailed, match=r"\b3\b.* log") as error:
        freeze(tmp_path)
    assert "--set" not in str(error.value)


def test_a_process_that_is_refused_memory_ends_as_such(tmp_path: Path) -> None:
    """The real rehearsal under a limit that its pictures do not fit into."""
    # Not by a function in the child: forked beside gRPC's threads it might not live to begin.
    limited = ("sh", "-c", f'ulimit -v {3 << 20}; exec "$@"', "sh", *opening.REHEARSAL)
    asked = on(3, 20_000, 20_000, backbone="cnn").to_json().encode()
    done = subprocess.run(limited, input=asked, capture_output=True, check=False)
    assert NO_MEMORY == done.returncode, done.stderr[-2000:]


def test_what_memory_that_is_refused_looks_like() -> None:
    """Python's way, and torch's; any other error is not taken for it."""
    assert lacks_memory(MemoryError())
    with pytest.raises(RuntimeError) as refused:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert lacks_memory(refused.value)
    assert not lacks_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not lacks_memory(ValueError("allocate"))


@pytest.mark.parametrize("backbone", sorted({*models.names()} - {"fasttext", "har_cnn"}))
def test_the_estimate_takes_no_memory_and_grows_with_pictures(backbone: str) -> None:
    """Twice the side, four times the layers; the weights of a network that averages over places stay the same."""
    small, large = (estimate(on(3, side, side, backbone=backbone)) for side in (64, 128))
    assert small.model > 0
    assert 3.5 < large.sample / small.sample < 4.5 or backbone == "mlp"
    assert estimate(on(3, 4096, 4096, backbone=backbone)).sample > large.sample


def test_the_estimate_is_of_the_right_size() -> None:
    """resnet18 at 224x224: 45 MB of weights; its layers give 2.5 million numbers or so, kept also after each norm."""
    found = estimate(on(3, 224, 224))
    assert 44e6 < found.model < 46e6
    assert 20e6 < found.sample < 60e6


@pytest.mark.parametrize(("method", "models"), [("fedavg", 4), ("local", 3), ("ditto", 6), ("fedfomo", 9)])
def test_the_estimate_of_a_site_counts_its_methods_models(method: str, models: int) -> None:
    """Of resnet18 FedAvg has its own, the download, gradients and momentum; FedFomo the models of five others too."""
    spec = replace(on(3, 64, 64), method=method)
    network, samples = estimate(on(3, 64, 64)), 32
    found = estimate_site(spec, samples) - 2 * samples * network.sample
    assert found / network.model == pytest.approx(models, rel=0.25)


def test_a_method_from_elsewhere_is_taken_to_hold_what_fedavg_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four for each network that it has: Ditto, unknown, would be eight."""
    known = read_kept()
    rows = {words: {"fedavg": figures["fedavg"]} for words, figures in known.items()}
    monkeypatch.setattr(memory_estimate, "read_kept", lambda: rows)
    network = estimate(on(3, 64, 64)).model
    assert estimate_site(replace(on(3, 64, 64), method="ditto"), 0) / network == pytest.approx(8, rel=0.02)


def test_few_large_samples_are_made_up() -> None:
    """Sixteen of 2048x2048 were 10 GB in a resnet18; their number changes no shape."""
    assert 16 == count_samples(on(3, 64, 64, classes=10))
    assert 4 == count_samples(on(3, 224, 224, classes=10))
    assert 4 == count_samples(on(3, 64, 64, classes=1))


@pytest.mark.parametrize("method", methods.names())
def test_every_method_can_be_rehearsed_on_large_samples(method: str, tmp_path: Path) -> None:
    """Four samples of two classes are enough for each, whatever the number of classes."""
    many = tuple(f"c{n}" for n in range(12))
    sites = {name: replace(LARGE, classes=many) for name in "ab"}
    settings = ServerSettings(method=method, image_size=72, backbone="resnet8", state=tmp_path)
    assert opening.freeze(settings, sites, run="run-1").manifests


def test_large_pictures_in_a_small_network_are_rehearsed_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are few, what the layers hold is not: the coordinator itself must not be the one to die."""
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    monkeypatch.setattr(opening, "REHEARSAL", (sys.executable, "-c", killed))
    with pytest.raises(RunFailed, match="--image-size"):
        freeze(tmp_path, image_size=1024, backbone="resnet8")
