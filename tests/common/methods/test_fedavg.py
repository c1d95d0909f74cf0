"""FedAvg: the mean of what the sites trained is everybody's next model."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn.functional import cross_entropy

from pfl_common.learning.method import Averaging
from pfl_common.methods import fedavg, load
from pfl_common.tensors.state import State
from tests.common.methods.toy import ask, build_client, build_data, build_spec, equal, gather

STATISTICS = {"encoder.1.1.running_mean", "encoder.1.1.running_var"}
AFFINE = {"encoder.1.1.weight", "encoder.1.1.bias"}
COUNTER = {"encoder.1.1.num_batches_tracked"}
LINEAR = {"encoder.0.weight", "encoder.0.bias", "head.weight", "head.bias"}


def close(**settings: object) -> State:
    """Two sites whose every number is 1 and 4; site b has three times the samples of a."""
    data = {"a": build_data("a", labels=(0, 1)), "b": build_data("b", labels=(0, 1, 2, 0, 1, 2))}
    clients = {site: build_client(fedavg, **settings) for site in data}
    for client, value in zip(clients.values(), (1.0, 4.0), strict=True):
        with torch.no_grad():
            for parameter in client.parameters():
                parameter.fill_(value)
    server = load("fedavg").build_server(build_spec("fedavg", settings))
    return server.close(server.start(build_client(fedavg), 3), gather(clients, data, ask()), ask()).state


@pytest.mark.parametrize(("aggregation", "expected"), [("samples", 3.25), ("uniform", 2.5)])
def test_how_sites_count(aggregation: str, expected: float) -> None:
    """(2*1 + 6*4) / 8 = 3.25 by samples, (1 + 4) / 2 = 2.5 if every site counts alike."""
    after = close(aggregation=aggregation)

    assert {expected} == {number for value in after.values() for number in value.reshape(-1).tolist()}


@pytest.mark.parametrize(
    ("policy", "travels"),
    [
        ("share_all", LINEAR | AFFINE | STATISTICS),
        ("local_stats", LINEAR | AFFINE),
        ("local_bn", LINEAR),
    ],
)
def test_what_travels_under_each_policy(policy: str, travels: set[str]) -> None:
    """What does not travel stays in the vault, and nothing is lost between them."""
    client = build_client(fedavg, norm=True, bn_policy=policy)

    assert travels == set(client.travels("train"))
    assert (LINEAR | AFFINE | STATISTICS | COUNTER) - travels == set(client.stays("train"))
    assert travels == client.report(build_data(), ask()).summed.keys()


def test_the_original_shares_statistics() -> None:
    """Without a word from the user, everything but the counters is averaged."""
    assert COUNTER == set(build_client(fedavg, norm=True).stays("train"))


def test_training_is_sgd_on_the_cross_entropy() -> None:
    """One batch of all samples, one step: w - lr * gradient."""
    client, data = build_client(fedavg, batch=100, lr=0.5), build_data()
    expected = copy.deepcopy(client)
    order = torch.cat([y for _, y in data.batches(ask(), 0, size=100)])
    x, y = next(data.batches(ask(), 0, size=100))
    loss = cross_entropy(expected.head(expected.encoder(x)), y)
    loss.backward()

    metrics = client.learn(data, ask())

    assert torch.equal(order, y)
    assert {"loss": loss.item()} == pytest.approx(metrics)
    for p, q in zip(expected.parameters(), client.parameters(), strict=True):
        torch.testing.assert_close(p.detach() - 0.5 * p.grad, q.detach())


def test_two_sites_alike_bring_the_model_of_either() -> None:
    """Equal data and equal chance: the mean is either site's upload, by samples or uniformly."""
    data, states = build_data(), []
    for aggregation in ("samples", "uniform"):
        clients = {site: build_client(fedavg, aggregation=aggregation) for site in "ab"}
        for client in clients.values():
            client.learn(data, ask())
        server = Averaging(clients["a"].settings, build_spec("fedavg"))
        start = server.start(build_client(fedavg), 3)
        states.append(server.close(start, gather(clients, dict.fromkeys("ab", data), ask()), ask()).state)
        assert not equal(start, states[-1])
        assert equal(State.of(clients["a"], start), states[-1])

    assert equal(*states)


def test_the_download_replaces_the_model() -> None:
    """Everybody gets the mean, new sites too; what was trained before is gone."""
    server, client = load("fedavg").build_server(build_spec("fedavg")), build_client(fedavg)
    state = server.start(build_client(fedavg), 3).apply(lambda value: value + 1)
    client.learn(build_data(), ask())

    client.receive(server.send(state, "a", ask(2, since=1)), ask(2, since=1))

    assert equal(state, State.of(client, state))
    assert equal(state, server.welcome(state))


def test_a_round_nobody_finished_changes_nothing() -> None:
    """Without a counted site, the next model is the last one."""
    server = load("fedavg").build_server(build_spec("fedavg"))
    state = server.start(build_client(fedavg), 3)

    assert equal(state, server.close(state, gather({}, {}, ask()), ask()).state)


def test_the_prediction_is_the_shared_head_s() -> None:
    """One model, one view."""
    client, x = build_client(fedavg), build_data().test.x

    assert torch.equal(client.head(client.encoder(x)), client(x))
    assert ["combined"] == list(client.views(x))


def test_presets() -> None:
    """The optimisers of the papers that compare with it, and what becomes of statistics in each."""
    method = load("fedavg")
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
    shared = {name for name, config in settled.items() if config.bn_policy == "share_all"}
    assert {"fedpick"} == shared
    assert "share_all" == method.settle({}).bn_policy
