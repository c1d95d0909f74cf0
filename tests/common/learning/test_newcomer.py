"""A newcomer's training: what travels stands still, and statistics are those of the parameters as they are."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch.nn.functional import cross_entropy

from pfl_common.learning import newcomer
from pfl_common.methods import fedavg, fedbn, fedper
from pfl_common.tensors.state import State
from tests.common.methods.toy import ask, build_client, build_data, equal


def test_so_many_rounds() -> None:
    """Ten rounds of E epochs, in which the head alone moves."""
    client, data, seen = build_client(fedper, epochs=2, batch=4), build_data(), list[int]()
    client.progress = seen.append
    before = State.of(client)
    told = newcomer.fit(client, lambda x, y: cross_entropy(client(x), y), data=data, task=ask())
    assert 2 * len(data.train) * newcomer.ROUNDS == sum(seen)
    after, shared = State.of(client), set(client.travels("train"))
    assert equal(before.only(shared), after.only(shared))
    assert {"head.weight", "head.bias"} == {n for n in before if not torch.equal(before[n], after[n])}
    assert told["loss"] < cross_entropy(build_client(fedper)(data.train.x), data.train.y).item()


@pytest.mark.parametrize("module", [fedavg, fedbn])
def test_nothing_to_train(module: ModuleType) -> None:
    """Without a parameter that stays nothing happens, and nothing is told."""
    client = build_client(module)
    before = State.of(client)
    assert {} == client.adapt(build_data(), ask())
    assert equal(before, State.of(client))


def test_shared_statistics_are_used_and_not_moved() -> None:
    """Where running statistics travel, a head is trained on features as a prediction sees them."""
    client, seen = build_client(fedper, norm=True, bn_policy="share_all"), list[bool]()
    norm = next(layer for layer in client.modules() if isinstance(layer, torch.nn.BatchNorm1d))
    norm.register_forward_hook(lambda layer, *_: seen.append(layer.training))
    before = State.of(client)
    client.adapt(build_data(), ask())
    shared = set(client.travels("train"))
    assert {False} == set(seen)
    assert equal(before.only(shared), State.of(client).only(shared))


def test_statistics_are_those_of_one_pass() -> None:
    """Mean and variance of all training samples, whatever was there; the momentum is as it was."""
    client, data = build_client(fedper, norm=True), build_data()
    norm = next(layer for layer in client.modules() if isinstance(layer, torch.nn.BatchNorm1d))
    norm.running_mean.fill_(9)
    newcomer.fill_statistics(client, data, ask())
    features = client.encoder[0](data.train.x).detach()
    assert torch.allclose(features.mean(0), norm.running_mean, atol=1e-6)
    assert torch.allclose(features.var(0), norm.running_var, atol=1e-6)
    assert 0.1 == norm.momentum


def test_shared_statistics_are_not_filled() -> None:
    """They came with the download."""
    client = build_client(fedavg, norm=True)
    before = State.of(client)
    newcomer.fill_statistics(client, build_data(), ask())
    assert equal(before, State.of(client))
