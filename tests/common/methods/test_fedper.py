"""FedPer: a common encoder under heads that stay at home."""

from __future__ import annotations

from math import log

import pytest
import torch
from torch import nn

from pfl_common.learning.method import LocalData, Participant, Samples
from pfl_common.methods import fedper, load
from pfl_common.models import Backbone
from pfl_common.tensors.state import State
from tests.common.methods.toy import ask, build_client, build_data, build_spec, equal, gather

LINEAR = {"encoder.0.weight", "encoder.0.bias"}
SCALE = {"encoder.1.1.weight", "encoder.1.1.bias"}
STATISTICS = {"encoder.1.1.running_mean", "encoder.1.1.running_var"}
HEAD = {"head.weight", "head.bias"}
COUNTER = {"encoder.1.1.num_batches_tracked"}


def build_scalar(**settings: float) -> Participant:
    """One weight w = 1 under a head v = (ln 3, 0): at x = 1 the probabilities are 3/4 and 1/4."""
    backbone = Backbone(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False), 1)
    client = fedper.Client(fedper.Config(**settings), backbone, 2)
    client.load_state_dict(
        {"encoder.weight": torch.tensor([[1.0]]), "head.weight": torch.tensor([[log(3)], [0.0]])}
    )
    return client


def build_one_sample() -> LocalData:
    """A site with the single sample x = 1 of class 0."""
    part = Samples(torch.ones(1, 1), torch.zeros(1, dtype=torch.long))
    return LocalData(train=part, validation=part, test=part, classes=2, site="a", seed=7)


def test_encoder_and_head_learn_in_the_same_step() -> None:
    """p - y = (-1/4, 1/4): with lr 1/2, v moves by (1/8, -1/8), and w, seeing the old v, by ln(3) / 8."""
    client = build_scalar(lr=0.5)

    metrics = client.learn(build_one_sample(), ask())

    assert [pytest.approx(log(3) + 1 / 8), pytest.approx(-1 / 8)] == client.head.weight.flatten().tolist()
    assert pytest.approx(1 + log(3) / 8) == client.encoder.weight.item()
    assert {"loss": pytest.approx(log(4 / 3))} == metrics


@pytest.mark.parametrize(
    ("policy", "travels"),
    [("share_all", LINEAR | SCALE | STATISTICS), ("local_stats", LINEAR | SCALE), ("local_bn", LINEAR)],
)
def test_the_head_stays_under_every_policy(policy: str, travels: set[str]) -> None:
    """The encoder travels, less what the policy keeps of its batch norm; the vault holds all the rest."""
    client = build_client(fedper, norm=True, bn_policy=policy)
    everything = LINEAR | SCALE | STATISTICS | HEAD | COUNTER

    assert travels == set(client.travels("train"))
    assert travels == client.report(build_data(), ask()).summed.keys()
    assert everything - travels == set(client.stays("train"))


@pytest.mark.parametrize(("aggregation", "expected"), [("samples", 3.25), ("uniform", 2.5)])
def test_how_sites_count(aggregation: str, expected: float) -> None:
    """(2*1 + 6*4) / 8 = 3.25 by samples; (1 + 4) / 2 = 2.5 if every site counts alike."""
    data = {"a": build_data("a", labels=(0, 1)), "b": build_data("b", labels=(0, 1, 2, 0, 1, 2))}
    clients = {site: build_client(fedper, aggregation=aggregation) for site in data}
    for client, value in zip(clients.values(), (1.0, 4.0), strict=True):
        nn.init.constant_(client.encoder[0].bias, value)
    server = load("fedper").build_server(build_spec("fedper"))

    after = server.close(server.start(build_client(fedper), 3), gather(clients, data, ask()), ask()).state

    assert LINEAR == after.keys()
    assert [expected] * 3 == after["encoder.0.bias"].tolist()


def test_a_download_leaves_the_head_alone() -> None:
    """A site that returns puts the common encoder under the head it trained."""
    client, first = build_client(fedper), State.of(build_client(fedper), HEAD)
    client.learn(build_data(), ask())
    own, common = State.of(client, HEAD), State.of(client, LINEAR).apply(torch.zeros_like)

    client.receive(common, ask(2, since=1))

    assert not equal(first, own)
    assert equal(own, State.of(client, HEAD))
    assert equal(common, State.of(client, LINEAR))


def test_the_default_is_the_method() -> None:
    """Nothing typed: statistics stay, sites count by samples, measured on arrival, sums are enough."""
    settings = load("fedper").settle({})

    assert ("local_stats", "samples", "pre") == (
        settings.bn_policy,
        settings.aggregation,
        settings.eval_point,
    )
    assert "" == load("fedper").shows


def test_presets() -> None:
    """The optimisers of the papers that compare with it."""
    method = load("fedper")
    settled = {name: method.settle(preset) for name, preset in method.presets.items()}
    optimisers = {n: (c.lr, c.momentum, c.batch, c.epochs, c.drop_last) for n, c in settled.items()}
    expected = {
        "paper": (0.01, 0.5, 256, 1, False),
        "dualfed": (0.01, 0.5, 256, 1, False),
        "fedcp": (0.005, 0.0, 10, 1, True),
        "fedcp-resnet18": (0.1, 0.0, 10, 1, True),
        "fedpick": (0.01, 0.5, 64, 1, False),
        "fedcac": (0.1, 0.0, 100, 5, False),
    }
    assert expected == optimisers
    assert {"fedpick"} == {name for name, config in settled.items() if config.bn_policy == "share_all"}
