"""FedCP divides features, trains and sends what the paper says, switch by switch, in numbers worked by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pfl_client.trainer import tasks
from pfl_common import methods
from pfl_common.errors import SettingError
from pfl_common.learning.method import Arrivals, LocalData, Samples, probe
from pfl_common.learning.mmd import mmd2
from pfl_common.learning.partition import has_batch_norm
from pfl_common.methods import fedcp, fedper
from pfl_common.models import Backbone, build
from pfl_common.randomness import generators
from pfl_common.spec.run import Kind, Task
from pfl_common.tensors.state import State, load_into
from pfl_common.tensors.summing import Sum
from tests.common.methods.toy import ask, build_client, build_data

torch.set_num_threads(1)

METHOD = methods.load("fedcp")
TASK = Task(Kind.TRAIN, round=1, rounds=3)
EXAMPLE: dict[str, Any] = {"batch": 2, "lr": 0.1, "momentum": 0.0, "lambda": 5.0}
VALUES = {
    "encoder.weight": [[1.0, 0.5], [-0.5, 1.0]],
    "encoder.bias": [0.1, -0.1],
    "head_g.weight": [[1.0, 0.0], [0.0, 1.0]],
    "head_g.bias": [0.1, -0.1],
    "head_p.weight": [[0.5, -0.5], [0.25, 1.0]],
    "head_p.bias": [0.0, 0.2],
    "cpn.fc.weight": [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [-0.5, 0.5]],
    "cpn.fc.bias": [0.0, 0.0, 0.0, 0.0],
}
"""The network of item 19."""
X = [[1.0, 2.0], [-1.0, 0.5]]
DIRECTION = [0.832050, 0.554700]
"""v/‖v‖ of its personal head, whose columns add up to (0.75, 0.5)."""
FEATURES = [2.1, 1.4]
"""h of its first sample."""


def example(**settings: Any) -> fedcp.Client:
    """A site's half with the network of item 19, in double precision."""
    backbone = Backbone(nn.Linear(2, 2), nn.Linear(2, 2), 2)
    client = fedcp.Client(METHOD.settle({**EXAMPLE, **settings}), backbone, 2).double()
    own = client.state_dict()
    fitting = {
        name: torch.tensor(v)
        for name, v in VALUES.items()
        if name in own and own[name].shape == torch.tensor(v).shape
    }
    load_into(client, fitting)
    return client


def local_data(x: list[list[float]] = X, y: tuple[int, ...] = (0, 1)) -> LocalData:
    """The samples of item 19."""
    part = Samples(torch.tensor(x, dtype=torch.float64), torch.tensor(y))
    return LocalData(train=part, validation=part, test=part, classes=2, site="a", seed=1)


def numbers(value: Tensor) -> list[Any]:
    """A tensor as plain numbers, with tolerance."""
    return value.detach().tolist()


def near(expected: Any, tolerance: float = 1e-6) -> Any:
    """As printed: six digits."""
    return pytest.approx(torch.tensor(expected, dtype=torch.float64).numpy(), abs=tolerance)


class Always(nn.Module):
    """A network that gives the same rows whatever it is shown."""

    def __init__(self, *rows: list[float]) -> None:
        super().__init__()
        self.rows = torch.tensor(rows, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        """The rows."""
        return self.rows


# -- the policy


@pytest.mark.golden("fedcp", item=3)
def test_two_numbers_a_feature_decide_on_its_parts() -> None:
    """a_1 = (0, 1, 2) speaks for the global head, a_2 = (0.5, 1, 0) for the personal one; what is told is s."""
    client = with_head(nn.Linear(3, 2), [[[0.0, 0.0, 0.0]] * 2])
    client.cpn = Always([0, 1, 2, 0.5, 1, 0])
    r, s = client.split(torch.ones(1, 3).double(), torch.ones(3).double())
    assert near([0.377541, 0.5, 0.880797]) == r[0].numpy()
    assert near(0.413887) == s.mean().item()
    assert near([1.0, 1.0, 1.0], 1e-15) == (r + s)[0].numpy()


@pytest.mark.golden("fedcp", item=3)
def test_the_personal_head_gives_a_direction() -> None:
    """Rows (1,2,2) and (0,1,1): v = (1,3,3), divided by its length."""
    client = with_head(nn.Linear(3, 2), [[[1.0, 2.0, 2.0], [0.0, 1.0, 1.0]]])
    assert near([0.229416, 0.688247, 0.688247]) == client.column_sums().numpy()
    assert not client.column_sums().requires_grad


def with_head(head: nn.Module, weights: list[list[list[float]]]) -> fedcp.Client:
    """A participant with three features and this head."""
    client = fedcp.Client(METHOD.settle(EXAMPLE), Backbone(nn.Linear(2, 3), head, 3), 2).double()
    layers = [layer for layer in client.head_p.modules() if isinstance(layer, nn.Linear)]
    for layer, weight in zip(layers, weights, strict=True):
        load_into(layer, {"weight": torch.tensor(weight)})
    return client


@pytest.mark.golden("fedcp", item=20)
def test_a_head_of_several_layers_is_multiplied() -> None:
    """W₂W₁ of [[1,2],[0,1]] and [[1,0,1],[2,1,0]] has the column sums (7,3,1); those of W₁ alone are (3,1,1)."""
    stack = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Sequential(nn.Identity(), nn.Linear(2, 2)))
    client = with_head(stack, [[[1.0, 0.0, 1.0], [2.0, 1.0, 0.0]], [[1.0, 2.0], [0.0, 1.0]]])
    assert near([v / math.sqrt(59) for v in (7, 3, 1)]) == client.column_sums().numpy()


def test_a_head_without_direction_divides_by_no_zero() -> None:
    """Weights of nothing: the policy takes nothing, and says so for both heads alike."""
    client = example()
    load_into(client.head_p, {"weight": torch.zeros(2, 2)})
    assert [0.0, 0.0] == numbers(client.column_sums())
    assert client(local_data().train.x).isfinite().all()


@pytest.mark.golden("fedcp", item=16)
@pytest.mark.parametrize(("layers", "count"), [(1, 527_360), (2, 790_016), (3, 1_052_672), (4, 1_315_328)])
def test_size_of_the_policy_network(layers: int, count: int) -> None:
    """For the 512 features of the paper's networks, with one to four linear layers."""
    backbone = build("cnn", shape=(1, 28, 28), classes=10)
    client = fedcp.Client(METHOD.settle({"cpn_fc": layers}), backbone, 10)
    assert count == sum(value.numel() for value in client.cpn.parameters())
    names = {f"before{number}" for number in range(1, layers)} | {"fc", "norm"}
    assert names == {name.partition(".")[0] for name, _ in client.cpn.named_parameters()}


@pytest.mark.parametrize(("act", "expected"), [("relu", [2.0, 0.0]), ("tanh", [math.tanh(2), math.tanh(-1)])])
def test_more_layers_stand_before_with_the_same_bend_between(act: str, expected: list[float]) -> None:
    """cpn_fc = 2: what reaches the last linear layer is bent (2, −1)."""
    client = example(cpn_fc=2, cpn_act=act)
    load_into(client.cpn.before1, {"weight": torch.eye(2), "bias": torch.tensor([1.0, -2.0])})
    assert near(expected) == taken_by(client.cpn.fc, lambda: client.cpn(torch.ones(1, 2).double()))[0].numpy()


def taken_by(layer: nn.Module, call: Callable[[], Any]) -> Tensor:
    """What a layer is handed."""
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    call()
    handle.remove()
    return seen[0]


@pytest.mark.golden("fedcp", item=3)
def test_the_norm_is_over_all_numbers_at_once() -> None:
    """Layer norm of (1,2,3,4)."""
    client = saying([1.0, 2.0, 3.0, 4.0])
    assert (
        near([-1.341635, -0.447212, 0.447212, 1.341635])
        == client.cpn[:-1](torch.ones(1, 2).double()).detach().numpy()[0]
    )


def saying(numbers: list[float], **settings: Any) -> fedcp.Client:
    """A participant whose policy network has these numbers before its norm, whatever it takes."""
    client = example(**settings)
    load_into(client.cpn.fc, {"weight": torch.zeros(4, 2), "bias": torch.tensor(numbers)})
    return client


@pytest.mark.golden("fedcp", item=18)
def test_the_norm_comes_before_the_bend() -> None:
    """(1, −2, 3) becomes (0.162221, 0, 1.135549), and not (−0.267260, …) as in GPFL."""
    client = example()
    client.cpn.norm = nn.LayerNorm(3).double()
    behind = client.cpn[1:](torch.tensor([1.0, -2.0, 3.0]).double())
    assert near([0.162221, 0.0, 1.135549]) == behind.detach().numpy()


@pytest.mark.golden("fedcp", item=21)
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0.476704, 0.170052]),
        ({"cpn_norm": "gn"}, [0.5, 0.499995]),
        ({"cpn_act": "tanh"}, [0.296258, 0.183481]),
        ({"cpn_act": "sigmoid"}, [0.435514, 0.380464]),
    ],
    ids=str,
)
def test_variants_of_the_policy_network(settings: dict[str, str], expected: list[float]) -> None:
    """r where the numbers before the norm are (1, 2, 4, 8)."""
    r, s = saying([1.0, 2.0, 4.0, 8.0], **settings).split(torch.ones(1, 2).double(), torch.ones(2).double())
    assert near(expected) == r.detach().numpy()[0]
    assert near([1.0, 1.0], 1e-15) == (r + s).detach().numpy()[0]


def test_batch_norm_is_over_the_samples() -> None:
    """(1,2,4,8) and (3,2,4,0): by their spread ∓1, 0, 0, ±1; bent (0,0,0,1), (1,0,0,0)."""
    client = example(cpn_norm="bn").train()
    rows = torch.tensor([[1.0, 2.0, 4.0, 8.0], [3.0, 2.0, 4.0, 0.0]]).double()
    assert near([[0, 0, 0, 1], [1, 0, 0, 0]], 1e-5) == client.cpn[1:](rows).detach().numpy()
    assert has_batch_norm(client)
    assert {"cpn.norm.running_mean", "cpn.norm.running_var"} <= set(client.stays("train"))
    assert "cpn.norm.weight" in client.travels("train")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("cs_ss", [2.1 * 0.832050, 1.4 * 0.554700]),
        ("ss", FEATURES),
        ("cs", DIRECTION),
        ("random", [0.25, 0.75]),
    ],
)
def test_what_the_policy_network_takes(choice: str, expected: list[float]) -> None:
    """The first sample's features, the site's direction, both multiplied, or fixed numbers."""
    client = example(cpn_input=choice)
    client.probe.copy_(torch.tensor([0.25, 0.75]))
    taken = taken_by(client.cpn, lambda: client(local_data().train.x))
    assert near(expected) == taken[0].numpy()
    assert (choice in ("cs", "random")) == torch.equal(taken[0], taken[1])


def test_random_input_is_drawn_once_for_all() -> None:
    """Numbers from 0 to 1 that follow from the run's seed, in every site's vault and on no wire."""
    first, second = (build_client(fedcp, cpn_input="random") for _ in range(2))
    assert torch.equal(first.probe, second.probe)
    assert 0 < first.probe.min() < first.probe.max() < 1
    assert "probe" in set(first.stays("train")) - set(first.travels("train"))
    assert "probe" not in build_client(fedcp).state_dict()


@pytest.mark.parametrize(
    ("policy", "in_training", "in_use"), [("softmax", 0, 0), ("gumbel", 1, 1), ("gumbel_train", 1, 0)]
)
def test_noise_on_the_policy(policy: str, in_training: int, in_use: int) -> None:
    """r is the logistic function of a_1 + G' − a_2 − G'' with G = −log(−log U)."""
    client, h, v = (
        saying([1.0, 2.0, 4.0, 8.0], policy=policy),
        torch.ones(1, 2).double(),
        torch.ones(2).double(),
    )
    a = client.cpn(h).detach()[0]
    for training, noisy in ((True, in_training), (False, in_use)):
        client.train(training)
        # In training the draws are the site's for the round, in use torch's.
        client._chance = torch.Generator().manual_seed(3)
        chance = torch.Generator().manual_seed(3)
        with generators.scope("noise"):
            own = client.split(h, v, client._draw(h))[0]
        with generators.scope("noise"):
            u = torch.rand(2, 1, 2, generator=chance if training else None, dtype=torch.float64)[:, 0]
        g = -(-u.log()).log() * noisy
        expected = 1 / (1 + (a[2:] + g[1] - a[:2] - g[0]).exp())
        assert near(expected.tolist(), 1e-12) == own.detach().numpy()[0]


def test_noise_follows_from_site_and_round() -> None:
    """The same words give the same model; another round draws otherwise; measuring changes nothing."""
    runs = [
        learned(example(policy="gumbel", diagnose=diagnose), Task(Kind.TRAIN, number, 3))
        for diagnose, number in ((True, 1), (False, 1), (True, 2))
    ]
    assert torch.equal(runs[0].encoder.weight, runs[1].encoder.weight)
    assert not torch.equal(runs[0].encoder.weight, runs[2].encoder.weight)


def learned(client: fedcp.Client, task: Task = TASK, data: LocalData | None = None) -> fedcp.Client:
    """The participant after its training."""
    client.learn(data or local_data(), task)
    return client


# -- a round


@pytest.mark.golden("fedcp", item=19)
def test_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses, their parts, the policy and the weights of two steps; each mistake of item 19 gives another F₂."""
    pulls: list[float] = []

    def watched(*given: Any) -> Tensor:
        value = mmd2(*given)
        pulls.append(value.item())
        return value

    monkeypatch.setattr(fedcp, "mmd2", watched)
    first = example(diagnose=False).learn(local_data(), TASK)
    assert {"loss": near(0.500291), "pir/training": near(0.467473)} == first
    client = example(epochs=2, diagnose=False)
    assert near(DIRECTION) == client.column_sums().numpy()
    assert {"loss": near(0.395555), "pir/training": near(0.456298)} == client.learn(local_data(), TASK)
    assert near([0.0, 0.0, 0.003971]) == pulls
    assert near([1.048696, 0.554894]) == numbers(client.encoder.weight)[0]
    assert near([0.541034, -0.476482]) == numbers(client.head_p.weight)[0]
    sent = client.report(local_data(), TASK).summed
    assert near([0.770517, -0.238241]) == numbers(sent["head_g.weight"].value)[0]
    assert VALUES["head_g.weight"] == numbers(client.head_g.weight)
    assert 0.375701 == pytest.approx(0.395555 - 5 * pulls[2], abs=2e-6)


@pytest.mark.golden("fedcp", item=2)
@pytest.mark.golden("fedcp", item=17)
def test_the_pull_is_a_discrepancy() -> None:
    """λ times 0.982417 for the sets of item 2; a set that stands still pulls with 0, and with no NaN."""
    h = torch.tensor([[0.0, 0, 0], [1, 2, 2]]).double().requires_grad_()
    client = example(**{"lambda": 2.0})
    client._received = (Always([0.0, 3, 4], [1, 2, 2]),)
    assert 2 * 0.982417 == pytest.approx(client._pull(h, h).item(), abs=2e-6)
    client._received = (Always([0.0, 0, 0], [1, 2, 2]),)
    still = client._pull(h, h)
    still.backward()
    assert 0.0 == still.item()
    assert torch.equal(torch.zeros(2, 3).double(), h.grad)


@pytest.mark.parametrize(
    ("settings", "name", "expected"),
    [
        ({"lambda": None}, "cnn", 5.0),
        ({"lambda": None}, "mlp", 1.0),
        ({"lambda": None}, "", 1.0),
        ({"lambda": 3.0}, "cnn", 3.0),
        ({"lambda": 0.0}, "cnn", 0.0),
        ({"lambda": 3.0, "use_gfm": False}, "cnn", 0.0),
    ],
    ids=str,
)
def test_strength_of_the_pull(settings: dict[str, Any], name: str, expected: float) -> None:
    """λ as given, else the paper's for its network; sets of one sample 2 apart differ by 2 − 2 exp(−4/2)."""
    backbone = Backbone(nn.Identity(), nn.Linear(2, 2), 2, name)
    kernel = {"mmd_bandwidths": "1"} if settings.get("use_gfm", True) else {}
    client = fedcp.Client(METHOD.settle({**EXAMPLE, **kernel, **settings}), backbone, 2).double()
    learned(client)
    if client._received:
        client._received = (Always([2.0, 0.0]),)
    x = torch.zeros(1, 2).double()
    assert expected * (2 - 2 * math.exp(-2)) == pytest.approx(client._pull(x, x).item())


def normalised(**settings: Any) -> fedcp.Client:
    """A participant whose encoder has a batch norm with running values far from its batches'."""
    client = build_client(fedcp, norm=True, batch=4, **settings)
    assert isinstance(client, fedcp.Client)
    for name, value in client.named_buffers():
        if name.endswith("running_mean"):
            value.add_(3.0)
    return client


@pytest.mark.golden("fedcp", item=17)
def test_the_received_encoder_uses_its_batch_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a round's first step both encoders are one: the discrepancy is 0, batch norm or not."""
    pulls: list[float] = []
    monkeypatch.setattr(fedcp, "mmd2", lambda *given: (pulls.append(mmd2(*given).item()), mmd2(*given))[1])
    learned(normalised(diagnose=False, **{"lambda": 5.0}), data=build_data())
    assert 0.0 == pulls[0]
    assert all(value > 0 for value in pulls[1:])


def test_the_received_encoder_leaves_no_statistics() -> None:
    """A round that moves no weight leaves the running values of one pass a batch, with and without the pull."""
    with_it, without = (learned(normalised(lr=1e-300, use_gfm=on), data=build_data()) for on in (True, False))
    buffers = dict(without.named_buffers())
    assert all(torch.equal(value, buffers[name]) for name, value in with_it.named_buffers())
    assert not [name for name in with_it.state_dict() if "received" in name]


def test_what_stands_still_in_a_round() -> None:
    """Global head and received encoder keep every bit of their weights; the copy's running values move."""
    client = normalised(epochs=3)
    before = State.of(client)
    learned(client, data=build_data())
    (received,) = client._received
    for name, value in received.named_parameters():
        assert torch.equal(before[f"encoder.{name}"], value), name
    assert not torch.equal(before["encoder.0.weight"], client.encoder[0].weight)
    assert not torch.equal(before["encoder.1.1.running_mean"], received[1][1].running_mean)
    for name, value in client.head_g.state_dict().items():
        assert torch.equal(before[f"head_g.{name}"], value), name
    assert all(value.requires_grad for value in client.parameters())


def test_without_weight_there_is_no_pull() -> None:
    """λ = 0 and use_gfm = false end in the same bits, and λ = 5 does not."""
    weak, off, strong = (
        learned(normalised(epochs=3, **given), data=build_data())
        for given in ({"lambda": 0.0}, {"use_gfm": False}, {"lambda": 5.0})
    )
    assert State.of(weak).keys() == State.of(off).keys()
    assert all(torch.equal(value, State.of(off)[name]) for name, value in State.of(weak).items())
    assert not torch.equal(weak.encoder[0].weight, strong.encoder[0].weight)


def deep(**settings: Any) -> fedcp.Client:
    """A participant whose head has two layers: its direction changes with training."""
    head = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    client = fedcp.Client(METHOD.settle({**EXAMPLE, **settings}), Backbone(nn.Linear(2, 2), head, 2), 2)
    generators.initialise(client, 3)
    return client.double()


def test_the_direction_is_the_rounds_until_the_site_predicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps take v of the round's beginning; a prediction takes it from the head at hand."""
    client, seen = deep(epochs=3, diagnose=False), []
    split = client.split

    def watched(h: Tensor, v: Tensor, noise: Any = 0.0) -> Any:
        seen.append(v)
        return split(h, v, noise)

    monkeypatch.setattr(client, "split", watched)
    before = client.column_sums()
    learned(client)
    client(local_data().test.x)
    *training, use = seen
    assert 3 == len(training)
    assert all(torch.equal(before, v) for v in training)
    assert torch.equal(client.column_sums(), use)
    assert not torch.equal(before, use)


def test_a_head_of_one_layer_keeps_its_direction() -> None:
    """The gradients of cross entropy add up to 0 over the classes: no training turns v."""
    client = example(epochs=20)
    before = client.column_sums()
    assert near(before.tolist(), 1e-12) == learned(client).column_sums().numpy()


@pytest.mark.parametrize(
    ("late", "since", "expected"),
    [(False, 0, "own"), (True, 0, "global"), (True, 2, "own"), (False, 2, "own")],
)
def test_first_personal_head(late: bool, since: int, expected: str) -> None:
    """A site of the roster starts from the first model whenever it comes, a later one from the global head."""
    client = example()
    shared = {
        f"head_g.{name}": torch.full_like(value, 7.0) for name, value in client.head_g.state_dict().items()
    }
    client.receive(State(shared), Task(Kind.TRAIN, 3, 3, since=since, late=late))
    own = VALUES["head_p.weight"] if expected == "own" else [[7.0, 7.0], [7.0, 7.0]]
    assert own == numbers(client.head_p.weight)
    assert [[7.0, 7.0], [7.0, 7.0]] == numbers(client.head_g.weight)


# -- prediction and the switches of the ablation


@pytest.mark.parametrize(
    ("settings", "of_all", "own"),
    [
        ({}, [1.448269, 0.6], [0.025865, 1.087932]),
        ({"use_cpn": False}, [2.2, 1.3], [0.35, 2.125]),
        ({"use_cpn": False, "use_global_head": False}, None, [0.35, 2.125]),
    ],
    ids=str,
)
def test_prediction(settings: dict[str, Any], of_all: list[float] | None, own: list[float]) -> None:
    """h = (2.1, 1.4); r = (0.642032, 0.5) goes to the identity, s to the personal head; or all to both, or to one."""
    views = example(**settings).eval().views(torch.tensor(X[:1]).double())
    assert (
        near([o + (of_all or [0, 0])[i] for i, o in enumerate(own)], 1e-5)
        == views["combined"].detach().numpy()[0]
    )
    assert ({"combined", "global", "personal"} if of_all else {"combined"}) == views.keys()
    if of_all:
        assert near(of_all, 1e-5) == views["global"].detach().numpy()[0]
        assert near(own, 1e-5) == views["personal"].detach().numpy()[0]


ENCODER, HEAD_G = {"encoder.weight", "encoder.bias"}, {"head_g.weight", "head_g.bias"}
CPN = {f"cpn.{layer}.{name}" for layer in ("fc", "norm") for name in ("weight", "bias")}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ENCODER | HEAD_G | CPN),
        ({"use_gfm": False}, ENCODER | HEAD_G | CPN),
        ({"use_cpn": False}, ENCODER | HEAD_G),
        ({"use_cpn": False, "use_global_head": False}, ENCODER),
        ({"cpn_norm": "bn", "bn_policy": "local_stats"}, ENCODER | HEAD_G | CPN),
        (
            {"cpn_norm": "bn", "bn_policy": "local_bn"},
            ENCODER | HEAD_G | CPN - {"cpn.norm.weight", "cpn.norm.bias"},
        ),
        (
            {"cpn_norm": "bn", "bn_policy": "share_all"},
            ENCODER | HEAD_G | CPN | {"cpn.norm.running_mean", "cpn.norm.running_var"},
        ),
        ({"cpn_input": "random"}, ENCODER | HEAD_G | CPN),
    ],
)
def test_what_leaves_the_site(settings: dict[str, Any], expected: set[str]) -> None:
    """Shared modules and nothing else; the vault keeps the rest."""
    client = example(**settings)
    assert expected == set(client.travels("train"))
    assert expected == client.report(local_data(), TASK).summed.keys()
    assert client.state_dict().keys() - expected == set(client.stays("train"))
    assert not client.report(local_data(), TASK).shown


def test_what_is_sent_is_a_mean_of_both_heads_and_what_is_kept_is_not() -> None:
    """((1 + 0.5) / 2, (0 − 0.5) / 2, …); the global head stays as received, whether the update arrives or not."""
    client = example()
    up = client.report(local_data(), TASK).summed
    assert [[0.75, -0.25], [0.125, 1.0]] == numbers(up["head_g.weight"].value)
    assert near([0.05, 0.05]) == numbers(up["head_g.bias"].value)
    assert VALUES["head_g.weight"] == numbers(client.head_g.weight)
    assert VALUES["head_p.weight"] == numbers(client.head_p.weight)


@pytest.mark.parametrize(("aggregation", "expected"), [("samples", 4.0), ("uniform", 3.0)])
def test_the_next_shared_modules_are_means(aggregation: str, expected: float) -> None:
    """Sites of 2 and 6 samples send 1 and 5: (2 · 1 + 6 · 5) / 8 = 4, or (1 + 5) / 2 = 3."""
    client, total = example(aggregation=aggregation), Sum()
    server = METHOD.server(client.settings, None)
    start = server.start(client, seed=1)
    for samples, value in ((2, 1.0), (6, 5.0)):
        load_into(client, {name: torch.full_like(v, value) for name, v in State.of(client).items()})
        data = local_data(X * (samples // 2), (0, 1) * (samples // 2))
        total.add(client.report(data, TASK).summed)
    after = server.close(start, Arrivals(total, {}), TASK).state
    assert ENCODER | HEAD_G | CPN == after.keys()
    assert all((value == expected).all() for value in after.values())


def test_without_everything_it_is_fedper() -> None:
    """No policy, no pull, no global head: the same bits as FedPer after two rounds, running values too."""
    off = {"use_cpn": False, "use_gfm": False, "use_global_head": False, "epochs": 3, "batch": 3}
    client, other = build_client(fedcp, norm=True, **off), build_client(fedper, norm=True, epochs=3, batch=3)
    load_into(client, {name.replace("head.", "head_p."): v for name, v in State.of(other).items()})
    for number in (1, 2):
        told, said = client.learn(build_data(), ask(number)), other.learn(build_data(), ask(number))
        assert said["loss"] == told["loss"]
        renamed = {name.replace("head.", "head_p."): v for name, v in State.of(other).items()}
        assert renamed.keys() == client.state_dict().keys()
        assert all(torch.equal(value, client.state_dict()[name]) for name, value in renamed.items())


# -- what is told


def test_before_and_after() -> None:
    """The objective of item 19 before the first step and before the second, the policy's parts, hits on two samples."""
    client = example()
    told = client.learn(local_data(), TASK) | tasks.diagnose(client, local_data(), TASK)
    assert near(0.500291) == told["objective/before"]
    assert near(0.395555) == told["objective/after"]
    assert near(0.456298) == told["pir/test"]
    shares = (
        client.split(h := client.encoder(local_data().test.x), client.column_sums())[1]
        .mean(dim=1)
        .sort()
        .values
    )
    low, high = shares.tolist()
    assert near([low + 0.1 * (high - low), (low + high) / 2, low + 0.9 * (high - low)]) == [
        told[f"share/p{part}"] for part in (10, 50, 90)
    ]
    assert (2, 2) == tuple(h.shape)
    right = [
        (model(local_data().test.x).argmax(1) == torch.tensor([0, 1])).double().mean().item()
        for model in (example(), client)
    ]
    assert right == [told["accuracy/before"], told["accuracy/after"]]


def test_without_test_samples_only_training_is_told() -> None:
    """And with `diagnose` off nothing is measured that training does not know."""
    data = local_data()
    empty = LocalData(
        data.train, data.validation, data.train.__class__(data.test.x[:0], data.test.y[:0]), 2, "a", 1
    )
    client = example()
    told = client.learn(empty, TASK) | tasks.diagnose(client, empty, TASK)
    assert {"loss", "pir/training", "objective/before", "objective/after"} == told.keys()
    assert {"loss"} == example(diagnose=False, use_cpn=False).learn(data, TASK).keys()
    assert {"loss", "objective/before", "accuracy/before"} == example(use_cpn=False).learn(data, TASK).keys()


def test_of_many_samples_some_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of six here, the same ones each time; their mean is over those two."""
    x, y = [[float(n), 1.0] for n in range(6)], (0, 1, 0, 1, 0, 1)
    monkeypatch.setattr(fedcp, "SEEN", 2)
    some, client = probe(local_data(x, y).train, 2), example(batch=1)
    told = client._assess(local_data(x, y), "before")
    assert told == client._assess(local_data(x, y), "before")
    expected = cross_entropy(example()(some.x), some.y).item()
    assert {
        "objective/before": pytest.approx(expected),
        "accuracy/before": pytest.approx(0.5, abs=0.5),
    } == told


def test_a_participant_that_lives_on_measures_as_a_new_one() -> None:
    """Before training there is no discrepancy: the encoder of the round before is none to compare with."""
    client, anew = (example(**{"lambda": 50, "epochs": 5}) for _ in range(2))
    client.learn(local_data(), TASK)
    load_into(anew, State.of(client))
    told = [each.learn(local_data(), ask(2, since=1))["objective/before"] for each in (client, anew)]
    assert told[0] == told[1]


def test_a_newcomers_batch_norm_is_not_measured_before() -> None:
    """Its running values are not filled yet; from its second round on they are."""
    client = normalised()
    assert "objective/before" not in client.learn(build_data(), ask(1, since=0))
    assert "objective/before" in client.learn(build_data(), ask(2, since=1))


def test_the_policy_of_the_last_epoch_is_told() -> None:
    """Three epochs of two batches: the mean over the samples of the last two."""
    client = example(epochs=3, batch=1, diagnose=False)
    told = client.learn(local_data(), TASK)
    assert 6 == len(client._shares)
    assert told["pir/training"] == pytest.approx(torch.cat(client._shares[4:]).mean().item())


# -- settings


def test_presets_are_the_papers_numbers() -> None:
    """App. D's networks; the code's choices for `repro`."""
    settled = {name: METHOD.settle(preset) for name, preset in fedcp.PRESETS.items()}
    assert {
        "paper": (0.005, None),
        "cnn": (0.005, 5.0),
        "resnet18": (0.1, 1.0),
        "fasttext": (0.1, 1.0),
        "repro": (0.005, None),
    } == {name: (c.lr, c.lambda_) for name, c in settled.items()}
    assert {(0.0, 10, 1)} == {(c.momentum, c.batch, c.epochs) for c in settled.values()}
    assert ("gumbel", True) == (settled["repro"].policy, settled["repro"].drop_last)
    assert {("softmax", False)} == {(c.policy, c.drop_last) for name, c in settled.items() if name != "repro"}


def test_defaults() -> None:
    """What runs when nobody chooses: the paper's method with the product's optimiser."""
    config = METHOD.settle({})
    assert (32, 0.1, 0.5, "samples", "local_stats", "pre") == (
        config.batch,
        config.lr,
        config.momentum,
        config.aggregation,
        config.bn_policy,
        config.eval_point,
    )
    assert (None, (10, 15, 20, 50), "softmax") == (config.lambda_, config.mmd_bandwidths, config.policy)
    assert (1, "ln", "relu", "cs_ss") == (config.cpn_fc, config.cpn_norm, config.cpn_act, config.cpn_input)
    assert (True, True, True) == (config.use_cpn, config.use_gfm, config.use_global_head)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            {"use_global_head": "false"},
            r"use_global_head is false and use_cpn is true(.|\n)*set use_cpn=false",
        ),
        (
            {"cpn_norm": "bn", "cpn_input": "cs"},
            r"cpn_norm is bn and cpn_input is cs(.|\n)*all samples share",
        ),
        ({"cpn_norm": "bn", "cpn_input": "random"}, "cpn_norm is bn and cpn_input is random"),
        ({"use_cpn": "false", "cpn_fc": "2"}, "cpn_fc was given without use_cpn = true"),
        ({"use_cpn": "false", "cpn_norm": "gn"}, "cpn_norm was given without use_cpn = true"),
        ({"use_cpn": "false", "cpn_act": "tanh"}, "cpn_act was given without use_cpn = true"),
        ({"use_cpn": "false", "cpn_input": "ss"}, "cpn_input was given without use_cpn = true"),
        ({"lambda": "-1"}, "lambda"),
        ({"cpn_fc": "5"}, "cpn_fc"),
        ({"cpn_fc": "0"}, "cpn_fc"),
        ({"mmd_bandwidths": "10,0"}, "mmd_bandwidths"),
        ({"mmd_bandwidths": ""}, "mmd_bandwidths"),
        ({"policy": "hard"}, "policy"),
        ({"gumbel": "true"}, "gumbel"),
        ({"use_gfm": "false", "mmd_bandwidths": "10,15"}, "mmd_bandwidths was given without use_gfm = true"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_in_words(wrong: dict[str, str], words: str) -> None:
    """Before anything runs."""
    with pytest.raises(SettingError, match=words):
        METHOD.settle(wrong)


def test_a_preset_may_stand_beside_what_is_left_out() -> None:
    """The tables leave parts out of the paper's settings and out of the code's: λ and the noise then wait."""
    for preset in ("cnn", "repro"):
        METHOD.settle({**fedcp.PRESETS[preset], "use_cpn": False, "use_gfm": False})
