"""FedAMP: who attracts whom, how strongly, and what is read for it; the numbers are worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp

import pytest
import torch
from torch import nn

from pfl_common.errors import SettingError
from pfl_common.learning.method import LocalData, Samples
from pfl_common.methods import Method, fedamp, load, local
from pfl_common.models import Backbone
from pfl_common.spec.run import Json, Kind
from pfl_common.tensors.state import State
from pfl_server.run.rehearsal import rehearse
from tests.common.methods.toy import ask, build_client, build_data, build_spec, collect, equal

torch.set_num_threads(1)

GOLDEN = {"a": (0.0, 0.0), "b": (1.0, 0.0), "c": (0.0, 2.0)}


def build_server(**settings: Json) -> fedamp.Server:
    """The coordinator's half."""
    return Method.of(fedamp).build_server(build_spec("fedamp", settings))


def point(x: float, y: float) -> State:
    """A model of two numbers, in two tensors."""
    return State({"encoder.x": torch.tensor([x]).double(), "head.y": torch.tensor([y]).double()})


def empty() -> State:
    """The state before anybody has sent a model: the first one is at (9, 9)."""
    return point(9, 9).within("first") | {"squares": torch.zeros(0, 0, dtype=torch.float64)}


def close(
    server: fedamp.Server,
    models: Mapping[str, tuple[float, float]],
    state: State | None = None,
    number: int = 1,
) -> State:
    """A round in which these sites have sent these models."""
    shown = {site: point(*place).within("model") for site, place in models.items()}
    return server.close(empty() if state is None else state, collect(shown), ask(number)).state


def mixed(server: fedamp.Server, state: State, site: str) -> list[float]:
    """What a site is drawn to."""
    u = server.send(state, site, ask(2, since=1))
    return [float(u["u.encoder.x"]), float(u["u.head.y"])]


@pytest.mark.golden("fedamp", item=9)
def test_golden_attraction() -> None:
    """alpha 0.1, sigma 1: xi_12 = 0.1 e^-1, xi_13 = 0.1 e^-4, the rest is the site's own; u_1 follows."""
    server = build_server(alpha_k=0.1, sigma=1)
    state = close(server, GOLDEN)
    weights = server.weights(state["squares"], 0)
    assert pytest.approx([0.961380, 0.036788, 0.001832], abs=1e-6) == weights
    assert pytest.approx([0.036788, 0.003663], abs=1e-6) == mixed(server, state, "a")


@pytest.mark.golden("fedamp", item=9)
def test_the_distance_is_squared() -> None:
    """c lies 2 away from a: e^-2 would give 0.013534 instead of 0.001832."""
    server = build_server(alpha_k=0.1, sigma=1)
    assert 0.1 * exp(-4) == pytest.approx(server.weights(close(server, GOLDEN)["squares"], 0)[2], rel=1e-12)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"alpha_k": 0.2, "sigma": 1}, 0.2 * exp(-1)),
        ({"alpha_k": 0.1, "sigma": 2}, 0.1 * exp(-0.5) / 2),
        ({"alpha_k": 0.005}, 0.005 * exp(-10) / 0.1),
        ({}, 1000 * exp(-10) / 0.1),
    ],
)
def test_alpha_and_sigma(settings: dict[str, Json], expected: float) -> None:
    """The weight of b in a's mix, one unit away, by the formula; at first alpha is 1000 and sigma 0.1."""
    server = build_server(**settings)
    assert expected == pytest.approx(server.weights(close(server, GOLDEN)["squares"], 0)[1], rel=1e-12)


def test_weights_above_one_are_scaled_down() -> None:
    """alpha 10, sigma 1: the others' e^-1 and e^-4 times 10 exceed 1, so they share it and the own model has none."""
    server = build_server(alpha_k=10, sigma=1)
    near, far = exp(-1) / (exp(-1) + exp(-4)), exp(-4) / (exp(-1) + exp(-4))
    state = close(server, GOLDEN)
    assert pytest.approx([0.0, near, far], abs=1e-12) == server.weights(state["squares"], 0)
    assert pytest.approx([near, 2 * far], abs=1e-12) == mixed(server, state, "a")


def test_the_last_model_of_each_site_counts() -> None:
    """b is not there in round 2: a's new model at (0, 1) is compared with b's old one at (1, 0), 2 apart."""
    server = build_server(alpha_k=0.1, sigma=1)
    state = close(server, GOLDEN)
    later = close(server, {"a": (0.0, 1.0), "d": (5.0, 5.0)}, state, 2)
    assert ["a", "b", "c", "d"] == sorted(later.kept)
    expected = [[0, 2, 1, 41], [2, 0, 5, 41], [1, 5, 0, 34], [41, 41, 34, 0]]
    assert expected == later["squares"].tolist()
    assert [[0, 1, 4], [1, 0, 5], [4, 5, 0]] == state["squares"].tolist(), "a State is never changed in place"


def test_a_site_without_a_model_gets_the_mean() -> None:
    """Before anybody has sent one it is the first model; afterwards (0 + 1 + 0) / 3 and (0 + 0 + 2) / 3."""
    server = build_server()
    first, mean = server.welcome(empty()), server.welcome(close(server, GOLDEN))
    assert equal(point(9, 9).within("u"), first)
    assert [pytest.approx(1 / 3), pytest.approx(2 / 3)] == [
        float(mean["u.encoder.x"]),
        float(mean["u.head.y"]),
    ]
    assert equal(mean, server.send(close(server, GOLDEN), "stranger", ask(2, since=1)))
    assert equal(first, server.send(empty(), "a", ask(2, since=1)))


@pytest.mark.parametrize("kind", [Kind.EVALUATE, Kind.FINISH])
def test_a_site_that_is_measured_is_sent_nothing(kind: Kind) -> None:
    """It predicts with its own model; the parcel may be without `u`, which training alone needs."""
    server = build_server()
    assert {} == dict(server.send(close(server, GOLDEN), "a", ask(2, since=1, kind=kind)))
    manifests = rehearse(Method.of(fedamp), build_spec("fedamp"), build_client(fedamp))
    assert {"u"} == {entry.group for entry in manifests[f"{kind.value}/train/down"]}


def test_models_of_weight_nothing_are_not_read() -> None:
    """c is so far from a that its weight is exactly 0; closing reads new models, a reply those in the mix."""
    server = build_server(alpha_k=0.0001, sigma=0.001)
    arrivals = collect(
        {site: point(x, 0.0).within("model") for site, x in {"a": 0.0, "b": 0.01, "c": 9.0}.items()}
    )
    held = arrivals.shown
    state = server.close(empty(), arrivals, ask()).state
    before = {site: update.reads for site, update in held.items()}
    server.send(state, "a", ask(2, since=1))
    assert {"a": 1, "b": 1, "c": 0} == {site: update.reads - before[site] for site, update in held.items()}


def test_what_is_told_of_a_round() -> None:
    """The own weights of the golden round: a 0.961380, b 1 - 0.1 (e^-1 + e^-5), c 1 - 0.1 (e^-4 + e^-5)."""
    server = build_server(alpha_k=0.1, sigma=1)
    shown = {site: point(*place).within("model") for site, place in GOLDEN.items()}
    told = server.close(empty(), collect(shown), ask()).numbers
    own = [1 - 0.1 * (exp(-x) + exp(-y)) for x, y in ((1, 4), (1, 5), (4, 5))]
    expected = {"own/mean": sum(own) / 3, "own/least": min(own), "own/most": max(own)}
    assert expected == pytest.approx(told)


# The site


def plain_client(**settings: Json) -> fedamp.Client:
    """One weight, no bias, and a head of zeros, so that the cross entropy moves nothing but the head."""
    config = load("fedamp").settle({"momentum": 0.0, **settings})
    backbone = Backbone(nn.Sequential(nn.Linear(1, 1, bias=False)), nn.Linear(1, 2), 1)
    client = fedamp.Client(config, backbone, 2)
    with torch.no_grad():
        for parameter, value in zip(client.parameters(), (3.0, 0.0, 0.0), strict=True):
            parameter.fill_(value)
    return client


def one_sample(x: float = 0.0) -> LocalData:
    """A sample whose feature is 0: only the head's bias learns from it."""
    part = Samples(torch.tensor([[x]]), torch.tensor([0]))
    return LocalData(part, part, part, classes=2, site="a", seed=7)


@pytest.mark.golden("fedamp", item=9)
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"lambda": 4, "alpha_k": 2}, 3 - 0.1 * 4 / 2 * (3 - 1)),
        ({"lambda": 2, "alpha_k": 2}, 3 - 0.1 * 2 / 2 * (3 - 1)),
        ({"lambda": 4, "alpha_k": 8}, 3 - 0.1 * 4 / 8 * (3 - 1)),
        ({"lambda": 0, "alpha_k": 8}, 3.0),
    ],
)
def test_one_step_of_the_pull(settings: dict[str, Json], expected: float) -> None:
    """w = 3, u = 1: the gradient of lambda / (2 alpha) (w - u)^2 is lambda / alpha (w - u), squared and not rooted."""
    client = plain_client(lr=0.1, **settings)
    own = State.of(client)
    client.receive((own | {"encoder.0.weight": torch.tensor([[1.0]])}).within("u"), ask(2, since=1))
    metrics = client.learn(one_sample(), ask(2, since=1))
    assert expected == pytest.approx(float(client.encoder[0].weight.detach()), abs=1e-6)
    gap = (expected - 1) ** 2 + sum(
        float((State.of(client)[n] - own[n]).square().sum()) for n in ("head.bias",)
    )
    assert gap**0.5 == pytest.approx(metrics["distance"], abs=1e-6)


def test_a_site_goes_on_from_its_own_model() -> None:
    """Whatever comes, nothing of the model changes by receiving; a new site keeps its first values too."""
    client = build_client(fedamp, norm=True)
    own = State.of(client)
    for task in (ask(1), ask(2, since=1), ask(2, since=1, kind=Kind.EVALUATE)):
        client.receive(State.of(client, client.sent()).apply(torch.zeros_like).within("u"), task)
        assert equal(own, State.of(client))


def test_without_the_pull_it_is_training_alone() -> None:
    """lambda = 0: the bits of `local`."""
    settings: dict[str, Json] = {"lambda": 0}
    ours, theirs = build_client(fedamp, norm=True, **settings), build_client(local, norm=True)
    ours.receive(State.of(ours, ours.sent()).apply(torch.zeros_like).within("u"), ask())
    for client in (ours, theirs):
        client.learn(build_data(), ask())
    assert equal(State.of(theirs), State.of(ours))


@pytest.mark.parametrize(("policy", "absent"), [("local_stats", set()), ("local_bn", {"weight", "bias"})])
def test_what_is_shown(policy: str, absent: set[str]) -> None:
    """All parameters, never statistics; with `local_bn` nothing of a batch norm. Nothing is summed."""
    client = build_client(fedamp, norm=True, bn_policy=policy)
    up = client.report(build_data(), ask())
    parameters = {name for name, _ in client.named_parameters()}
    hidden = {f"encoder.1.1.{name}" for name in absent}
    assert {f"model.{name}" for name in parameters - hidden} == set(up.shown)
    assert {} == dict(up.summed)
    assert client.state_dict().keys() == set(client.stays("train"))


@pytest.mark.parametrize(
    "wrong",
    [{"alpha_k": 0}, {"sigma": 0}, {"lambda": -1}, {"bn_policy": "share_all"}, {"aggregation": "uniform"}],
)
def test_settings_without_sense_are_refused(wrong: dict[str, Json]) -> None:
    """What divides is positive, and what would change nothing is not offered."""
    with pytest.raises(SettingError, match=next(iter(wrong))):
        Method.of(fedamp).settle(wrong)


def test_what_the_module_says() -> None:
    """Downloads differ by site, secure sums are refused; the defaults and the presets."""
    method = Method.of(fedamp)
    assert method.per_client
    assert "whole model" in method.shows
    settled = {name: method.settle(preset) for name, preset in method.presets.items()}
    symbols = {name: (c.alpha_k, c.lambda_, c.sigma) for name, c in settled.items()}
    assert {(1000.0, 1.0, 0.1)} == {value for name, value in symbols.items() if name != "repro"}
    assert (0.005, 5e-7, 0.1) == symbols["repro"]
    optimisers = {name: (c.lr, c.momentum, c.batch, c.epochs, c.drop_last) for name, c in settled.items()}
    assert (0.005, 0.0, 10, 1, True) == optimisers["paper"] == optimisers["fedcp"] == optimisers["repro"]
    assert (0.1, 0.0, 10, 1, True) == optimisers["fedcp-resnet18"]
    assert (0.1, 0.0, 100, 5, False) == optimisers["fedcac"]
