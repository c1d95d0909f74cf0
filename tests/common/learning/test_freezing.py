"""Frozen modules of one network: what stands still in it, in what mode, and which names are refused."""

from __future__ import annotations

import copy
from types import ModuleType

import pytest
import torch
from torch import nn

from pfl_common.errors import SettingError
from pfl_common.learning.freezing import align_copies, find_frozen, freeze, stands_still
from pfl_common.learning.partition import floating, has_batch_norm, travelling
from pfl_common.methods import Method, fedavg, fedcp, fedrep, spherefed
from pfl_common.randomness import generators
from tests.common.methods.toy import ask, build_backbone, build_data, build_spec

STATISTICS = {f"encoder.1.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}


class Network(nn.Module):
    """An encoder with a linear layer and a batch norm, and a head."""

    def __init__(self) -> None:
        super().__init__()
        built = build_backbone(norm=True)
        self.encoder, self.head = built.encoder, built.head


def build(module: ModuleType, *frozen: str, **settings: object) -> nn.Module:
    """A method's client on the toy network with a part of it frozen."""
    method = Method.of(module)
    backbone = build_backbone(norm=True)
    spec = build_spec(method.name, settings)
    return method.build_client(spec, type(backbone)(**{**vars(backbone), "frozen": frozen}))


def test_a_frozen_tensor_is_no_parameter() -> None:
    """It is in the state as before, and neither trained nor averaged."""
    network = Network()
    names = set(network.state_dict())
    freeze(network, ["encoder.0", "head.bias"])
    frozen = {"encoder.0.weight", "encoder.0.bias", "head.bias"}
    assert frozen == set(find_frozen(network))
    assert names == set(network.state_dict())
    assert not frozen & {name for name, _ in network.named_parameters()}
    assert not frozen & (floating(network) | travelling(network, "share_all"))


def test_a_frozen_batch_norm_counts_as_before() -> None:
    """In training too, in whatever copy and mode; so the others' batches do not decide what it gives."""
    network = Network()
    freeze(network, ["encoder.1"])
    assert stands_still(network.encoder[1][1])
    assert not has_batch_norm(network)
    x = torch.randn(6, 2, generator=generators.generator("x"))
    for one in (network, copy.deepcopy(network)):
        before = {name: one.state_dict()[name].clone() for name in STATISTICS}
        seen = one.train().encoder(x)
        assert torch.equal(one.eval().encoder(x), seen)
        assert all(torch.equal(value, one.state_dict()[name]) for name, value in before.items())


@pytest.mark.parametrize("named", sorted(STATISTICS))
def test_a_statistic_is_frozen_with_the_others(named: str) -> None:
    """One of them cannot stand still while a batch moves the rest."""
    network = Network()
    freeze(network, [named])
    assert STATISTICS == set(find_frozen(network))


def test_a_frozen_scale_leaves_the_statistics() -> None:
    """Of a batch norm whose scale alone is named batches count."""
    network = Network()
    freeze(network, ["encoder.1.1.weight"])
    assert has_batch_norm(network)
    network.train().encoder(torch.randn(6, 2, generator=generators.generator("x")))
    assert 1 == int(network.state_dict()["encoder.1.1.num_batches_tracked"])


@pytest.mark.parametrize(
    ("name", "near"),
    [("encoder.00", "encoder.0"), ("encoder.1.weight", "1"), ("hed", "head"), ("ncoder", "encoder")],
)
def test_an_unknown_name_is_refused_with_those_near_it(name: str, near: str) -> None:
    """A beginning of a name is none."""
    with pytest.raises(SettingError) as refused:
        freeze(Network(), [name])
    assert refused.value.expected and refused.value.advice
    assert repr(name) in refused.value.seen
    assert near in refused.value.expected


def test_a_name_is_a_path_and_no_beginning() -> None:
    """`encoder.1` is not `encoder.10`."""
    network = nn.Module()
    network.encoder = nn.Sequential(*(nn.Linear(1, 1) for _ in range(11)))
    freeze(network, ["encoder.1"])
    assert {"encoder.1.weight", "encoder.1.bias"} == set(find_frozen(network))


def test_a_second_model_takes_the_values() -> None:
    """A copy that was drawn otherwise is made the same."""
    network = Network()
    freeze(network, ["encoder.0"])
    network.second = copy.deepcopy(network.encoder)
    with torch.no_grad():
        network.second[0].weight.add_(1)
    align_copies(network)
    assert torch.equal(network.encoder[0].weight, network.second[0].weight)
    assert "encoder.0.weight" == find_frozen(network)["second.0.weight"]


def test_what_has_nothing_to_train_is_measured() -> None:
    """FedRep's loop over a frozen encoder tells its loss and moves nothing."""
    client = build(fedrep, "encoder", head_epochs=1)
    before = {name: value.clone() for name, value in client.encoder.state_dict().items()}
    told = client.learn(build_data(), ask())
    assert told["loss"] > 0
    assert all(torch.equal(value, client.encoder.state_dict()[name]) for name, value in before.items())


@pytest.mark.parametrize(
    ("module", "frozen"),
    [
        (fedavg, ("encoder", "head")),
        (spherefed, ("encoder",)),
        (fedcp, ("head_p",)),
        (fedcp, ("head_g.bias",)),
    ],
    ids=str,
)
def test_freezing_that_makes_no_sense_is_refused(module: ModuleType, frozen: tuple[str, ...]) -> None:
    """Nothing left to train; one of two heads of which a mean is sent."""
    with pytest.raises(SettingError, match=f"--freeze.* {frozen[0].partition('.')[0]}") as refused:
        build(module, *frozen)
    assert refused.value.expected and refused.value.advice


def test_both_heads_of_fedcp() -> None:
    """Frozen alike, they are what they were."""
    client = build(fedcp, "head_p", "head_g")
    client.learn(build_data(), ask())
    up = client.report(build_data(), ask()).summed
    assert not {name for name in up if name.startswith("head")}
