"""GPFL conditions, trains and sends what the paper and its code say, switch by switch, in numbers worked by hand."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pfl_common import methods
from pfl_common.errors import SettingError
from pfl_common.learning.method import Arrivals, LocalData, Samples
from pfl_common.methods import fedper, gpfl
from pfl_common.models import Backbone, build
from pfl_common.randomness import generators
from pfl_common.spec.run import Kind, Task
from pfl_common.tensors.state import State, load_into
from pfl_common.tensors.summing import Sum
from tests.common.methods.toy import ask, build_client, build_data

torch.set_num_threads(1)

METHOD = methods.load("gpfl")
TASK = Task(Kind.TRAIN, round=1, rounds=3)
EXAMPLE: dict[str, Any] = {"batch": 2, "lr": 0.1, "momentum": 0.0, "lambda": 0.1, "mu": 0.01}
CODE: dict[str, Any] = {"p_norm": "sum", "cond_source": "stale", "mlg": "batch_frob", "reg": "weight_decay"}
EMBEDDINGS = [[1.0, 1.0, 0.0], [0.0, 2.0, 1.0], [-1.0, 0.0, 1.0]]
VALUES = {
    "encoder.weight": [[1.0, 0.5], [-0.5, 1.0], [0.25, 0.75]],
    "encoder.bias": [0.1, -0.1, 0.2],
    "gce.weight": EMBEDDINGS,
    "cov.gamma.fc.weight": [[1.0, 0.0, 0.5], [0.0, 1.0, -0.5], [0.5, 0.5, 0.0]],
    "cov.gamma.fc.bias": [0.1, 0.0, -0.1],
    "cov.beta.fc.weight": [[0.0, 0.5, 1.0], [1.0, -0.5, 0.0], [0.5, 0.0, 0.5]],
    "cov.beta.fc.bias": [0.0, 0.1, 0.2],
    "head_p.weight": [[0.5, -0.5, 0.25], [0.25, 1.0, -0.5], [0.0, 0.5, 0.5]],
    "head_p.bias": [0.0, 0.2, -0.1],
    "table": EMBEDDINGS,
}
"""The network of item 22; the site's last table is the one it is sent."""
X = torch.tensor([[1.0, 2.0], [-1.0, 0.5]], dtype=torch.float64)
FEATURES = [2.1, 1.4, 1.95]
"""f of its first sample."""


@dataclasses.dataclass(frozen=True)
class Counted(LocalData):
    """A site's data that says to have three samples of class 0 for each of class 1."""

    @property
    def counts(self) -> Tensor:
        """Shares of 0.75, 0.25 and 0."""
        return torch.tensor([3, 1, 0])


def local_data() -> LocalData:
    """The samples of item 22."""
    part = Samples(X, torch.tensor([0, 1]))
    return Counted(train=part, validation=part, test=part, classes=3, site="a", seed=1)


def example(**settings: Any) -> gpfl.Client:
    """A site's half with the network of item 22, in double precision."""
    backbone = Backbone(nn.Linear(2, 3), nn.Linear(3, 3), 3)
    client = gpfl.Client(METHOD.settle({**EXAMPLE, **settings}), backbone, 3).double()
    own = client.state_dict()
    load_into(client, {name: torch.tensor(value) for name, value in VALUES.items() if name in own})
    return client


def near(expected: Any, tolerance: float = 1e-6) -> Any:
    """As printed: six digits."""
    return pytest.approx(torch.tensor(expected, dtype=torch.float64).numpy(), abs=tolerance)


def array(value: Tensor) -> Any:
    """A result as plain numbers."""
    return value.detach().numpy()


# -- item 5: two features, three classes


def pair(**settings: Any) -> gpfl.Client:
    """A participant of two features with the embeddings of item 5, received and trained alike."""
    client = gpfl.Client(
        METHOD.settle({**EXAMPLE, **settings}), Backbone(nn.Identity(), nn.Linear(2, 3), 2), 3
    )
    client = client.double()
    if "gce.weight" in client.state_dict():
        load_into(client, {"gce.weight": torch.tensor([[1.0, 1.0], [0.0, 2.0], [-1.0, 0.0]])})
        client._received = client._embeddings().detach().clone()
    return client


COMMON = torch.tensor([[1.0, 0.0], [3.0, 4.0]], dtype=torch.float64)
"""f^G of item 5, whose labels are 0 and 1."""


@pytest.mark.golden("gpfl", item=5)
@pytest.mark.parametrize(("choice", "expected"), [("paper", [0.25, 0.416667]), ("sum", [0.75, 1.25])])
def test_conditions(choice: str, expected: list[float]) -> None:
    """g is the mean embedding, p_i the one weighted by shares 0.75, 0.25, 0: over three classes, or not divided."""
    client = pair(p_norm=choice)
    client.personalise(local_data(), TASK)
    assert near([0.0, 1.0]) == array(client._g)
    assert near(expected) == array(client.condition)
    assert not client._g.requires_grad


@pytest.mark.golden("gpfl", item=5)
def test_angles() -> None:
    """Cosines (0.707107, 0, −1) and (0.989949, 0.8, −0.6), without temperature."""
    assert 0.706968 == pytest.approx(pair()._angle(COMMON, torch.tensor([0, 1])).item(), abs=1e-6)


@pytest.mark.golden("gpfl", item=5)
@pytest.mark.parametrize(("choice", "expected"), [("per_sample", 2.302776), ("batch_frob", 3.741657)])
def test_distance(choice: str, expected: float) -> None:
    """Gaps (0,−1) and (3,2): (1 + √13) / 2, or √14."""
    client = pair(mlg=choice)
    assert expected == pytest.approx(client._distance(COMMON, torch.tensor([0, 1])).item(), abs=1e-6)


@pytest.mark.parametrize("choice", ["per_sample", "batch_frob"])
def test_nothing_breaks_where_a_length_is_zero(choice: str) -> None:
    """Features of nothing have cosines of 0: log 3; a distance of 0 has a gradient."""
    client, y = pair(mlg=choice), torch.tensor([0, 1])
    common = torch.zeros(2, 2).double().requires_grad_()
    angle = client._angle(common, y)
    assert math.log(3) == pytest.approx(angle.item())
    there = client._received[y].requires_grad_()
    distance = client._distance(there, y)
    assert 0 <= distance.item() <= 1e-6
    (angle + distance).backward()
    assert client._embeddings().grad.isfinite().all()
    assert there.grad.isfinite().all()


# -- the valve


@pytest.mark.golden("gpfl", item=18)
def test_the_norm_comes_last() -> None:
    """(1, −2, 3) becomes (−0.267260, −1.069042, 1.336302), and not (0.162221, …) as in FedCP."""
    net = gpfl.build_net(3).double()
    load_into(net, {"fc.weight": torch.eye(3), "fc.bias": torch.zeros(3)})
    given = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    assert near([-0.267260, -1.069042, 1.336302]) == array(net(given))


@pytest.mark.golden("gpfl", item=16)
def test_size_of_the_modules() -> None:
    """527,360 numbers for 512 features, and one row of them for each class."""
    client = gpfl.Client(METHOD.settle({}), build("cnn", shape=(1, 28, 28), classes=10), 10)
    assert 527_360 == sum(value.numel() for value in client.cov.parameters())
    assert 10 * 512 == sum(value.numel() for value in client.gce.parameters())


def test_both_routes_are_one_module() -> None:
    """γ = (1, −1), β = (0.5, −3), whatever the condition: ReLU of (2·1 + 0.5, 0·2 − 3), for each sample alike."""
    valve = gpfl.Valve(2).double()
    for net, bias in ((valve.gamma, [1.0, -1.0]), (valve.beta, [0.5, -3.0])):
        load_into(net.norm, {"weight": torch.zeros(2), "bias": torch.tensor(bias)})
    routed = valve(torch.tensor([[1.0, 2.0], [-1.0, 2.0]]).double(), torch.zeros(2).double())
    assert [[2.5, 0.0], [0.0, 0.0]] == routed.tolist()


# -- a round


@pytest.mark.golden("gpfl", item=22)
@pytest.mark.parametrize(
    ("settings", "first", "second", "row"),
    [
        (CODE, 2.693505, 2.026179, [1.005524, 0.990478, 0.001313]),
        ({}, 2.289154, 1.790711, [1.007068, 0.991596, 0.002914]),
    ],
    ids=["as in the code", "as in the paper"],
)
def test_two_steps(settings: dict[str, Any], first: float, second: float, row: list[float]) -> None:
    """Both losses and an embedding; each mistake of item 22 gives other ones."""
    assert first == pytest.approx(example(**settings).learn(local_data(), TASK)["loss"], abs=1e-6)
    client = example(epochs=2, **settings)
    assert second == pytest.approx(client.learn(local_data(), TASK)["loss"], abs=1e-6)
    assert near(row) == array(client.gce.weight)[0]


def test_the_penalty_is_one_norm_a_module() -> None:
    """CoV with ones in its two norms of width 2 alone: 2; embeddings (3,4) and nothing else: 5; 0.1 · (2 + 5)."""
    client = pair(mu=0.1)
    with torch.no_grad():
        for name, value in client.named_parameters():
            value.copy_(torch.ones_like(value) if name.endswith("norm.weight") else torch.zeros_like(value))
    load_into(client, {"gce.weight": torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 0.0]])})
    assert 0.7 == pytest.approx(client._penalty().item())
    assert 0.0 == float(pair(reg="weight_decay")._penalty())


def test_weight_decay_is_of_the_shared_modules_and_adds_to_the_runs() -> None:
    """Where no loss moves them, numbers shrink by lr (0.02 + μ) = 0.1 · 0.03 of themselves, head_p's by 0.1 · 0.02."""
    client = example(reg="weight_decay", weight_decay=0.02, ablation="wo_mlg")
    # Nothing behind CoV says anything: no gradient reaches it, and none the head's weights, whose input is 0.
    for net, bias in ((client.cov.gamma, -1.0), (client.cov.beta, 0.0)):
        load_into(net.norm, {"weight": torch.zeros(3), "bias": torch.full((3,), bias)})
    before = State.of(client)
    client.learn(local_data(), TASK)
    after = State.of(client)
    for name in ("gce.weight", "cov.gamma.fc.weight", "cov.beta.fc.bias", "cov.gamma.norm.bias"):
        assert near((before[name] * (1 - 0.1 * 0.03)).tolist(), 1e-12) == array(after[name]), name
    assert near((before["head_p.weight"] * (1 - 0.1 * 0.02)).tolist(), 1e-12) == array(after["head_p.weight"])


def test_what_stands_still_in_a_round() -> None:
    """The received embeddings and both conditions keep every bit while the trained embeddings move."""
    client = example(epochs=3)
    client.personalise(local_data(), TASK)
    g, p = client._g.clone(), client.condition.clone()
    client.learn(local_data(), TASK)
    assert EMBEDDINGS == client._received.tolist()
    assert torch.equal(g, client._g)
    assert torch.equal(p, client.condition)
    assert EMBEDDINGS != client.gce.weight.tolist()
    assert not client._received.requires_grad


def test_embeddings_learn_from_the_angles_alone() -> None:
    """Neither the distance nor the personal route has a gradient for them."""
    client = example()
    client.learn(local_data(), TASK)
    f, y = client.encoder(X), torch.tensor([0, 1])
    weight = client.gce.weight
    for value in (client._distance(client.cov(f, client._g), y), client(X).sum()):
        assert (None,) == torch.autograd.grad(value, [weight], allow_unused=True, retain_graph=True)
    (gradient,) = torch.autograd.grad(client._angle(client.cov(f, client._g), y), [weight])
    assert gradient.abs().max() > 0


def test_shares_are_of_all_training_samples() -> None:
    """With seven samples and drop_last only four or five are trained on; 3/7, 2/7 and 2/7 are counted."""
    client = build_client(gpfl, batch=4, drop_last=True, p_norm="sum")
    data = build_data()
    client.personalise(data, ask())
    expected = torch.tensor([3.0, 2.0, 2.0]) / 7 @ client.gce.weight.detach()
    torch.testing.assert_close(expected, client.condition)


def test_stale_conditions() -> None:
    """Zeros at first, then from the embeddings the site has trained, whatever it is sent; or from what it is sent."""
    for source in ("stale", "received"):
        client = example(cond_source=source)
        client.table.zero_()
        client.learn(local_data(), TASK)
        assert (source == "stale") == (not client.condition.any())
        trained = client.gce.weight.detach().clone()
        sent = torch.tensor(EMBEDDINGS) + 7
        client.receive(State({"gce.weight": sent}), Task(Kind.TRAIN, 2, 3, since=1))
        client.personalise(local_data(), TASK)
        table = trained if source == "stale" else sent.double()
        assert near((torch.tensor([0.75, 0.25, 0.0]).double() @ table / 3).tolist(), 1e-12) == array(
            client.condition
        )
        assert near(table.mean(0).tolist(), 1e-12) == array(client._g)
        assert ("table" in client.stays("train")) == (source == "stale")


def test_the_prediction_goes_the_personal_way() -> None:
    """head_p of ReLU((γ(p_i) + 1) ⊙ f + β(p_i)), and p_i is kept for it; g is not."""
    client = example().eval()
    client.personalise(local_data(), TASK)
    p = client.condition
    f = torch.tensor([FEATURES], dtype=torch.float64)
    route = torch.relu((client.cov.gamma(p) + 1) * f + client.cov.beta(p))
    assert near(client.head_p(route).tolist()) == array(client(X[:1]))
    assert "condition" in set(client.stays("train")) - set(client.travels("train"))
    assert {"combined"} == client.views(X).keys()


def test_a_late_site_starts_from_the_first_head() -> None:
    """Whatever it is sent: no other head travels."""
    client = example()
    down = State({name: client.state_dict()[name] + 1 for name in client.travels("train")})
    client.receive(down, Task(Kind.TRAIN, 3, 3, since=0, late=True))
    assert VALUES["head_p.weight"] == client.head_p.weight.tolist()
    assert torch.equal(torch.tensor(EMBEDDINGS).double() + 1, client.gce.weight)


# -- variants


def test_without_conditions_all_sites_have_the_same_two() -> None:
    """Two random vectors, drawn with the first model, for g and for p_i; data say nothing."""
    first, second = (build_client(gpfl, ablation="wo_pci") for _ in range(2))
    first.personalise(build_data(), ask())
    second.personalise(build_data("b", labels=(2, 2)), ask())
    for client in (first, second):
        assert torch.equal(first.constants[0], client._g)
        assert torch.equal(first.constants[1], client.condition)
    assert 6 == len({*first.constants.flatten().tolist()})
    assert first.constants.abs().max() < 6
    assert "constants" in set(first.stays("train")) - set(first.travels("train"))


def test_without_valve_both_routes_are_the_features() -> None:
    """(2.1, 1.4, 1.95) straight to the head: 0.8375, 1.15, 1.575, and a negative feature stays negative."""
    client = example(ablation="wo_cov")
    client.personalise(local_data(), TASK)
    assert near([0.8375, 1.15, 1.575]) == array(client(X[:1]))[0]
    f = client.encoder(X[1:])
    assert f.min() < 0
    assert torch.equal(f, client.cov(f, client._g))
    told = client.learn(local_data(), TASK)
    expected = told["parts/personal"] + told["parts/angle"] + 0.1 * told["parts/magnitude"]
    assert told["loss"] == pytest.approx(expected + 0.01 * math.sqrt(9))


@pytest.mark.parametrize(("variant", "weight"), [("none", 0.1), ("wo_mlg", 0.0)])
def test_the_distance_counts_with_lambda(variant: str, weight: float) -> None:
    """L = L_P + L_alg + λ L_mlg, where μ is 0."""
    told = example(ablation=variant, mu=0).learn(local_data(), TASK)
    expected = told["parts/personal"] + told["parts/angle"] + weight * told["parts/magnitude"]
    assert told["parts/magnitude"] > 1
    assert told["loss"] == pytest.approx(expected)


@pytest.mark.parametrize("reg", ["norm", "weight_decay"])
def test_without_embeddings_only_the_heads_loss_is_left(reg: str) -> None:
    """The personal route has a constant condition, μ counts for nothing, CoV still learns and travels."""
    client, other = (example(ablation="wo_gce", reg=reg, mu=mu) for mu in (1.0, 0.0))
    for one in (client, other):
        one.constants.copy_(torch.tensor([[9.0, 9, 9], [1.0, 2, 3]]))
    told = client.learn(local_data(), TASK)
    assert {"loss", "parts/personal"} == told.keys()
    assert told["loss"] == pytest.approx(told["parts/personal"])
    assert [1.0, 2.0, 3.0] == client.condition.tolist()
    assert VALUES["cov.gamma.fc.weight"] != client.cov.gamma.fc.weight.tolist()
    other.learn(local_data(), TASK)
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in client.state_dict().items())


@pytest.mark.parametrize("reg", ["norm", "weight_decay"])
def test_without_both_it_is_fedper(reg: str) -> None:
    """The same bits as FedPer after two rounds, running values too."""
    client = build_client(gpfl, norm=True, ablation="wo_cov_gce", epochs=3, batch=3, reg=reg, mu=1.0)
    other = build_client(fedper, norm=True, epochs=3, batch=3)
    load_into(client, {name.replace("head.", "head_p."): v for name, v in State.of(other).items()})
    for number in (1, 2):
        assert (
            other.learn(build_data(), ask(number))["loss"] == client.learn(build_data(), ask(number))["loss"]
        )
        renamed = {name.replace("head.", "head_p."): v for name, v in State.of(other).items()}
        assert renamed.keys() == client.state_dict().keys()
        assert all(torch.equal(value, client.state_dict()[name]) for name, value in renamed.items())


ENCODER = {"encoder.weight", "encoder.bias"}
COV = {
    f"cov.{net}.{layer}.{name}"
    for net in ("gamma", "beta")
    for layer in ("fc", "norm")
    for name in ("weight", "bias")
}
GCE, HEAD_P = {"gce.weight"}, {"head_p.weight", "head_p.bias"}


@pytest.mark.parametrize(
    ("settings", "sent", "kept"),
    [
        ({}, ENCODER | COV | GCE, HEAD_P | {"condition"}),
        ({"cond_source": "stale"}, ENCODER | COV | GCE, HEAD_P | {"condition", "table"}),
        ({"ablation": "wo_pci"}, ENCODER | COV | GCE, HEAD_P | {"condition", "constants"}),
        ({"ablation": "wo_mlg"}, ENCODER | COV | GCE, HEAD_P | {"condition"}),
        ({"ablation": "wo_cov"}, ENCODER | GCE, HEAD_P),
        ({"ablation": "wo_gce"}, ENCODER | COV, HEAD_P | {"condition", "constants"}),
        ({"ablation": "wo_cov_gce"}, ENCODER, HEAD_P),
    ],
    ids=["default", "stale", "wo_pci", "wo_mlg", "wo_cov", "wo_gce", "wo_cov_gce"],
)
def test_what_leaves_the_site(settings: dict[str, Any], sent: set[str], kept: set[str]) -> None:
    """Shared modules and nothing else; the vault keeps the rest, and nothing the variant does not use."""
    client = example(**settings)
    assert sent == set(client.travels("train")) == client.report(local_data(), TASK).summed.keys()
    assert kept == set(client.stays("train"))
    assert not client.report(local_data(), TASK).shown


@pytest.mark.parametrize(
    ("policy", "stays"),
    [
        ("local_stats", {"running_mean", "running_var", "num_batches_tracked"}),
        ("local_bn", {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}),
        ("share_all", {"num_batches_tracked"}),
    ],
)
def test_what_batch_norm_shares(policy: str, stays: set[str]) -> None:
    """Layer norm is not batch norm: CoV's scales travel under every policy."""
    client = build_client(gpfl, norm=True, bn_policy=policy)
    found = {name.rpartition(".")[2] for name in client.stays("train") if name.startswith("encoder.1.")}
    assert stays == found
    assert set(client.travels("train")) >= COV


@pytest.mark.parametrize(("aggregation", "expected"), [("samples", 4.0), ("uniform", 3.0)])
def test_the_next_shared_modules_are_means(aggregation: str, expected: float) -> None:
    """Sites of 2 and 6 samples send 1 and 5: (2 · 1 + 6 · 5) / 8 = 4, or (1 + 5) / 2 = 3."""
    client, total = example(aggregation=aggregation), Sum()
    server = METHOD.server(client.settings, None)
    start = server.start(client, seed=1)
    for samples, value in ((2, 1.0), (6, 5.0)):
        load_into(client, {name: torch.full_like(v, value) for name, v in State.of(client).items()})
        part = Samples(X.repeat(samples // 2, 1), torch.tensor([0, 1] * (samples // 2)))
        total.add(client.report(dataclasses.replace(local_data(), train=part), TASK).summed)
    after = server.close(start, Arrivals(total, {}), TASK).state
    assert ENCODER | COV | GCE == after.keys()
    assert all((value == expected).all() for value in after.values())


@pytest.mark.parametrize(
    ("settings", "name", "expected"),
    [
        ({}, "cnn", (0.01, 0.1)),
        ({}, "mlp", (0.01, 0.1)),
        ({}, "", (0.01, 0.1)),
        ({}, "resnet18", (0.0001, 0.0)),
        ({}, "fasttext", (0.0001, 0.0)),
        ({}, "har_cnn", (0.01, 1.0)),
        ({"lambda": 3.0}, "resnet18", (3.0, 0.0)),
        ({"mu": 2.0}, "har_cnn", (0.01, 2.0)),
        ({"lambda": 0.0, "mu": 0.0}, "har_cnn", (0.0, 0.0)),
    ],
    ids=str,
)
def test_weights_follow_the_network(
    settings: dict[str, float], name: str, expected: tuple[float, float]
) -> None:
    """L − L_P − L_alg = λ L_mlg + μ (‖CoV‖ + ‖C‖), before the one step that is taken."""
    backbone = Backbone(nn.Linear(2, 3), nn.Linear(3, 3), 3, name)
    client = gpfl.Client(METHOD.settle({"batch": 2, "lr": 1e-9, **settings}), backbone, 3)
    generators.initialise(client, 3)
    told = client.double().learn(local_data(), TASK)
    norms = sum(
        math.hypot(*(v for p in m.parameters() for v in p.flatten().tolist()))
        for m in (client.cov, client.gce)
    )
    rest = told["loss"] - told["parts/personal"] - told["parts/angle"]
    assert rest == pytest.approx(expected[0] * told["parts/magnitude"] + expected[1] * norms, abs=1e-6)


def test_random_embeddings_at_first() -> None:
    """N(0, 1), one row a class, from the run's seed alone."""
    first, second = (build_client(gpfl) for _ in range(2))
    assert (3, 3) == tuple(first.gce.weight.shape)
    assert torch.equal(first.gce.weight, second.gce.weight)
    assert 0.3 < first.gce.weight.std() < 2


def test_parts_of_the_last_epoch_are_told() -> None:
    """Three epochs of batches of one: the means over the last epoch's two."""
    client = example(epochs=3, batch=1)
    told = client.learn(local_data(), TASK)
    assert 6 == len(client._parts)
    expected = (client._parts[4] + client._parts[5]) / 2
    assert near(expected[:3].tolist()) == [
        told[f"parts/{name}"] for name in ("personal", "angle", "magnitude")
    ]


# -- settings


def test_presets_are_the_tables_numbers() -> None:
    """Rates, λ and μ of the table by network; the code's choices for `repro`."""
    settled = {name: METHOD.settle(preset) for name, preset in gpfl.PRESETS.items()}
    assert {
        "paper": (0.005, None, None),
        "cnn": (0.005, 0.01, 0.1),
        "mlp": (0.005, 0.01, 0.1),
        "resnet18": (0.1, 0.0001, 0.0),
        "fasttext": (0.1, 0.0001, 0.0),
        "har": (0.01, 0.01, 1.0),
        "repro": (0.005, None, None),
    } == {name: (c.lr, c.lambda_, c.mu) for name, c in settled.items()}
    assert {(0.0, 10, 1)} == {(c.momentum, c.batch, c.epochs) for c in settled.values()}
    code = {name: (c.p_norm, c.cond_source, c.mlg, c.reg, c.drop_last) for name, c in settled.items()}
    assert ("sum", "stale", "batch_frob", "weight_decay", True) == code.pop("repro")
    assert {("paper", "received", "per_sample", "norm", False)} == set(code.values())


def test_defaults() -> None:
    """What runs when nobody chooses: the paper's method with the product's optimiser."""
    config = METHOD.settle({})
    assert (32, 0.1, 0.5, "samples", "local_stats") == (
        config.batch,
        config.lr,
        config.momentum,
        config.aggregation,
        config.bn_policy,
    )
    assert (None, None, "paper", "received") == (config.lambda_, config.mu, config.p_norm, config.cond_source)
    assert ("per_sample", "norm", "none") == (config.mlg, config.reg, config.ablation)


@pytest.mark.parametrize(
    "wrong",
    [
        {"lambda": "-1"},
        {"mu": "1001"},
        {"p_norm": "none"},
        {"ablation": "wo_all"},
        {"mlg": "mean"},
        {"tau": "1"},
    ],
    ids=str,
)
def test_wrong_settings_are_named(wrong: dict[str, str]) -> None:
    """A setting that makes no sense is refused before anything runs, by its name; there is no temperature."""
    (name,) = wrong
    with pytest.raises(SettingError, match=name):
        METHOD.settle(wrong)
