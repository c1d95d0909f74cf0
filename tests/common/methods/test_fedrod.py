"""Fed-RoD: a generic head that learns all classes alike, and a personal one that learns none of the rest."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from pfl_common.learning.method import LocalData, Samples
from pfl_common.methods import fedrod, load
from pfl_common.models import Backbone
from pfl_common.tensors.state import State, load_into
from tests.common.methods.toy import ask, build_client, build_data, build_spec, equal, gather

METHOD = load("fedrod")
LINEAR = {"encoder.0.weight", "encoder.0.bias"}
SCALE = {"encoder.1.1.weight", "encoder.1.1.bias"}
STATISTICS = {"encoder.1.1.running_mean", "encoder.1.1.running_var"}
HEAD_G = {"head_g.weight", "head_g.bias"}


@dataclass(frozen=True)
class Counted(LocalData):
    """One sample, and the class counts of an example, as if the others were never drawn."""

    counted: tuple[int, ...] = ()

    @property
    def counts(self) -> Tensor:
        """The example's."""
        return torch.tensor(self.counted)


def one_sample(x: tuple[float, ...], y: int, counts: tuple[int, ...]) -> Counted:
    """A site that trains on one sample."""
    part = Samples(torch.tensor([x], dtype=torch.float64), torch.tensor([y]))
    return Counted(part, part, part, classes=len(counts), site="a", seed=7, counted=counts)


def build_example(epochs: int) -> fedrod.Client:
    """h = A x with A = I, W_g = (1, 0), (0, 1), (0, 0) and W_p = 0, no biases."""
    backbone = Backbone(nn.Linear(2, 2, bias=False), nn.Linear(2, 3, bias=False), 2)
    client = fedrod.Client(
        METHOD.settle({"lr": 0.1, "momentum": 0.0, "epochs": epochs}), backbone, 3
    ).double()
    eye = torch.eye(3, 2, dtype=torch.float64)
    load_into(client, {"encoder.weight": eye[:2], "head_g.weight": eye, "head_p.weight": 0 * eye})
    return client


@pytest.mark.golden("fedrod", item=28)
def test_worked_example() -> None:
    """Two steps on x = (1, 2), y = 1 with 8, 2 and 0 samples: a detach that is missing shows from the second on."""
    client, data = build_example(2), one_sample((1.0, 2.0), 1, (8, 2, 0))
    told = client.learn(data, ask())
    expected = {
        "encoder.weight": [[0.913897, -0.172206], [0.096875, 1.193751]],
        "head_g.weight": [[0.919283, -0.188365], [0.080717, 1.188365], [0.0, 0.0]],
        "head_p.weight": [[-0.029373, -0.064978], [0.041989, 0.094804], [-0.012616, -0.029825]],
    }
    for name, value in expected.items():
        torch.testing.assert_close(
            client.state_dict()[name], torch.tensor(value).double(), rtol=0, atol=1e-6, msg=name
        )
    assert 0.358889 + 0.129216 == pytest.approx(told["loss"], abs=1e-5)
    assert (0.904832 + 0.358889) / 2 == pytest.approx(told["part/generic"], abs=1e-5)
    assert (0.407606 + 0.129216) / 2 == pytest.approx(told["part/personal"], abs=1e-5)


@pytest.mark.golden("fedrod", item=28)
def test_worked_losses_of_the_first_step() -> None:
    """0.904832 balanced, 0.407606 personal."""
    told = build_example(1).learn(one_sample((1.0, 2.0), 1, (8, 2, 0)), ask())
    assert 0.904832 == pytest.approx(told["part/generic"], abs=1e-6)
    assert 0.407606 == pytest.approx(told["part/personal"], abs=1e-6)


@pytest.mark.golden("fedrod", item=7)
def test_balanced_softmax() -> None:
    """Logits (1, 1, 0), counts (8, 2, 0), class 1: 1.609438, where the plain cross entropy is 0.861995."""
    client = constant_heads((1.0, 1.0, 0.0), (0.0, 0.0, 0.0))
    told = client.learn(one_sample((0.0, 0.0), 1, (8, 2, 0)), ask())
    assert 1.609438 == pytest.approx(told["part/generic"], abs=1e-6)
    assert 0.861995 == pytest.approx(told["part/personal"], abs=1e-6)
    assert all(value.isfinite().all() for value in client.state_dict().values())


def constant_heads(generic: tuple[float, ...], own: tuple[float, ...]) -> fedrod.Client:
    """Heads that say the same of every sample."""
    backbone = Backbone(nn.Identity(), nn.Linear(2, 3), 2)
    client = fedrod.Client(METHOD.settle({}), backbone, 3).double()
    for head, bias in ((client.head_g, generic), (client.head_p, own)):
        load_into(head, {"weight": torch.zeros(3, 2).double(), "bias": torch.tensor(bias).double()})
    return client


def test_an_absent_class_gets_no_gradient() -> None:
    """The generic head's row of a class that the site lacks stays, to the last bit; the personal head's falls."""
    client, data = build_client(fedrod), build_data(labels=(0, 1, 1, 0))
    before = State.of(client).apply(torch.clone)
    client.learn(data, ask())
    assert torch.equal(before["head_g.weight"][2], client.head_g.weight[2])
    assert torch.equal(before["head_g.bias"][2], client.head_g.bias[2])
    assert client.head_p.bias[2] < before["head_p.bias"][2]


def test_classes_are_counted_on_the_whole_training_set() -> None:
    """A class whose only sample lies in a batch that one epoch drops counts 1; counted 0, its loss were infinite."""
    labels = (0, 0, 0, 0, 0, 0, 1)
    for round in range(1, 9):
        client = build_client(fedrod, batch=3, drop_last=True, epochs=3)
        told = client.learn(build_data(labels=labels, classes=3), ask(round))
        assert told["part/generic"] < 100, round


def test_both_heads_predict_and_the_generic_one_alone() -> None:
    """(1, 1, 0) + (0, 1, 0) says class 1."""
    client, x = constant_heads((1.0, 1.0, 0.0), (0.0, 1.0, 0.0)), torch.zeros(1, 2).double()
    views = client.views(x)
    assert {"combined": [[1.0, 2.0, 0.0]], "global": [[1.0, 1.0, 0.0]]} == {
        name: value.tolist() for name, value in views.items()
    }
    assert [[1.0, 2.0, 0.0]] == client(x).tolist()


def test_how_often_the_personal_head_changes_the_prediction() -> None:
    """Of every sample here, and of none."""
    changing, silent = (
        constant_heads((1.0, 0.0, 0.0), (0.0, 2.0, 0.0)),
        constant_heads((1.0, 0, 0), (0.0, 0, 0)),
    )
    data = one_sample((0.0, 0.0), 1, (1, 1, 1))
    assert {"changed": 1.0} == changing.diagnose(data, ask())
    assert {"changed": 0.0} == silent.diagnose(data, ask())


@pytest.mark.parametrize(
    ("policy", "travels"),
    [
        ("share_all", LINEAR | SCALE | STATISTICS | HEAD_G),
        ("local_stats", LINEAR | SCALE | HEAD_G),
        ("local_bn", LINEAR | HEAD_G),
    ],
)
def test_the_personal_head_stays_under_every_policy(policy: str, travels: set[str]) -> None:
    """Encoder and generic head travel, less what the policy keeps; the vault holds all the rest."""
    client = build_client(fedrod, norm=True, bn_policy=policy)
    assert travels == set(client.travels("train"))
    assert travels == client.report(build_data(), ask()).summed.keys()
    assert client.state_dict().keys() - travels == set(client.stays("train"))


@pytest.mark.parametrize(("aggregation", "expected"), [("samples", 3.25), ("uniform", 2.5)])
def test_how_sites_count(aggregation: str, expected: float) -> None:
    """(2*1 + 6*4) / 8 = 3.25 by samples; (1 + 4) / 2 = 2.5 if every site counts alike."""
    data = {"a": build_data("a", labels=(0, 1)), "b": build_data("b", labels=(0, 1, 2, 0, 1, 2))}
    clients = {site: build_client(fedrod, aggregation=aggregation) for site in data}
    for client, value in zip(clients.values(), (1.0, 4.0), strict=True):
        nn.init.constant_(client.head_g.bias, value)
    server = METHOD.build_server(build_spec("fedrod"))
    after = server.close(server.start(clients["a"], 3), gather(clients, data, ask()), ask()).state
    assert [expected] * 3 == after["head_g.bias"].tolist()


def test_a_download_leaves_the_personal_head_alone() -> None:
    """A site that returns finds its own head beside the new generic one."""
    client = build_client(fedrod)
    client.learn(build_data(), ask())
    own = State.of(client, client.stays("train")).apply(torch.clone)
    client.receive(State.of(client, client.travels("train")).apply(torch.zeros_like), ask(2, since=1))
    assert equal(own, State.of(client, own))
    assert not client.head_g.weight.any()


def test_the_default_is_the_method() -> None:
    """Nothing typed: statistics stay, sites count by samples, sums are enough."""
    settings = METHOD.settle({})
    assert ("local_stats", "samples", "pre") == (
        settings.bn_policy,
        settings.aggregation,
        settings.eval_point,
    )
    assert "" == METHOD.shows


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("paper", (0.01, 0.5, 256, False)),
        ("dualfed", (0.01, 0.5, 256, False)),
        ("fedcp", (0.005, 0.0, 10, True)),
        ("fedcp-resnet18", (0.1, 0.0, 10, True)),
        ("repro", (0.005, 0.0, 10, True)),
    ],
)
def test_presets(name: str, expected: tuple[float, float, int, bool]) -> None:
    """The optimisers of the comparisons."""
    s = METHOD.settle(fedrod.PRESETS[name])
    assert expected == (s.lr, s.momentum, s.batch, s.drop_last)
