"""FedProto: prototypes cross, models do not; every number here is worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from pfl_common.learning.method import Averaging, LocalData, Samples
from pfl_common.methods import fedproto, load, local
from pfl_common.models import Backbone
from pfl_common.spec.run import Json, Kind
from pfl_common.tensors.state import State
from tests.common.methods.toy import ask, build_client, build_data, build_spec, equal, gather

torch.set_num_threads(1)

X = [[0.0, 2.0], [4.0, 0.0], [2.0, 2.0]]
LABELS = [0, 0, 2]
"""Class 0 has the mean (2, 1), class 2 the mean (2, 2), class 1 is absent."""


def plain_client(*, owned: tuple[float, ...] = (0, 0, 0), **settings: Json) -> fedproto.Client:
    """Features are the inputs themselves, the head scores the classes by 0, 0 and the first input."""
    config = load("fedproto").settle({"lr": 1e-300, "batch": 2, **settings})
    client = fedproto.Client(config, Backbone(nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 3), 2), 3)
    with torch.no_grad():
        client.encoder[0].weight.copy_(torch.eye(2))
        client.head.weight.copy_(torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]))
        for layer in (client.encoder[0], client.head):
            layer.bias.zero_()
        client.owned.copy_(torch.tensor(owned))
    return client


def plain_data(x: list[list[float]] = X, labels: list[int] = LABELS) -> LocalData:
    part = Samples(torch.tensor(x), torch.tensor(labels))
    return LocalData(part, part, part, classes=3, site="a", seed=7)


def prototypes(values: list[list[float]], known: list[float]) -> State:
    return State({"prototypes": torch.tensor(values), "known": torch.tensor(known)})


def report(client: fedproto.Client, data: LocalData) -> tuple[list, list]:
    client.learn(data, ask())
    term = client.report(data, ask()).summed["prototypes"]
    return term.value.tolist(), term.weight.tolist()


def loss_of(client: fedproto.Client, data: LocalData) -> float:
    return client.learn(data, ask())["loss"]


def test_only_prototypes_travel() -> None:
    """C x K numbers and which classes have one; the whole model and the site's classes stay."""
    client = build_client(fedproto, norm=True)

    assert {"prototypes", "known"} == set(client.travels("train"))
    assert {"prototypes", "known"} == client.report(build_data(), ask()).summed.keys()
    assert {"owned"} | set(build_client(local, norm=True).state_dict()) == set(client.stays("train"))
    assert ((3, 3), (3,)) == (client.prototypes.shape, client.known.shape)
    assert "" == load("fedproto").shows
    assert {} == dict(client.report(build_data(), ask()).shown)


def test_a_report_is_the_mean_feature_of_each_class() -> None:
    """(0,2) and (4,0) make (2,1); a class the site does not have is zeros of weight 0."""
    assert ([[2.0, 1.0], [0.0, 0.0], [2.0, 2.0]], [1, 0, 1]) == report(plain_client(), plain_data())


@pytest.mark.parametrize(("weight", "expected"), [("uniform", [1, 0, 1]), ("count", [2, 0, 1])])
def test_what_a_site_counts(weight: str, expected: list[int]) -> None:
    """Once for each class it has, or by its samples of that class; for `known` as for the prototypes."""
    client, data = plain_client(proto_weight=weight), plain_data()
    client.learn(data, ask())
    up = client.report(data, ask()).summed

    assert expected == up["prototypes"].weight.tolist() == up["known"].weight.tolist()
    assert [1.0, 0.0, 1.0] == up["known"].value.tolist()


@pytest.mark.parametrize(("weight", "expected"), [("uniform", [3.0, 3.0]), ("count", [2.5, 2.0])])
def test_the_next_prototypes(weight: str, expected: list[float]) -> None:
    """Three samples with the mean (2,1) at one site, one at (4,5) at the other.

    Each site once: ((2,1) + (4,5)) / 2 = (3,3). By samples: (3*(2,1) + (4,5)) / 4 = (2.5, 2).
    """
    data = {
        "a": plain_data([[0.0, 2.0], [4.0, 0.0], [2.0, 1.0]], [0, 0, 0]),
        "b": plain_data([[4.0, 5.0]], [0]),
    }
    clients = {site: plain_client(proto_weight=weight) for site in data}
    for site, client in clients.items():
        client.learn(data[site], ask())
    server = load("fedproto").build_server(build_spec("fedproto"))

    after = server.close(server.start(plain_client(), 3), gather(clients, data, ask()), ask()).state

    assert expected == after["prototypes"][0].tolist()
    assert [1.0, 0.0, 0.0] == after["known"].tolist()


def test_a_class_nobody_has_keeps_its_prototype() -> None:
    """Class 1 has one from before and nobody sends it; class 2 never had one."""
    client, data = plain_client(), plain_data([[1.0, 1.0]], [0])
    client.learn(data, ask())
    before = prototypes([[9.0, 9.0], [7.0, 0.1], [0.0, 0.0]], [1, 1, 0])

    after = (
        Averaging(fedproto.Config(), build_spec("fedproto"))
        .close(before, gather({"a": client}, {"a": data}, ask()), ask())
        .state
    )

    assert torch.equal(before["prototypes"][1:], after["prototypes"][1:])
    assert ([1.0, 1.0], [1.0, 1.0, 0.0]) == (after["prototypes"][0].tolist(), after["known"].tolist())


def test_there_is_nothing_before_the_first_round() -> None:
    """Zeros that no class has, for a new site as for all."""
    server = load("fedproto").build_server(build_spec("fedproto"))
    state = server.start(plain_client(), 3)

    assert equal(prototypes([[0.0, 0.0]] * 3, [0, 0, 0]), state)
    assert equal(state, server.welcome(state))


@pytest.mark.parametrize(("how", "expected"), [("clean", 6.0), ("running", 3.5)])
def test_which_features_make_a_prototype(how: str, expected: float) -> None:
    """Features that grow by 1 with every step taken: after training, or as they occurred in it.

    Six samples of one class in batches of two, two epochs: features 1 to 6 in six steps, 6 after the last.
    Running: each step counts two samples, (1 + 2 + 3 + 4 + 5 + 6) / 6 = 3.5.
    """

    class Growing(nn.Module):
        steps = 0

        def forward(self, x: Tensor) -> Tensor:
            self.steps += self.training
            return torch.full((len(x), 2), float(self.steps))

    client, data = plain_client(proto_pass=how, epochs=2), plain_data([[0.0, 0.0]] * 6, [0] * 6)
    client.encoder = Growing()

    assert [expected, expected] == report(client, data)[0][0]


@pytest.mark.parametrize("how", ["clean", "running"])
def test_the_distance_told_is_that_to_prototypes_there_are(how: str) -> None:
    """Both samples of class 0, (0,2) and (4,0), lie 5 from (4,5); class 2 has no prototype and does not count."""
    client, data = plain_client(proto_pass=how), plain_data()
    client.receive(prototypes([[4.0, 5.0], [0.0, 0.0], [9.0, 9.0]], [1, 1, 0]), ask(2, since=1))

    assert 5.0 == pytest.approx(client.learn(data, ask(2, since=1))["distance"])


def test_no_distance_is_told_before_there_are_prototypes() -> None:
    """Nor by a site that has none of the classes that have one."""
    assert {"loss"} == plain_client().learn(plain_data(), ask()).keys()
    client = plain_client()
    client.receive(prototypes([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]], [0, 1, 0]), ask(2, since=1))
    assert {"loss"} == client.learn(plain_data(), ask(2, since=1)).keys()


def test_running_features_of_batches_left_out_do_not_count() -> None:
    """A class that training never saw has no running prototype, though the site has it."""
    data = plain_data([[1.0, 0.0], [3.0, 0.0], [5.0, 0.0]], [0, 0, 1])
    client = plain_client(proto_pass="running", proto_weight="count", drop_last=True)
    y = next(data.batches(ask(), 0, size=2))[1].tolist()

    assert [min(1, y.count(label)) * count for label, count in enumerate([2, 1, 0])] == report(client, data)[
        1
    ]


def test_the_clean_pass_tells_that_it_goes_on() -> None:
    """A site that says nothing for long is taken for lost: each batch of the pass is a sign of life."""
    client, told = plain_client(), []
    client.progress = told.append
    client.learn(plain_data(), ask())
    assert [2, 1, 0, 0] == told


def test_the_clean_pass_is_in_evaluation_mode() -> None:
    """Batch norm takes its running statistics then, and does not move them; no sample is left out."""
    client, data = plain_client(), plain_data()
    client.encoder = nn.Sequential(nn.BatchNorm1d(2, eps=1e-12, momentum=0.0))

    assert ([[2.0, 1.0], [0.0, 0.0], [2.0, 2.0]], [1, 0, 1]) == report(client, data)
    assert 1 == client.encoder[0].num_batches_tracked


@pytest.mark.parametrize(("strength", "expected"), [(None, 1.0), (0.1, 0.1), (10.0, 10.0), (0.0, 0.0)])
def test_the_pull_towards_prototypes(strength: float | None, expected: float) -> None:
    """Features (0,2), (4,0), (2,2), prototype of class 0 at (1,1), none of class 2, one batch.

    Squares: (1 + 1) + (9 + 1) + nothing for class 2 = 12, over 3 x 2 entries: 2, times lambda (default 1).
    """
    settings = {"batch": 3} | ({} if strength is None else {"lambda": strength})
    pulled, free, data = plain_client(**settings), plain_client(**settings), plain_data()
    pulled.receive(prototypes([[1.0, 1.0], [5.0, 5.0], [50.0, 50.0]], [1, 1, 0]), ask(2))

    assert 2 * expected == pytest.approx(loss_of(pulled, data) - loss_of(free, data), abs=1e-6)


def test_one_step_towards_a_prototype() -> None:
    """One sample (1, 0), its prototype (3, 0), a head of zeros: the cross entropy does not reach the encoder.

    d/dh of mean((h - P)^2) over 2 entries is h - P = (-2, 0); the bias moves by 0.5 * 2 = 1.
    """
    client = plain_client(lr=0.5)
    nn.init.zeros_(client.head.weight)
    client.receive(prototypes([[3.0, 0.0], [0.0, 0.0], [0.0, 0.0]], [1, 0, 0]), ask(2))

    client.learn(plain_data([[1.0, 0.0]], [0]), ask(2))

    assert [1.0, 0.0] == client.encoder[0].bias.tolist()


@pytest.mark.parametrize("settings", [{}, {"lambda": 0.0}])
def test_without_the_pull_it_is_training_alone(settings: dict[str, Json]) -> None:
    """In round 1, where nobody has a prototype, and with lambda = 0: the local method, bit by bit."""
    client, alone, data = build_client(fedproto, **settings), build_client(local), build_data()
    if settings:
        client.receive(prototypes([[1.0] * 3] * 3, [1, 1, 1]), ask(1))
    client.learn(data, ask())
    alone.learn(data, ask())

    assert equal(State.of(alone), State.of(client, alone.state_dict()))


def test_prototypes_are_not_trained() -> None:
    """They change in the aggregation only."""
    client, given = build_client(fedproto, lr=0.5), prototypes([[1.0] * 3] * 3, [1, 1, 0])
    client.receive(given, ask(2))
    client.learn(build_data(), ask(2))

    assert equal(given, State.of(client, given))


POINTS = [[3.0, 0.0], [0.0, 4.0], [9.0, 9.0]]


@pytest.mark.parametrize(
    ("choose", "known", "owned", "expected"),
    [
        ("all", [1, 1, 0], (1, 0, 0), [-3.0, -4.0, -math.inf]),
        ("all", [0, 1, 0], (1, 0, 0), [-math.inf, -4.0, -math.inf]),
        ("own", [1, 1, 0], (0, 1, 1), [-math.inf, -4.0, -math.inf]),
        ("own", [1, 1, 0], (1, 1, 1), [-3.0, -4.0, -math.inf]),
        ("own", [1, 1, 0], (0, 0, 1), [0.0, 0.0, 0.0]),
        ("all", [0, 0, 0], (1, 1, 1), [0.0, 0.0, 0.0]),
    ],
)
def test_which_classes_can_be_chosen(
    choose: str, known: list[float], owned: tuple[float, ...], expected: list[float]
) -> None:
    """At (0,0), with prototypes at distance 3 and 4; where none can be chosen the head says 0, 0, 0."""
    client = plain_client(proto_classes=choose, owned=owned)
    client.receive(prototypes(POINTS, known), ask(2))

    assert expected == client(torch.zeros(1, 2))[0].tolist()


def test_the_nearest_prototype_and_the_head_are_two_views() -> None:
    """At (1, 3.9) class 1 is nearest, while the head prefers class 2 by its first input."""
    client, x = plain_client(), torch.tensor([[1.0, 3.9]])
    client.receive(prototypes(POINTS, [1, 1, 1]), ask(2))
    views = client.views(x)

    assert {"combined": 1, "head": 2} == {name: scores.argmax().item() for name, scores in views.items()}
    assert torch.equal(client(x), views["combined"])
    assert [0.0, 0.0, 1.0] == views["head"][0].tolist()


def test_near_prototypes_are_told_apart() -> None:
    """Far from the origin a distance by matrix product loses its digits; here are many samples."""
    client = plain_client()
    client.receive(prototypes([[1000.0, 1000.0], [1000.0, 1000.25], [0.0, 0.0]], [1, 1, 0]), ask(2))

    assert [[0.0, -0.25, -math.inf]] * 40 == client(torch.full((40, 2), 1000.0)).tolist()


@pytest.mark.parametrize("kind", [Kind.TRAIN, Kind.EVALUATE])
def test_a_site_knows_its_own_classes(kind: Kind) -> None:
    """From its training, and before that from its data; a class it has no longer is forgotten."""
    client = plain_client(proto_classes="own", owned=(0, 1, 0))
    if kind is Kind.TRAIN:
        client.learn(plain_data(), ask())
    else:
        client.personalise(plain_data(), ask(kind=kind))

    assert [1.0, 0.0, 1.0] == client.owned.tolist()
    assert "owned" in client.stays("train")


def test_a_second_training_forgets_the_first() -> None:
    """The same object may serve two rounds; its report is of the last one."""
    client = plain_client()
    client.learn(plain_data([[8.0, 8.0]], [1]), ask())

    assert [1, 0, 1] == report(client, plain_data())[1]


def test_presets() -> None:
    """The optimisers of the papers that compare with it; the codes average features as they occur."""
    method = load("fedproto")
    settled = {name: method.settle(preset) for name, preset in method.presets.items()}
    optimisers = {n: (c.lr, c.momentum, c.batch, c.epochs, c.drop_last) for n, c in settled.items()}
    expected = {
        "paper": (0.01, 0.5, 256, 1, False),
        "dualfed": (0.01, 0.5, 256, 1, False),
        "fedcp": (0.005, 0.0, 10, 1, True),
        "fedcp-resnet18": (0.1, 0.0, 10, 1, True),
        "repro": (0.005, 0.0, 10, 1, True),
    }
    assert expected == optimisers
    symbols = {n: (c.lambda_, c.proto_pass, c.proto_weight, c.proto_classes) for n, c in settled.items()}
    assert (1.0, "running", "uniform", "all") == symbols.pop("repro")
    assert {(1.0, "clean", "uniform", "all")} == set(symbols.values())
