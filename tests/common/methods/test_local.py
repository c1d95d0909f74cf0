"""Local: every site on its own, and nothing crosses."""

from __future__ import annotations

from pfl_common.learning.method import Averaging
from pfl_common.methods import fedavg, load, local
from pfl_common.tensors.state import State
from tests.common.methods.toy import ask, build_client, build_data, build_spec, equal, gather


def test_nothing_travels_and_everything_stays() -> None:
    """Neither as a sum nor shown; the vault holds the whole model, counters included."""
    client = build_client(local, norm=True)
    up = client.report(build_data(), ask())

    assert set() == set(client.travels("train"))
    assert set(client.state_dict()) == set(client.stays("train"))
    assert ({}, {}) == (dict(up.summed), dict(up.shown))


def test_the_coordinator_has_nothing() -> None:
    """Before a round, after it, and for a site that is new."""
    server = load("local").build_server(build_spec("local"))
    state = server.start(build_client(local), 3)
    after = server.close(state, gather({"a": build_client(local)}, {"a": build_data()}, ask()), ask()).state

    assert [0, 0, 0, 0] == [
        len(s) for s in (state, after, server.welcome(state), server.send(state, "a", ask()))
    ]
    assert local.Server is Averaging


def test_training_goes_on_where_it_stopped() -> None:
    """A download changes nothing: two rounds are two times E epochs of the same model."""
    client, alone, data = build_client(local), build_client(local), build_data()
    for round in (1, 2):
        client.receive(State(), ask(round, since=round - 1))
        client.learn(data, ask(round, since=round - 1))
        alone.learn(data, ask(round))

    assert equal(State.of(alone), State.of(client))
    assert not equal(State.of(build_client(local)), State.of(client))


def test_a_federation_of_one_learns_the_same() -> None:
    """One site's FedAvg, with everything shared, is that site on its own."""
    client, shared, data = build_client(local), build_client(fedavg), build_data()
    for round in (1, 2):
        client.learn(data, ask(round))
        shared.learn(data, ask(round))

    assert equal(State.of(client), State.of(shared))


def test_it_is_measured_after_training() -> None:
    """There is no download before which one could measure."""
    assert "post" == load("local").settle({}).eval_point


def test_presets() -> None:
    """The optimisers of the papers that compare with it."""
    method = load("local")
    settled = {name: method.settle(preset) for name, preset in method.presets.items()}
    optimisers = {n: (c.lr, c.momentum, c.batch, c.epochs, c.drop_last) for n, c in settled.items()}
    expected = {
        "paper": (0.01, 0.5, 256, 1, False),
        "dualfed": (0.01, 0.5, 256, 1, False),
        "fedpick": (0.01, 0.5, 64, 1, False),
        "fedcac": (0.1, 0.0, 100, 5, False),
    }
    assert expected == optimisers
    assert {"post"} == {config.eval_point for config in settled.values()}
