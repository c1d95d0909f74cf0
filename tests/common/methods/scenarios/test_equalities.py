"""Methods that become one another where the specification says so, bit by bit, round after round.

Both play the same small federation from the same first values, under one batch-norm policy. Here are FedProx and
Ditto that pull nothing, LG-FedAvg that never switches, FedPHP that neither blends nor teaches, and two sites
alike in every method whose sites are summed. What else the specification's list of invariants asks for:

- DualFed: `test_dualfed.py`, what each stage leaves alone and what is shared of both heads.
- FedCP: `test_fedcp.py`, what stands still in a round, FedPer without its modules, no pull without weight, the
  mean of both heads that is sent.
- FedCAC: `test_fedcac.py`, tau = 0 is FedAvg, tau = 1 alone is local, who is in a circle, both places to merge.
- GPFL: `test_gpfl.py`, what stands still in a round, FedPer without valve and embeddings.
- FedPick: `test_fedpick.py`, masks of 0 and 1, evaluation without noise, FedBN without the selection.
- FedBN without batch norm: `test_fedbn.py`. FedRep without epochs for the head: `test_fedrep.py`.
- A site that was stopped, and an update that was lost: `conformance`, every method.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
import torch

from pfl_common import methods
from pfl_common.errors import SettingError
from pfl_common.learning.method import Participant
from pfl_common.methods import Method, load
from pfl_common.randomness import generators
from pfl_common.spec.run import Json
from pfl_common.tensors.state import State, load_into
from tests.common.methods.toy import ask, build_backbone, build_data, build_spec, equal, gather

BASE: dict[str, Json] = {"lr": 0.2, "batch": 3, "epochs": 2}
LABELS = {"a": (0, 1, 2, 0, 1, 0, 2), "b": (1, 1, 2, 0, 2), "c": (2, 0, 0, 1, 0, 2, 1, 1, 0)}
"""Sites of 7, 5 and 9 samples: batches are cut, orders and weights differ."""
DATA = {site: build_data(site, labels=labels) for site, labels in LABELS.items()}
ROUNDS = 3

each_policy = pytest.mark.parametrize("policy", ["share_all", "local_stats", "local_bn"])


@dataclass(frozen=True)
class Played:
    """All that three rounds leave."""

    first: State
    states: list[State]
    """What is shared after each round."""
    sites: list[dict[str, State]]
    """All that each site has after each round's training."""


def play(name: str, settings: Mapping[str, Json], first: State | None = None) -> Played:
    """Three rounds of three sites, from first values that follow from the seed or are given."""
    method = load(name)
    spec = build_spec(name, {**BASE, **settings})
    template = build(method, dict(settings), first)
    clients = {site: copy.deepcopy(template) for site in DATA}
    server = method.build_server(spec)
    state, played = server.start(template, spec.seed), Played(copied(State.of(template)), [], [])
    for number in range(1, ROUNDS + 1):
        phase = method.phase(method.settle(spec.settings), number, 5)
        task = ask(number, phase=phase, since=number - 1)
        for site, client in clients.items():
            client.receive(server.send(state, site, task) if task.since else server.welcome(state), task)
            client.learn(DATA[site], task)
        state = server.close(state, gather(clients, DATA, task), task).state
        played.states.append(copied(state))
        played.sites.append({site: copied(State.of(client)) for site, client in clients.items()})
    return played


def build(method: Method, settings: dict[str, Json], first: State | None = None) -> Participant:
    """A site's half with a batch norm in its encoder."""
    client = method.build_client(build_spec(method.name, {**BASE, **settings}), build_backbone(norm=True))
    generators.initialise(client, 3)
    load_into(client, first or State())
    return client


def copied(state: State) -> State:
    """The values as they are now."""
    return state.apply(torch.clone)


def assert_alike(one: Played, other: Played, *, shared: bool = True) -> None:
    """What the first has, the other has too, after every round; and it has moved."""
    for number in range(ROUNDS):
        if shared:
            assert equal(one.states[number], other.states[number]), f"after round {number + 1}"
        for site, mine in one.sites[number].items():
            assert equal(mine, other.sites[number][site].only(mine)), f"{site} after round {number + 1}"
            assert not equal(mine, one.first)


@each_policy
def test_fedprox_that_pulls_nothing_is_fedavg(policy: str) -> None:
    """mu = 0."""
    settings: dict[str, Json] = {"bn_policy": policy}
    average = play("fedavg", settings)
    assert_alike(average, play("fedprox", {**settings, "mu": 0}, average.first))
    assert not equal(average.states[-1], play("fedprox", {**settings, "mu": 1}).states[-1])


@each_policy
def test_ditto_trains_fedavg_beside_the_personal_model(policy: str) -> None:
    """Whatever the pull, the model that travels is FedAvg's."""
    settings: dict[str, Json] = {"bn_policy": policy}
    average = play("fedavg", settings)
    assert_alike(average, play("ditto", {**settings, "mu": 1}, average.first))


def test_ditto_that_pulls_nothing_trains_alone() -> None:
    """mu = 0: the personal model is that of a site without any federation."""
    alone = play("local", {"epochs": 2})
    ditto = play("ditto", {"bn_policy": "local_stats", "mu": 0, "personal_epochs": 2, "epochs": 1})
    own = Played(
        ditto.first,
        ditto.states,
        [{s: v.under("personal") for s, v in sites.items()} for sites in ditto.sites],
    )
    assert_alike(alone, own, shared=False)


@each_policy
def test_lgfedavg_that_never_switches_is_fedavg(policy: str) -> None:
    """T_pre = T."""
    settings: dict[str, Json] = {"bn_policy": policy}
    average = play("fedavg", settings)
    assert_alike(average, play("lgfedavg", {**settings, "pretrain_rounds": 5}, average.first))
    assert not equal(average.states[-1], play("lgfedavg", {**settings, "pretrain_rounds": 1}).states[-1])


def test_fedphp_that_neither_blends_nor_teaches_is_fedavg() -> None:
    """mu = 0 and lambda = 0."""
    settings: dict[str, Json] = {"bn_policy": "local_stats"}
    average = play("fedavg", settings)
    assert_alike(average, play("fedphp", {**settings, "mu": 0, "lambda": 0}, average.first))


def weighs(name: str) -> bool:
    """Whether a method's sites may count by samples or alike, in a sum."""
    method = load(name)
    try:
        method.settle({"aggregation": "uniform"})
        method.settle({"aggregation": "samples"})
    except SettingError:
        return False
    return not method.shows


@pytest.mark.parametrize("name", [name for name in methods.names() if weighs(name)])
def test_two_sites_alike_bring_what_either_sends(name: str) -> None:
    """Equal data and equal chance: the mean is either site's upload, by samples or uniformly."""
    states = []
    for aggregation in ("samples", "uniform"):
        settings: dict[str, Json] = {"aggregation": aggregation}
        method, clients = load(name), {site: build(load(name), settings) for site in "xy"}
        task = ask(phase=method.phase(method.settle(settings), 1, 5))
        server = method.build_server(build_spec(name, {**BASE, **settings}))
        start = server.start(clients["x"], 3)
        for client in clients.values():
            client.receive(server.welcome(start), task)
            client.learn(DATA["a"], task)
        states.append(server.close(start, gather(clients, dict.fromkeys("xy", DATA["a"]), task), task).state)
        sent = clients["x"].report(DATA["a"], task).summed
        assert all(torch.equal(states[-1][n], term.value) for n, term in sent.items() if n in states[-1])
        assert set(states[-1]) & set(sent) and not equal(start, states[-1])
    assert equal(*states)
