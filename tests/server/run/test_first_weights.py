"""A run that begins from weights: what it pins, what it says of them, which weights it refuses."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from structlog.testing import capture_logs
from torch import Tensor

from pfl_common.errors import SettingError
from pfl_common.spec.run import Description, RunSpec
from pfl_deploy.simulation.loopback import OpenEnvelopes
from pfl_server.run.first_weights import read_pretrained, take_weights
from pfl_server.run.host import RunHost
from pfl_server.run.specification import begin, freeze
from pfl_server.settings import ServerSettings
from pfl_server.store.state_folder import Runs
from tests.server.support.federation import DESCRIPTION

SITES = {"a": DESCRIPTION, "b": DESCRIPTION}
TENSORS = {
    "encoder.1.weight": torch.arange(6.0).reshape(3, 2),
    "encoder.1.bias": torch.ones(3),
    "head.weight": torch.full((2, 3), 2.0),
    "head.bias": torch.full((2,), 3.0),
}


def choose(state: Path, weights: Path | str = "", **words: object) -> ServerSettings:
    """A run on two numbers and three features."""
    given = {"method": "fedavg", "backbone": "tiny", "state": state, "weights": str(weights)} | words
    return ServerSettings(**given)


def write(file: Path, tensors: dict[str, Tensor] = TENSORS) -> Path:
    """A file of weights."""
    save_file(tensors, file)
    return file


def pin(settings: ServerSettings) -> RunSpec:
    """The specification of its run."""
    with capture_logs():
        return freeze(settings, SITES, run="run-1")


def test_the_first_model_is_the_files(tmp_path: Path) -> None:
    """In what every site gets and in the first shared state, today and when the coordinator is started again."""
    file, settings = write(tmp_path / "w.safetensors"), choose(tmp_path / "state", tmp_path / "w.safetensors")
    runs = Runs(settings.state, OpenEnvelopes())
    begun = begin(runs, settings, SITES)
    assert all(torch.equal(value, begun.first[name]) for name, value in TENSORS.items())
    begun.journal.close()
    init = begun.shelf.path(begun.init.blob.digest).read_bytes()
    assert b"".join(TENSORS[name].numpy().tobytes() for name in sorted(TENSORS)) in init
    file.unlink()
    again = runs.unfinished(settings)
    assert (begun.spec, begun.init.blob) == (again.spec, again.init.blob)
    assert all(torch.equal(value, again.first[name]) for name, value in TENSORS.items())
    again.journal.close()
    runs.close()


def test_the_specification_pins_the_file(tmp_path: Path) -> None:
    """By its bytes, under its name without the folder; and a run without weights does not speak of any."""
    file = write(tmp_path / "w.safetensors")
    spec = pin(choose(tmp_path, file))
    assert (file.name, hashlib.sha256(file.read_bytes()).hexdigest()) == (
        spec.weights.source,
        spec.weights.sha256,
    )
    assert spec == RunSpec.from_json(spec.to_json())
    assert str(tmp_path) not in spec.to_json()
    assert '"weights"' not in pin(choose(tmp_path)).to_json()
    assert (
        spec.hash
        != pin(
            choose(tmp_path, write(tmp_path / "v.safetensors", TENSORS | {"head.bias": torch.zeros(2)}))
        ).hash
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ["all 2 tensors of the encoder, and head"]),
        ({"head.weight": torch.ones(9, 3)}, ["no head", "head.weight (9x3, here 2x3)"]),
        ({"encoder.1.bias": None}, ["1 of 2 tensors", "not in the file: encoder.1.bias"]),
        ({"optimizer": torch.ones(1)}, ["without a place here: optimizer"]),
    ],
)
def test_what_was_taken_is_said(changed: dict[str, Tensor | None], said: list[str], tmp_path: Path) -> None:
    """In the specification for all sites, and in the coordinator's log, as a warning if the encoder is not whole."""
    tensors = {name: value for name, value in (TENSORS | changed).items() if value is not None}
    settings = choose(tmp_path, write(tmp_path / "w.safetensors", tensors))
    with capture_logs() as logged:
        words = freeze(settings, SITES, run="run-1").chosen["weights"]
    assert all(part in words for part in said), words
    (line,) = [one for one in logged if one["event"] == "weights"]
    assert ("warning" if "1 of 2" in words else "info") == line["log_level"]


def test_weights_of_which_nothing_fits_are_refused(tmp_path: Path) -> None:
    """With names that the file has and names that were looked for; a head alone is nothing."""
    tensors = {"other.weight": torch.ones(2), "head.weight": torch.ones(2, 3), "head.bias": torch.ones(2)}
    with pytest.raises(SettingError, match=r"w\.safetensors") as refused:
        pin(choose(tmp_path, write(tmp_path / "w.safetensors", tensors)))
    assert "other.weight" in refused.value.seen
    assert "encoder.1.weight" in refused.value.expected


def test_a_file_is_read_before_sites_are_awaited(tmp_path: Path) -> None:
    """A coordinator that would fail at its beginning does not open its ports."""
    with pytest.raises(SettingError, match=r"gone\.safetensors"):
        RunHost(choose(tmp_path / "state", tmp_path / "gone.safetensors"), OpenEnvelopes())
    RunHost(choose(tmp_path / "state"), OpenEnvelopes()).runs.close()


@pytest.mark.parametrize("wrong", ["weights", "freeze"])
def test_what_cannot_fit_is_known_before_sites_are_awaited(wrong: str, tmp_path: Path) -> None:
    """Of a network of torchvision's the tensors are known at once."""
    name = "encoder.network.conv1" if wrong == "weights" else "encoder.conv"
    tensors = {"other.weight" if wrong == "weights" else "conv1.weight": torch.zeros(64, 3, 7, 7)}
    file = write(tmp_path / "w.safetensors", tensors)
    settings = choose(tmp_path / "state", file, backbone="torchvision:resnet18", freeze=(name,))
    with pytest.raises(SettingError, match=r"w\.safetensors" if wrong == "weights" else r"encoder\.conv"):
        RunHost(settings, OpenEnvelopes())


def test_weights_of_another_network_of_torchvisions_are_refused(tmp_path: Path) -> None:
    """Although some of their tensors would fit."""
    words = {"weights_like": "ResNet50_Weights.IMAGENET1K_V1", "backbone": "torchvision:resnet18"}
    with pytest.raises(SettingError, match="torchvision:resnet50"):
        read_pretrained(choose(tmp_path, write(tmp_path / "w.safetensors"), **words))


def test_only_the_file_that_is_pinned_is_taken(tmp_path: Path) -> None:
    """None, another, or one where the specification has none: all are refused."""
    file, other = (
        write(tmp_path / "w.safetensors"),
        write(tmp_path / "v.safetensors", {**TENSORS, "more": torch.ones(1)}),
    )
    spec, without = pin(choose(tmp_path, file)), pin(choose(tmp_path))
    assert TENSORS.keys() == take_weights(choose(tmp_path, file), spec).keys()
    assert take_weights(choose(tmp_path), without) is None
    for settings, wanted in (
        (choose(tmp_path), spec),
        (choose(tmp_path, other), spec),
        (choose(tmp_path, file), without),
    ):
        with pytest.raises(SettingError):
            take_weights(settings, wanted)


def test_preprocessing_is_pinned_for_pictures_alone(tmp_path: Path) -> None:
    """Where the sites hold other data the run's model stays what it is."""
    like = {"weights_like": "ResNet18_Weights.IMAGENET1K_V1", "method": "fedavg"}
    settings = choose(tmp_path, write(tmp_path / "w.safetensors"), **like)
    assert () == pin(settings).model.pixel_mean
    pictures = Description((1, 2, 1), ("cat", "dog"), 10, "image", high=255)
    wide = write(tmp_path / "wide.safetensors", {"fc1.weight": torch.ones(1000, 16)})
    settings = choose(tmp_path, wide, backbone="mlp", image_size=4, **like)
    with capture_logs():
        model = freeze(settings, {"a": pictures}, run="run-1").model
    assert ((1, 4, 4), 1) == (model.shape, len(model.pixel_mean))


def test_a_scaling_that_is_named_takes_the_place_of_the_weights(tmp_path: Path) -> None:
    """The weights' own holds where the operator names none; their picture size holds either way."""
    pictures = Description((1, 2, 1), ("cat", "dog"), 10, "image", high=255)
    wide = write(tmp_path / "wide.safetensors", {"fc1.weight": torch.ones(1000, 16)})
    like = {"weights_like": "ResNet18_Weights.IMAGENET1K_V1", "backbone": "mlp", "image_size": 4}
    means = []
    for named in ("none", "half"):
        with capture_logs():
            spec = freeze(choose(tmp_path, wide, normalise=named, **like), {"a": pictures}, run="run-1")
        means.append(spec.model.pixel_mean)
    assert ((0.485 + 0.456 + 0.406) / 3, 0.5) == pytest.approx([mean for (mean,) in means])
