"""The method that exists for its shape does what it says."""

from __future__ import annotations

import pytest

from pfl_common.halves import Participant
from pfl_common.methods import Method, fedavg
from pfl_common.tensors import State
from pfl_server.rehearsal import rehearse
from tests.common.methods.shapes import lg_shaped
from tests.common.methods.toy import ask, build_client, build_data, build_spec, equal, gather

DATA = {site: build_data(site) for site in "abc"}


def test_the_shape_is_read_like_any_method() -> None:
    """By the same names, with what it adds: its phases, each with its first round."""
    lg = Method.of(lg_shaped)

    assert ("lg_shaped", True, False) == (lg.name, lg.per_client, bool(lg.shows))
    assert [("full", 1), ("head", 3)] == lg.phases(lg.settle({}), 5)
    assert [("head", 1)] == lg.phases(lg.settle({"pretrain_rounds": 0}), 5)


@pytest.mark.parametrize(
    ("parcel", "expected"),
    [
        ("train/full/down", {("encoder", ""), ("head", "")}),
        ("train/head/down", {("encoder", "encoder"), ("head", "")}),
    ],
)
def test_a_rehearsal_sees_what_may_be_absent(parcel: str, expected: set[tuple[str, str]]) -> None:
    """One made-up site is enough to pin an encoder that may not come."""
    method = Method.of(lg_shaped)
    manifest = rehearse(method, build_spec(method.name), build_client(lg_shaped))[parcel]

    assert expected == {(entry.name.partition(".")[0], entry.group) for entry in manifest}


def lg_round(server: lg_shaped.Server, clients: dict[str, Participant], state: State, task: object) -> State:
    for site, client in clients.items():
        client.receive(server.send(state, site, task), task)
        client.learn(DATA[site], task)
    return server.close(state, gather(clients, DATA, task), task)


def lg_task(round: int, since: int) -> object:
    return ask(round, phase=lg_shaped.phase(lg_shaped.Config(), round, 5), since=since)


def test_the_encoder_stays_as_it_was_at_the_switch() -> None:
    """T_pre = 2: from round 3 on only the head is averaged, and every site has an encoder of its own."""
    clients = {site: build_client(lg_shaped, lr=0.3) for site in "abc"}
    server = Method.of(lg_shaped).build_server(build_spec("lg_shaped"))
    states = [server.start(clients["a"], 3)]
    for round in range(1, 5):
        states.append(lg_round(server, clients, states[-1], lg_task(round, round - 1)))

    assert equal(states[2].under("encoder"), states[4].under("encoder"))
    assert not equal(states[1].under("encoder"), states[2].under("encoder"))
    assert not equal(states[3].under("head"), states[4].under("head"))
    assert not equal(*(State.of(clients[site]).under("encoder") for site in "ab"))


@pytest.mark.parametrize(
    ("round", "since", "expected"),
    [
        (1, 0, ["encoder", "head"]),
        (2, 1, ["encoder", "head"]),
        (3, 2, ["encoder", "head"]),
        (5, 1, ["encoder", "head"]),
        (5, 0, ["encoder", "head"]),
        (4, 3, ["head"]),
        (5, 3, ["head"]),
    ],
)
def test_who_gets_the_encoder(round: int, since: int, expected: list[str]) -> None:
    """Whoever has not been there since the switch; the others keep theirs."""
    server = Method.of(lg_shaped).build_server(build_spec("lg_shaped"))
    state = server.start(build_client(lg_shaped), 3)

    assert expected == list(server.send(state, "a", lg_task(round, since)).branches())
    assert equal(state, server.welcome(state))


def test_what_travels_in_each_phase() -> None:
    """All of it with its statistics, then the head; what does not travel lies in the vault."""
    client = build_client(lg_shaped, norm=True)
    counter = {"encoder.1.1.num_batches_tracked"}

    assert counter == set(client.stays("full"))
    assert {"head.weight", "head.bias"} == set(client.travels("head"))
    assert {name for name in client.state_dict() if name.startswith("encoder.")} == set(client.stays("head"))


def test_a_run_that_never_switches_is_fedavg() -> None:
    """With T_pre = T the two have the same state after every round, bit by bit."""
    states = []
    for module, settings, phase in ((lg_shaped, {"pretrain_rounds": 5}, "full"), (fedavg, {}, "train")):
        clients = {site: build_client(module, lr=0.3, **settings) for site in "abc"}
        name = module.__name__.rpartition(".")[2]
        server = Method.of(module).build_server(build_spec(name, settings))
        state = server.start(clients["a"], 3)
        for round in (1, 2, 3):
            state = lg_round(server, clients, state, ask(round, phase=phase, since=round - 1))
        states.append(state)

    assert equal(*states)
