"""FedRep: first the head, then the encoder, each with the other held fixed."""

from __future__ import annotations

from math import exp, log

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pfl_common.learning.method import LocalData, Participant, Samples
from pfl_common.methods import fedrep, load
from pfl_common.models import Backbone
from pfl_common.spec.run import Json
from pfl_common.tensors.state import State
from tests.common.methods.toy import ask, build_client, build_data, equal

torch.set_num_threads(1)

ENCODER, HEAD = ("encoder.0.weight", "encoder.0.bias"), ("head.weight", "head.bias")


def build_scalar(**settings: Json) -> Participant:
    """One weight w = 1 under a head v = (ln 3, 0): at x = 1 the probabilities are 3/4 and 1/4."""
    backbone = Backbone(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False), 1)
    client = fedrep.Client(load("fedrep").settle({"lr": 0.5, **settings}), backbone, 2)
    client.load_state_dict(
        {"encoder.weight": torch.tensor([[1.0]]), "head.weight": torch.tensor([[log(3)], [0.0]])}
    )
    return client


def build_one_sample() -> LocalData:
    """A site with the single sample x = 1 of class 0."""
    part = Samples(torch.ones(1, 1), torch.zeros(1, dtype=torch.long))
    return LocalData(train=part, validation=part, test=part, classes=2, site="a", seed=7)


def test_the_encoder_learns_under_the_new_head() -> None:
    """The head's step adds (1/8, −1/8); the encoder's then sees d = ln 3 + 1/4 and moves by (1 − p) d / 2."""
    client, gap = build_scalar(head_epochs=1), log(3) + 1 / 4

    told = client.learn(build_one_sample(), ask())

    missing = 1 / (1 + exp(gap))
    assert pytest.approx([log(3) + 1 / 8, -1 / 8]) == client.head.weight.flatten().tolist()
    assert pytest.approx(1 + missing * gap / 2) == client.encoder.weight.item()
    assert {"loss_head": pytest.approx(log(4 / 3)), "loss": pytest.approx(log(1 + exp(-gap)))} == told


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "hhhhe"),
        ({"head_epochs": 2, "body_epochs": 3}, "hheee"),
        ({"head_epochs": 1, "body_epochs": 1, "epochs": 3}, "hehehe"),
        ({"head_epochs": 0, "epochs": 2}, "ee"),
    ],
)
def test_which_part_learns_in_which_epoch(
    settings: dict[str, Json], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default four on the head and one on the encoder; shuffles are numbered on through all of them."""
    client, learned, epochs = build_client(fedrep, **settings), "", []
    batches = LocalData.batches

    def watch(scores: Tensor, labels: Tensor) -> Tensor:
        nonlocal learned
        takes = {name: client.get_parameter(f"{name}.weight").requires_grad for name in ("head", "encoder.0")}
        learned += "h" if takes == {"head": True, "encoder.0": False} else ""
        learned += "e" if takes == {"head": False, "encoder.0": True} else ""
        return cross_entropy(scores, labels)

    monkeypatch.setattr(fedrep, "cross_entropy", watch)
    monkeypatch.setattr(
        LocalData, "batches", lambda *words, **named: epochs.append(words[2]) or batches(*words, **named)
    )
    client.learn(build_data(), ask())

    assert expected == learned
    assert list(range(len(expected))) == epochs


def test_without_epochs_of_its_own_a_head_never_changes() -> None:
    """And nothing is told of a training that was not."""
    client = build_client(fedrep, head_epochs=0, lr=0.5)
    before = State.of(client)
    told = client.learn(build_data(), ask())

    assert {"loss"} == told.keys()
    assert equal(before.only(HEAD), State.of(client, HEAD))
    assert not equal(before.only(ENCODER), State.of(client, ENCODER))


def test_every_part_begins_without_momentum() -> None:
    """One step in each part: with a memory kept between them the second cycle would differ."""
    ends = []
    for momentum in (0.0, 0.9):
        client = build_client(fedrep, head_epochs=1, epochs=3, momentum=momentum, lr=0.3)
        client.learn(build_data(), ask())
        ends.append(State.of(client))

    assert equal(*ends)


def test_statistics_move_in_both_parts() -> None:
    """The network is in train mode while the head learns: each of the five epochs is a batch counted."""
    client = build_client(fedrep, norm=True)
    client.learn(build_data(), ask())

    assert 5 == client.state_dict()["encoder.1.1.num_batches_tracked"]


def test_the_default_is_the_papers() -> None:
    """Four and one, once a round; the head stays."""
    settings = load("fedrep").settle({})
    assert (1, 4, 1) == (settings.epochs, settings.head_epochs, settings.body_epochs)
    assert set(ENCODER) == set(build_client(fedrep).travels("train"))
