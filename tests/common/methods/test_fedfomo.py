"""FedFomo: who is sent whose model, how a site mixes what helps it, and what it answers; worked out by hand."""

from __future__ import annotations

import pytest
import torch

from pfl_common.errors import SettingError, TooFewSamples
from pfl_common.learning.held_out import hold_out
from pfl_common.learning.method import LocalData, Participant
from pfl_common.methods import Method, fedavg, fedfomo
from pfl_common.spec.run import Json, Kind
from pfl_common.tensors.state import State, load_into
from pfl_server.run.rehearsal import rehearse
from tests.common.methods.toy import ask, build_client, build_data, build_spec, collect, equal, gather

torch.set_num_threads(1)

DATA = {site: build_data(site) for site in "abc"}


def build_server(**settings: Json) -> fedfomo.Server:
    """The coordinator's half."""
    return Method.of(fedfomo).build_server(build_spec("fedfomo", settings))


def shown(fill: float, liked: list[float]) -> State:
    """An update of a site whose numbers are all equal."""
    client = build_client(fedfomo)
    model = State.of(client, client.sent()).apply(lambda value: torch.full_like(value, fill))
    return model.within("model") | {"liked": torch.tensor(liked)}


def three_models(server: fedfomo.Server) -> State:
    """Sites whose models are all 1, all 3 and all 8."""
    models = zip("abc", (1.0, 3.0, 8.0), strict=True)
    reports = {site: shown(fill, [0.0] * server.config.M) for site, fill in models}
    return server.close(server.start(build_client(fedfomo), 3), collect(reports), ask()).state


def fills(down: State) -> dict[str, set[float]]:
    """The numbers in each slot."""
    return {
        slot: {v for t in branch.values() for v in t.reshape(-1).tolist()}
        for slot, branch in down.branches().items()
    }


# The coordinator


def test_a_new_site_gets_the_mean() -> None:
    """At first the first model in every slot, so that each is known; afterwards (1 + 3 + 8) / 3 = 4, once."""
    server, client = build_server(M=2), build_client(fedfomo)
    start = server.start(client, 3)
    first = server.welcome(start)
    assert ["slot0", "slot1"] == list(first.branches())
    assert all(equal(State.of(client, client.sent()), slot) for slot in first.branches().values())
    assert {"slot0": {4.0}} == fills(server.welcome(three_models(server)))


def test_slots_hold_the_best_liked() -> None:
    """A site likes itself at first, the others alike; then its own answers decide, added up."""
    server = build_server(M=2)
    state = three_models(server)
    assert {"slot0": {1.0}, "slot1": {3.0}} == fills(server.send(state, "a", ask(2, since=1)))
    assert {"slot0": {8.0}, "slot1": {1.0}} == fills(server.send(state, "c", ask(2, since=1)))

    again = server.close(state, collect({"a": shown(2.0, [-2.0, -0.5])}), ask(2)).state
    assert {"a.a": -1.0, "a.b": -0.5} == {
        n: t.item() for n, t in again.under("liking").items() if n[0] == "a"
    }
    assert {"slot0": {8.0}, "slot1": {3.0}} == fills(server.send(again, "a", ask(3, since=2)))

    later = server.close(again, collect({"a": shown(2.0, [0.25, 0.5])}), ask(3)).state
    assert {"a.a": -1.0, "a.b": 0.0, "a.c": 0.25} == {
        n: t.item() for n, t in later.under("liking").items() if n[0] == "a"
    }


@pytest.mark.parametrize(("M", "expected"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_how_many_are_sent(M: int, expected: int) -> None:
    """M, or as many as there are."""
    server = build_server(M=M)
    assert expected == len(server.send(three_models(server), "a", ask(2, since=1)).branches())


def test_only_what_is_sent_is_read() -> None:
    """Closing reads each new update once, a reply the models in its slots."""
    server = build_server(M=2)
    arrivals = collect({site: shown(1.0, [0.0, 0.0]) for site in "abc"})
    state = server.close(server.start(build_client(fedfomo), 3), arrivals, ask()).state
    assert [1, 1, 1] == [arrivals.shown[site].reads for site in "abc"]
    server.send(state, "a", ask(2, since=1))
    assert [2, 2, 1] == [arrivals.shown[site].reads for site in "abc"]


def crowd(server: fedfomo.Server) -> State:
    """Forty sites that have sent a model."""
    client = build_client(fedfomo)
    reports = {f"s{number:02d}": shown(float(number), [0.0] * server.config.M) for number in range(40)}
    return server.close(server.start(client, 3), collect(reports), ask()).state


def test_exploration_replaces_entries_and_fades() -> None:
    """With epsilon 0.3 a part of the entries is others' in round 1, fewer later, none from round 7 on."""
    server, settled = build_server(epsilon=0.3), build_server()
    state = crowd(server)
    strange = {}
    for number in (1, 4, 7):
        pairs = [
            (server.peers(state, s, number), settled.peers(state, s, number)) for s in sorted(state.kept)
        ]
        strange[number] = sum(peer not in usual for peers, usual in pairs for peer in peers)
        assert all(len(set(peers)) == 5 for peers, _ in pairs), "nobody is in two slots"
    # Of 200 entries 60, 30 and 0 are to be expected; the draws are fixed by the run's seed.
    assert 40 <= strange[1] <= 80
    assert 15 <= strange[4] <= 45
    assert 0 == strange[7]
    sure = build_server(epsilon=1)
    assert all(not set(sure.peers(state, s, 1)) & set(settled.peers(state, s, 1)) for s in state.kept)


def test_exploration_is_the_same_when_it_is_asked_again() -> None:
    """It follows from run, site and round: a coordinator that was started again sends, and credits, the same."""
    server, state = build_server(epsilon=1), crowd(build_server(epsilon=1))
    peers = server.peers(state, "s07", 2)
    assert peers == build_server(epsilon=1).peers(state, "s07", 2)
    assert peers != server.peers(state, "s08", 2)
    assert peers != server.peers(state, "s07", 1)
    sent = fills(server.send(state, "s07", ask(2, since=1)))
    assert {f"slot{slot}": {float(peer[1:])} for slot, peer in enumerate(peers)} == sent
    closed = server.close(state, collect({"s07": shown(1.0, [1.0, 2.0, 3.0, 4.0, 5.0])}), ask(2)).state
    before = {peer: float(state.get(f"liking.s07.{peer}", torch.tensor(0.0))) for peer in peers}
    assert [1.0, 2.0, 3.0, 4.0, 5.0] == [float(closed[f"liking.s07.{peer}"]) - before[peer] for peer in peers]


def test_nobody_is_left_to_explore() -> None:
    """All models are in the slots already: they stay there."""
    server = build_server(epsilon=1, M=3)
    assert {"a", "b", "c"} == set(server.peers(three_models(server), "a", 1))


def test_answers_are_bounded() -> None:
    """A site that claims the largest number there is cannot make sums infinite."""
    server = build_server(M=1)
    state = three_models(server)
    for number in (2, 3, 4):
        state = server.close(state, collect({"a": shown(1.0, [3e38])}), ask(number)).state
    assert 3e9 == pytest.approx(float(state["liking.a.a"]), rel=1e-6)


def test_what_is_told_of_a_round() -> None:
    """Of two sites one was helped by two models, the other by none."""
    server = build_server(M=2)
    state = three_models(server)
    reports = {"a": shown(1.0, [0.5, 0.1]), "b": shown(3.0, [-1.0, 0.0])}
    told = server.close(state, collect(reports), ask(2)).numbers
    assert {"helpful/mean": 1.0, "helpful/least": 0, "helpful/most": 2} == told


# The site


def golden_client(monkeypatch: pytest.MonkeyPatch, losses: dict[float, float]) -> fedfomo.Client:
    """A site whose model of four numbers has a given loss for each value of the first of them."""
    client = build_client(fedfomo, lr=1e-300, M=3)

    def look_up(_: Participant, values: State, __: object) -> float:
        return losses[round(float(values["head.bias"][0]), 6)]

    monkeypatch.setattr(fedfomo, "loss_with", look_up)
    return client


def moved(client: fedfomo.Client, step: float) -> State:
    """The model of zeros, one number of which is moved."""
    zero = State.of(client, client.sent()).apply(torch.zeros_like)
    return zero | {"head.bias": torch.tensor([step, 0.0, 0.0])}


@pytest.mark.golden("fedfomo", item=10)
def test_golden_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses 1 and (0.7, 1.2, 0.9), distances (1, 2, 0.5): q = (0.3, -0.1, 0.2), weights (0.6, 0, 0.4)."""
    client = golden_client(monkeypatch, {0.0: 1.0, 1.0: 0.7, 2.0: 1.2, 0.5: 0.9})
    load_into(client.old, moved(client, 0.0))
    offers = [moved(client, step).within(f"slot{slot}") for slot, step in enumerate((1.0, 2.0, 0.5))]
    client.receive(offers[0] | offers[1] | offers[2], ask(2, since=1))
    client.learn(DATA["a"], ask(2, since=1))
    up = client.report(DATA["a"], ask(2, since=1)).shown
    assert pytest.approx([0.3, -0.1, 0.2], abs=1e-5) == up["liked"].tolist()
    assert 0.6 * 1.0 + 0.4 * 0.5 == pytest.approx(float(up["model.head.bias"][0]), abs=1e-5)
    assert equal(up.under("model"), State.of(client.old, client.sent()))


@pytest.mark.golden("fedfomo", item=10)
def test_a_model_that_is_where_the_last_mix_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """At distance 0 the gain is divided by 1e-5 and not by nothing; the loss here is another one each time."""
    told = iter([1.0, 0.75])
    client = build_client(fedfomo, lr=1e-300, M=3)
    monkeypatch.setattr(fedfomo, "loss_with", lambda *_: next(told))
    load_into(client.old, moved(client, 0.0))
    client.receive(moved(client, 0.0).within("slot0"), ask(2, since=1))
    client.learn(DATA["a"], ask(2, since=1))
    assert (
        pytest.approx([0.25 / 1e-5, 0.0, 0.0], rel=1e-6)
        == client.report(DATA["a"], ask()).shown["liked"].tolist()
    )


@pytest.mark.parametrize("broken", [float("inf"), float("nan")])
def test_a_model_without_a_loss_helps_nobody_and_stops_nobody(
    broken: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers large enough make it infinite or none at all. The answer stays a number, or it could not be sent."""
    client = golden_client(monkeypatch, {0.0: 1.0, 1.0: 0.7, 2.0: broken})
    load_into(client.old, moved(client, 0.0))
    client.receive(moved(client, 1.0).within("slot0") | moved(client, 2.0).within("slot1"), ask(2, since=1))
    client.learn(DATA["a"], ask(2, since=1))
    up = client.report(DATA["a"], ask()).shown
    assert [pytest.approx(0.3, abs=1e-5), -fedfomo.MOST_LIKED, 0.0] == up["liked"].tolist()
    assert pytest.approx(1.0) == float(up["model.head.bias"][0])


@pytest.mark.parametrize("broken", [float("inf"), float("nan")])
def test_a_site_whose_own_mix_broke_takes_what_works(broken: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each model with a loss is as good as can be, one without is worth what its own is: nothing."""
    client = golden_client(monkeypatch, {0.0: broken, 1.0: 0.7, 2.0: broken, 3.0: 0.5})
    load_into(client.old, moved(client, 0.0))
    offers = [moved(client, step).within(f"slot{slot}") for slot, step in enumerate((1.0, 2.0, 3.0))]
    client.receive(offers[0] | offers[1] | offers[2], ask(2, since=1))
    client.learn(DATA["a"], ask(2, since=1))
    up = client.report(DATA["a"], ask()).shown
    assert [fedfomo.MOST_LIKED, 0.0, fedfomo.MOST_LIKED] == up["liked"].tolist()
    assert pytest.approx(2.0) == float(up["model.head.bias"][0])


def loss_of(model: State, data: LocalData) -> float:
    """The cross entropy of a toy network on the samples a site holds out, in plain steps."""
    part = hold_out(data, 0.5)[1]
    features = torch.tanh(part.x @ model["encoder.0.weight"].T + model["encoder.0.bias"])
    scores = features @ model["head.weight"].T + model["head.bias"]
    return float(-torch.log_softmax(scores, 1)[range(len(part)), part.y].mean())


def trained(epochs: int) -> State:
    """A model that has learnt for a while."""
    client = build_client(fedavg, lr=0.3, epochs=epochs)
    client.learn(DATA["a"], ask())
    return State.of(client)


def test_a_site_mixes_what_lowers_its_loss() -> None:
    """The same with real losses, on the samples held out; two of three models help."""
    client = build_client(fedfomo, lr=1e-300, M=3, val_ratio=0.5)
    load_into(client.old, State.of(client, client.sent()))
    names = sorted(client.sent())
    before = State.of(client, names)
    offers = [trained(3), before.apply(lambda t: t + 3), trained(9)]
    gains = [loss_of(before, DATA["a"]) - loss_of(offer, DATA["a"]) for offer in offers]
    gaps = [sum(float(((offer[n] - before[n]) ** 2).sum()) for n in names) ** 0.5 for offer in offers]
    liked = [gain / (gap + 1e-5) for gain, gap in zip(gains, gaps, strict=True)]
    wanted = [max(0.0, q) for q in liked]
    assert [True, False, True] == [q > 0 for q in liked]

    down = State({f"slot{slot}.{n}": t for slot, offer in enumerate(offers) for n, t in offer.items()})
    client.receive(down, ask(2, since=1))
    client.learn(DATA["a"], ask(2, since=1))

    up = client.report(DATA["a"], ask(2, since=1)).shown
    assert liked == pytest.approx(up["liked"].tolist(), abs=1e-5)
    for name in names:
        mix = sum(w / sum(wanted) * offer[name] for w, offer in zip(wanted, offers, strict=True))
        torch.testing.assert_close(mix, up[f"model.{name}"])


def test_a_site_nobody_helps_keeps_its_model() -> None:
    """Every offer is worse, so it trains on from what it had."""
    client = build_client(fedfomo, lr=1e-300)
    load_into(client.old, State.of(client, client.sent()))
    own = State.of(client)
    worse = State.of(client, client.sent()).apply(lambda t: t + 3)
    client.receive(worse.within("slot0"), ask(2, since=1))
    client.learn(DATA["a"], ask(2, since=1))
    assert equal(own, State.of(client))
    assert client.report(DATA["a"], ask(2, since=1)).shown["liked"][0] < 0


def test_offers_are_for_training_only() -> None:
    """A site is measured with its own model; a new one starts from what it got."""
    client, server = build_client(fedfomo), build_server()
    own, state = State.of(client), three_models(server)
    for kind in (Kind.EVALUATE, Kind.FINISH):
        down = server.send(state, "a", ask(2, kind=kind, since=1))
        assert {} == dict(down), "and is sent nothing that it does not need"
        client.receive(down, ask(2, kind=kind, since=1))
        assert equal(own, State.of(client))
    client.receive(server.welcome(state), ask(2))
    assert {4.0} == {v for t in State.of(client, client.sent()).values() for v in t.reshape(-1).tolist()}


def test_what_is_held_out_trains_nothing() -> None:
    """The model is what `fedavg` makes of the other samples alone, bit by bit."""
    ours, theirs = build_client(fedfomo, val_ratio=0.5), build_client(fedavg)
    rest = hold_out(DATA["a"], 0.5)[0]
    ours.learn(DATA["a"], ask())
    theirs.learn(rest, ask())
    assert 4 == len(rest.train)
    assert all(torch.equal(value, State.of(ours)[name]) for name, value in State.of(theirs).items())


def test_one_sample_is_too_few() -> None:
    """Nothing could be held out: the site declines the round."""
    with pytest.raises(TooFewSamples, match="1 training sample"):
        build_client(fedfomo).learn(build_data(labels=(0,)), ask())


@pytest.mark.parametrize(
    ("policy", "absent"),
    [
        ("share_all", set()),
        ("local_stats", {"running_mean", "running_var"}),
        ("local_bn", {"running_mean", "running_var", "weight", "bias"}),
    ],
)
def test_what_is_shown(policy: str, absent: set[str]) -> None:
    """The model less what the policy keeps; everything lies in the vault, nothing is summed."""
    client = build_client(fedfomo, norm=True, bn_policy=policy)
    up = client.report(DATA["a"], ask())
    floating = {
        n for n, v in client.state_dict().items() if v.is_floating_point() and not n.startswith("old.")
    }
    hidden = {f"encoder.1.1.{name}" for name in absent}
    assert {f"model.{name}" for name in floating - hidden} | {"liked"} == set(up.shown)
    assert {} == dict(up.summed)
    assert client.state_dict().keys() == set(client.stays("train"))


def test_a_rehearsal_sees_every_slot() -> None:
    """One made-up site is enough to pin all slots, each of which may be absent."""
    method = Method.of(fedfomo)
    manifest = rehearse(method, build_spec("fedfomo", {"M": 3}), build_client(fedfomo, M=3))[
        "train/train/down"
    ]
    assert {(f"slot{n}", f"slot{n}") for n in range(3)} == {
        (e.name.partition(".")[0], e.group) for e in manifest
    }


def test_a_run_of_sites_that_show_their_models() -> None:
    """Three rounds through both halves: every site's own model is kept, and models part."""
    server, clients = build_server(), {site: build_client(fedfomo, lr=0.3) for site in "abc"}
    state = server.start(clients["a"], 3)
    for number in (1, 2, 3):
        task = ask(number, since=number - 1)
        for site, client in clients.items():
            client.receive(server.welcome(state) if number == 1 else server.send(state, site, task), task)
            client.learn(DATA[site], task)
        state = server.close(state, gather(clients, DATA, task), task).state
    assert ["a", "b", "c"] == sorted(state.kept)
    assert not equal(state.kept["a"].load(), state.kept["b"].load())


@pytest.mark.parametrize(
    "wrong", [{"M": 0}, {"val_ratio": 0}, {"val_ratio": 1}, {"epsilon": 1.5}, {"aggregation": "uniform"}]
)
def test_settings_without_sense_are_refused(wrong: dict[str, Json]) -> None:
    """A slot at least, a part to train on and one to try on, a probability."""
    with pytest.raises(SettingError, match=next(iter(wrong))):
        Method.of(fedfomo).settle(wrong)


def test_what_the_module_says() -> None:
    """Downloads differ by site, secure sums are refused; the defaults and the presets."""
    method = Method.of(fedfomo)
    assert method.per_client
    assert "whole model" in method.shows
    config = method.settle({})
    assert (5, 0.2, 0.0, "post") == (config.M, config.val_ratio, config.epsilon, config.eval_point)
    settled = {name: method.settle(preset) for name, preset in method.presets.items()}
    optimisers = {name: (c.lr, c.momentum, c.batch, c.epochs, c.drop_last) for name, c in settled.items()}
    assert (0.005, 0.0, 10, 1, True) == optimisers["paper"] == optimisers["fedcp"]
    assert (0.1, 0.0, 10, 1, True) == optimisers["fedcp-resnet18"]
