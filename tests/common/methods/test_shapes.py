"""The two methods that exist for their shape do what they say."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from pfl_common.halves import Participant
from pfl_common.methods import Method, fedavg
from pfl_common.run import Kind
from pfl_common.tensors import State, load_into
from pfl_server.rehearsal import rehearse
from tests.common.methods.shapes import fomo_shaped, lg_shaped
from tests.common.methods.toy import (
    Held,
    ask,
    build_client,
    build_data,
    build_spec,
    collect,
    equal,
    gather,
)

DATA = {site: build_data(site) for site in "abc"}


def fomo_server(**settings: int) -> fomo_shaped.Server:
    return Method.of(fomo_shaped).build_server(build_spec("fomo_shaped", settings))


def shown(client: Participant, fill: float, liked: list[float]) -> State:
    model = State.of(client, client.shared()).apply(lambda value: torch.full_like(value, fill))
    return model.within("model") | {"liked": torch.tensor(liked)}


def fomo_state(server: fomo_shaped.Server) -> State:
    """Three sites whose models are all 1, all 3 and all 8."""
    client = build_client(fomo_shaped)
    models = zip("abc", (1.0, 3.0, 8.0), strict=True)
    reports = {site: shown(client, fill, [0.0, 0.0]) for site, fill in models}
    return server.close(server.start(client, 3), collect(reports), ask())


def merge(offers: list[State]) -> State:
    return State({f"slot{slot}.{name}": t for slot, offer in enumerate(offers) for name, t in offer.items()})


def fills(down: State) -> dict[str, set[float]]:
    return {
        slot: {v for t in branch.values() for v in t.reshape(-1).tolist()}
        for slot, branch in down.branches().items()
    }


def test_the_methods_are_read_like_any_other() -> None:
    """By the same names, with what they add."""
    fomo, lg = Method.of(fomo_shaped), Method.of(lg_shaped)

    assert [("fomo_shaped", True, True), ("lg_shaped", True, False)] == [
        (method.name, method.per_client, bool(method.shows)) for method in (fomo, lg)
    ]
    assert [("train", 1)] == fomo.phases(fomo.settle({}), 5)
    assert [("full", 1), ("head", 3)] == lg.phases(lg.settle({}), 5)
    assert [("head", 1)] == lg.phases(lg.settle({"pretrain_rounds": 0}), 5)


def test_a_new_site_gets_the_mean_in_every_slot() -> None:
    """Before anybody has sent anything it is the first model, afterwards (1 + 3 + 8) / 3 = 4."""
    server, client = fomo_server(), build_client(fomo_shaped)
    start = server.start(client, 3)

    assert equal(State.of(client, client.shared()), server.welcome(start).under("slot0"))
    assert {"slot0": {4.0}, "slot1": {4.0}} == fills(server.welcome(fomo_state(server)))


def test_slots_hold_the_best_liked() -> None:
    """A site likes itself at first, the others alike; then its own answers decide."""
    server = fomo_server()
    state = fomo_state(server)
    assert {"slot0": {1.0}, "slot1": {3.0}} == fills(server.send(state, "a", ask(2, since=1)))
    assert {"slot0": {8.0}, "slot1": {1.0}} == fills(server.send(state, "c", ask(2, since=1)))

    client = build_client(fomo_shaped)
    again = server.close(state, collect({"a": shown(client, 2.0, [-2.0, -0.5])}), ask(2))

    assert {"a.a": -1.0, "a.b": -0.5} == {name: t.item() for name, t in again.under("liking").items()}
    assert {"slot0": {8.0}, "slot1": {3.0}} == fills(server.send(again, "a", ask(3, since=2)))


def test_a_slot_nobody_fills_is_absent() -> None:
    """One site has sent, two slots are there: no name is new, one branch is missing."""
    server, client = fomo_server(), build_client(fomo_shaped)
    state = server.close(server.start(client, 3), collect({"b": shown(client, 3.0, [0.0, 0.0])}), ask())
    down = server.send(state, "b", ask(2, since=1))

    assert {"slot0": {3.0}} == fills(down)
    assert down.keys() < server.welcome(state).keys()


def test_updates_are_read_only_when_they_are_sent() -> None:
    """A reply reads the two models in its slots and no other."""
    server, client = fomo_server(), build_client(fomo_shaped)
    held = {site: Held(site, shown(client, 1.0, [0.0, 0.0])) for site in "abc"}
    state = State(server.start(client, 3), kept=held)
    server.send(state, "a", ask(2, since=1))

    assert {"a": 1, "b": 1, "c": 0} == {site: update.reads for site, update in held.items()}


def loss_of(model: State, site: str) -> float:
    part = DATA[site].validation
    features = torch.tanh(part.x @ model["encoder.0.weight"].T + model["encoder.0.bias"])
    scores = features @ model["head.weight"].T + model["head.bias"]
    return float(-torch.log_softmax(scores, 1)[range(len(part)), part.y].mean())


def trained(epochs: int) -> State:
    client = build_client(fedavg, lr=0.3, epochs=epochs)
    client.learn(DATA["a"], ask())
    return State.of(client)


def test_a_site_mixes_what_lowers_its_loss() -> None:
    """q = gain / (distance + 1e-5), clipped and normed, worked out with plain loops; two of three help."""
    client = build_client(fomo_shaped, lr=1e-300, slots=3)
    load_into(client.old, State.of(client, client.shared()))
    names = sorted(client.shared())
    before = State.of(client, names)
    offers = [trained(3), before.apply(lambda t: t + 3), trained(9)]

    gains = [loss_of(before, "a") - loss_of(offer, "a") for offer in offers]
    gaps = [sum(float(((offer[n] - before[n]) ** 2).sum()) for n in names) ** 0.5 for offer in offers]
    liked = [gain / (gap + 1e-5) for gain, gap in zip(gains, gaps, strict=True)]
    wanted = [max(0.0, q) for q in liked]
    assert [True, False, True] == [q > 0 for q in liked]

    client.receive(merge(offers), ask(2, since=1))
    client.learn(DATA["a"], ask(2, since=1))

    up = client.report(DATA["a"], ask(2, since=1)).shown
    assert liked == pytest.approx(up["liked"].tolist(), abs=1e-5)
    for name in names:
        mix = sum(w / sum(wanted) * offer[name] for w, offer in zip(wanted, offers, strict=True))
        torch.testing.assert_close(mix, up[f"model.{name}"])
    assert equal(up.under("model"), State.of(client.old, names))


@pytest.mark.parametrize(
    ("module", "parcel", "expected"),
    [
        (fomo_shaped, "train/train/down", {("slot0", "slot0"), ("slot1", "slot1")}),
        (lg_shaped, "train/full/down", {("encoder", ""), ("head", "")}),
        (lg_shaped, "train/head/down", {("encoder", "encoder"), ("head", "")}),
    ],
)
def test_a_rehearsal_sees_what_may_be_absent(
    module: ModuleType, parcel: str, expected: set[tuple[str, str]]
) -> None:
    """One made-up site is enough to pin every slot, each optional, and an encoder that may not come."""
    method = Method.of(module)
    manifest = rehearse(method, build_spec(method.name), build_client(module))[parcel]

    assert expected == {(entry.name.partition(".")[0], entry.group) for entry in manifest}


def test_a_site_nobody_helps_keeps_its_model() -> None:
    """Every offer is worse, so it trains on from what it had."""
    client = build_client(fomo_shaped, lr=1e-300)
    load_into(client.old, State.of(client, client.shared()))
    own = State.of(client)
    client.receive(merge([State.of(client, client.shared()).apply(lambda t: t + 3)]), ask(2, since=1))
    client.learn(DATA["a"], ask(2, since=1))

    assert equal(own, State.of(client))
    assert client.report(DATA["a"], ask(2, since=1)).shown["liked"][0] < 0


def test_offers_are_for_training_only() -> None:
    """A site is measured with its own model; a new one starts from what it got."""
    client, server = build_client(fomo_shaped), fomo_server()
    own, state = State.of(client), fomo_state(server)
    client.receive(server.send(state, "a", ask(2, since=1)), ask(2, kind=Kind.EVALUATE, since=1))
    assert equal(own, State.of(client))

    client.receive(server.welcome(state), ask(2))

    assert {4.0} == {v for t in State.of(client, client.shared()).values() for v in t.reshape(-1).tolist()}


def test_a_run_of_sites_that_show_their_models() -> None:
    """Three rounds through both halves: every site's own model is kept, and models part."""
    method, server = Method.of(fomo_shaped), fomo_server()
    clients = {site: build_client(fomo_shaped, lr=0.3) for site in "abc"}
    state = server.start(clients["a"], 3)
    for round in (1, 2, 3):
        task = ask(round, since=round - 1)
        for site, client in clients.items():
            client.receive(server.welcome(state) if round == 1 else server.send(state, site, task), task)
            client.learn(DATA[site], task)
        state = server.close(state, gather(clients, DATA, task), task)

    assert method.per_client
    assert ["a", "b", "c"] == sorted(state.kept)
    assert any(name.startswith("liking.a.") for name in state)
    assert not equal(state.kept["a"].load(), state.kept["b"].load())


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
