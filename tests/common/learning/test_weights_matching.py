"""Which tensors of a file a participant takes, under whose names, and where they go."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from pfl_common import methods
from pfl_common.learning.method import Participant
from pfl_common.learning.weights_matching import apply_weights, fit_weights
from pfl_common.models.torchvision_import import import_torchvision
from pfl_common.spec.run import Model, RunSpec

CLASSES = ("a", "b", "c")


def build(backbone: str = "resnet18", method: str = "fedavg", *, projector: bool = False) -> Participant:
    """A participant on pictures in colour, without its numbers."""
    model = Model(backbone, (3, 32, 32), CLASSES, encoder_projector=projector)
    with torch.device("meta"):
        return methods.build_participant(RunSpec("run", method, {}, model, ("a",), rounds=1, seed=1))


def published(name: str = "resnet18", classes: int = 3) -> dict[str, Tensor]:
    """The state of torchvision's network, under its own names."""
    with torch.device("meta"):
        network: nn.Module = import_torchvision("torchvision.models").get_model(name, num_classes=classes)
    return network.state_dict()


@pytest.mark.parametrize(
    ("backbone", "projector"),
    [("torchvision:resnet18", False), ("torchvision:resnet18", True), ("resnet18", False)],
)
def test_torchvisions_names(backbone: str, projector: bool) -> None:
    """Of its own network with and without a projector behind it, and of ours, which computes the same."""
    fit = fit_weights(published(), build(backbone, projector=projector))
    assert (("head",), 120, {}, ()) == (fit.heads, fit.in_encoder, dict(fit.misfits), fit.unused)
    assert projector == any(name.startswith("encoder.projector.") for name in fit.missing)


def test_whole_is_whole() -> None:
    """Each tensor of ours is found in torchvision's file, each of the file is used, and shapes are equal."""
    participant = build()
    fit = fit_weights(published(), participant)
    assert participant.state_dict().keys() == fit.taken.keys()
    assert () == fit.missing


@pytest.mark.parametrize("heads", [True, False])
def test_a_head_of_other_classes_is_not_taken(heads: bool) -> None:
    """By its shape, and told with both; or since nobody wants it."""
    fit = fit_weights(published(classes=1000 if heads else 3), build(), heads=heads)
    assert () == fit.heads
    expected = {"fc.weight": "1000x512, here 3x512", "fc.bias": "1000, here 3"} if heads else {}
    assert expected == dict(fit.misfits)


def test_a_head_is_taken_whole_or_not_at_all() -> None:
    """Half of it is worse than none."""
    tensors = {name: value for name, value in published().items() if name != "fc.bias"}
    fit = fit_weights(tensors, build())
    assert () == fit.heads
    assert ("head.bias",) == fit.missing


def test_what_does_not_fit_is_told() -> None:
    """Another shape, a tensor too few, one too many."""
    tensors = published() | {"conv1.weight": torch.ones(1), "aux.weight": torch.ones(1)}
    del tensors["bn1.bias"]
    fit = fit_weights(tensors, build())
    assert {"conv1.weight": "1, here 64x3x7x7"} == dict(fit.misfits)
    assert (("encoder.bn.bias",), ("aux.weight",), 118) == (fit.missing, fit.unused, fit.in_encoder)


@pytest.mark.parametrize(("method", "heads"), [("dualfed", 2), ("fedpick", 3), ("fedetf", 0), ("ditto", 1)])
def test_every_head_begins_from_the_file(method: str, heads: int) -> None:
    """From one file of ours to another method; methods with a fixed classifier have none."""
    own = build("resnet8", "fedavg").state_dict()
    fit = fit_weights(own, build("resnet8", method))
    assert heads == len(fit.heads)
    assert fit.encoder == fit.in_encoder


def test_a_second_model_has_them_too() -> None:
    """Under its own names; and the first tensor of that name in the participant is the encoder's own."""
    participant = build("mlp", "ditto").to_empty(device="cpu")
    taken = {name: torch.full(value.shape, 7.0) for name, value in participant.encoder.state_dict().items()}
    apply_weights(participant, {f"encoder.{name}": value for name, value in taken.items()})
    for part in (participant.encoder, participant.personal["encoder"]):
        assert all(torch.equal(taken[name], value) for name, value in part.state_dict().items())


def test_halves_become_whole_numbers_of_the_run() -> None:
    """A file of 16 bits is read as the run's 32."""
    half = {
        name: torch.empty(value.shape, dtype=torch.float16, device="meta")
        for name, value in published().items()
    }
    fit = fit_weights(half, build())
    assert {torch.float32, torch.int64} == {value.dtype for value in fit.taken.values()}
