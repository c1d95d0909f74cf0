"""DualFed trains, shares and predicts what the paper says, switch by switch.

The numbers come from `Paper`: the method once more, in numpy and with difference quotients for gradients.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pfl_common import methods
from pfl_common.errors import SettingError
from pfl_common.learning import sgd
from pfl_common.learning.method import Arrivals, LocalData, Samples
from pfl_common.methods import dualfed
from pfl_common.models import Backbone, build
from pfl_common.randomness import generators
from pfl_common.spec.run import Kind, Task
from pfl_common.tensors.state import State, load_into
from pfl_common.tensors.summing import Sum

torch.set_num_threads(1)

METHOD = methods.load("dualfed")
TASK = Task(Kind.TRAIN, round=1, rounds=3)
LABELS = [0, 1, 0, 2, 1, 0]
SMALL: dict[str, Any] = {"batch": 6, "lr": 0.05, "proj_hidden": 3}
ENCODER = {"encoder.fc.weight", "encoder.fc.bias", "encoder.bn.weight", "encoder.bn.bias"}
PROJECTOR = {
    f"projector.{layer}.{name}" for layer in ("fc1", "bn1", "fc2", "bn2") for name in ("weight", "bias")
}
HEAD_P = {"head_p.weight", "head_p.bias"}
HEAD_G = {"head_g.weight", "head_g.bias"}

Values = dict[str, np.ndarray]


def participant(**settings: Any) -> dualfed.Client:
    """A site's half over a small encoder with batch norm, in double precision, with its first values."""
    layers = OrderedDict[str, nn.Module](fc=nn.Linear(3, 4), bn=nn.BatchNorm1d(4))
    backbone = Backbone(nn.Sequential(layers), nn.Linear(4, 3), 4)
    client = dualfed.Client(METHOD.settle({**SMALL, **settings}), backbone, 3)
    generators.initialise(client, 7)
    return client.double()


def local_data(samples: int = 6, site: str = "a") -> LocalData:
    """A few samples of three classes, one class with a single sample."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(samples, 3, generator=generator, dtype=torch.float64)
    part = Samples(x, torch.tensor((LABELS * 2)[:samples]))
    return LocalData(train=part, validation=part, test=part, classes=3, site=site, seed=1)


def numbers(client: nn.Module) -> Values:
    """All floating-point values of a participant."""
    state = client.state_dict()
    return {name: v.clone().numpy() for name, v in state.items() if v.is_floating_point()}


class Paper:
    """Section 4 of the paper for one batch that holds the whole data set."""

    def __init__(self, client: dualfed.Client, **settings: Any) -> None:
        given = {"epochs": 1, "lambda": 1.0, "tau": 0.2, "momentum": 0.5, "proj_depth": 2, "proj_bn": True}
        self.settings = {**given, "gclf_position": "pre", "stage2_bn": "train", **SMALL, **settings}
        self.values = numbers(client)
        data = local_data().train
        self.x, self.y = data.x.numpy(), data.y.numpy()

    def learn(self) -> Values:
        """Run one round and return what became of all values."""
        if self.settings.get("train_mode") == "simultaneous":
            self.descend(
                lambda: self.first_loss() + self.second_loss(), "encoder", "projector", "head_p", "head_g"
            )
        else:
            self.descend(self.first_loss, "encoder", "projector", "head_p")
            self.descend(self.second_loss, "head_g", batch=self.settings["stage2_bn"] == "train")
        return self.values

    def descend(self, loss: Callable[[], float], *modules: str, batch: bool = True) -> None:
        self.batch, statistics = batch, ("running_mean", "running_var")
        chosen = [n for n in self.values if n.startswith(modules) and not n.endswith(statistics)]
        velocity = {name: np.zeros_like(self.values[name]) for name in chosen}
        for _ in range(self.settings["epochs"]):
            gradients = {name: self.slope(loss, self.values[name]) for name in chosen}
            self.follow_statistics()
            for name in chosen:
                velocity[name] = self.settings["momentum"] * velocity[name] + gradients[name]
                self.values[name] -= self.settings["lr"] * velocity[name]

    @staticmethod
    def slope(loss: Callable[[], float], value: np.ndarray) -> np.ndarray:
        result = np.zeros_like(value)
        for place in np.ndindex(value.shape):
            before = value[place]
            for steps, weight in ((1, 8.0), (-1, -8.0), (2, -1.0), (-2, 1.0)):
                value[place] = before + steps * 2e-5
                result[place] += weight * loss() / 24e-5
            value[place] = before
        return result

    def first_loss(self) -> float:
        u = self.representations()[1]
        return self.cross_entropy(u, "head_p") + self.settings["lambda"] * self.contrast(u)

    def second_loss(self) -> float:
        z, u = self.representations()
        return self.cross_entropy(z if self.settings["gclf_position"] == "pre" else u, "head_g")

    def linear(self, x: np.ndarray, layer: str) -> np.ndarray:
        return x @ self.values[f"{layer}.weight"].T + self.values[f"{layer}.bias"]

    def norm(self, x: np.ndarray, layer: str) -> np.ndarray:
        self.seen[layer] = x
        mean, var = self.values[f"{layer}.running_mean"], self.values[f"{layer}.running_var"]
        if self.batch:
            mean, var = x.mean(0), x.var(0)
        scaled = (x - mean) / np.sqrt(var + 1e-5)
        return scaled * self.values[f"{layer}.weight"] + self.values[f"{layer}.bias"]

    def representations(self) -> tuple[np.ndarray, np.ndarray]:
        self.seen: Values = {}
        z = u = self.norm(self.linear(self.x, "encoder.fc"), "encoder.bn")
        depth = self.settings["proj_depth"]
        for number in range(1, depth + 1):
            u = self.linear(u, f"projector.fc{number}")
            u = np.maximum(u, 0) if number < depth else u
            u = self.norm(u, f"projector.bn{number}") if self.settings["proj_bn"] else u
        return z, u

    def follow_statistics(self) -> None:
        """Each running value takes a tenth of the batch's, the variance with n − 1."""
        self.representations()
        for layer, x in self.seen.items() if self.batch else ():
            for name, value in (("running_mean", x.mean(0)), ("running_var", x.var(0, ddof=1))):
                self.values[f"{layer}.{name}"] = 0.9 * self.values[f"{layer}.{name}"] + 0.1 * value

    def cross_entropy(self, x: np.ndarray, head: str) -> float:
        scores = self.linear(x, head)
        return float(np.mean([np.log(np.exp(s).sum()) - s[y] for s, y in zip(scores, self.y, strict=True)]))

    def contrast(self, u: np.ndarray) -> float:
        u = u / np.linalg.norm(u, axis=1, keepdims=True)
        s, total, everyone = u @ u.T / self.settings["tau"], 0.0, range(len(u))
        for a in everyone:
            others = [c for c in everyone if c != a]
            own = [b for b in others if self.y[b] == self.y[a]]
            total -= sum(s[a, b] - np.log(np.exp(s[a, others]).sum()) for b in own) / max(len(own), 1)
        return float(total / len(u))


SWITCHES: list[dict[str, Any]] = [
    {},
    {"train_mode": "simultaneous"},
    {"train_mode": "simultaneous", "gclf_position": "post_G"},
    {"stage2_bn": "eval"},
    {"proj_depth": 1},
    {"proj_depth": 3, "proj_hidden": 7},
    {"proj_hidden": 5},
    {"proj_bn": False},
    {"gclf_position": "post_P"},
    {"gclf_position": "post_G"},
    {"lambda": 0.0},
    {"lambda": 40.0, "lr": 0.001},
    {"tau": 0.05},
    {"epochs": 3},
    {"epochs": 3, "momentum": 0.0},
    {"epochs": 2, "train_mode": "simultaneous"},
]


@pytest.mark.parametrize(
    "switches", SWITCHES, ids=lambda s: "-".join(f"{k}={v}" for k, v in s.items()) or "default"
)
def test_a_round_ends_where_the_paper_says(switches: dict[str, Any]) -> None:
    """Every weight and running value after one round, for each way to train."""
    client = participant(**switches)
    expected = Paper(client, **switches).learn()
    client.learn(local_data(), TASK)
    ended = numbers(client)
    assert expected.keys() == ended.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(ended[name], value, rtol=0, atol=1e-8, err_msg=name)


@pytest.mark.parametrize(("mode", "factor"), [("train", 0.19), ("eval", 0.1)])
def test_stage_two_moves_running_statistics_or_not(mode: str, factor: float) -> None:
    """With still weights, a mean m makes 0.1 m in stage 1 and 0.9 · 0.1 m + 0.1 m = 0.19 m in stage 2."""
    client, data = participant(stage2_bn=mode, lr=1e-300), local_data()
    with torch.no_grad():
        inner = client.encoder.fc(data.train.x)
        last = client.projector[:-1].train()(client.encoder.train()(data.train.x))
    for layer in (client.encoder.bn, client.projector.bn1, client.projector.bn2):
        layer.reset_running_stats()
    client.learn(data, TASK)
    np.testing.assert_allclose(client.encoder.bn.running_mean, factor * inner.mean(0), rtol=1e-12)
    np.testing.assert_allclose(
        client.projector.bn2.running_mean, factor * last.mean(0), rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_each_stage_leaves_the_other_ones_weights_alone(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stage 1 changes no bit of the global head, stage 2 no bit of anything else that is trained."""
    client, snapshots, train = participant(stage2_bn=mode, epochs=2, batch=4), [], sgd.train

    def watched(*given: Any, **named: Any) -> float:
        snapshots.append({name: p.detach().clone() for name, p in client.named_parameters()})
        return train(*given, **named)

    monkeypatch.setattr(sgd, "train", watched)
    client.learn(local_data(), TASK)
    snapshots.append({name: p.detach().clone() for name, p in client.named_parameters()})
    changed = [{n for n in a if not a[n].equal(b[n])} for a, b in pairwise(snapshots)]
    assert [ENCODER | PROJECTOR | HEAD_P, HEAD_G] == changed
    assert all(p.requires_grad for p in client.parameters())


@dataclasses.dataclass(frozen=True)
class Watched(LocalData):
    """A site's data that remembers which shuffles were asked for."""

    shuffles: list[int] = dataclasses.field(default_factory=list)

    def batches(self, task: Task, epoch: int, **named: Any) -> Iterator[Any]:
        """Note the epoch's number."""
        self.shuffles.append(epoch)
        return super().batches(task, epoch, **named)


@pytest.mark.parametrize(
    ("mode", "names", "expected"),
    [("stagewise", {"loss", "loss_global"}, [0, 1, 2, 3, 4, 5]), ("simultaneous", {"loss"}, [0, 1, 2])],
)
def test_passes_over_the_data(mode: str, names: set[str], expected: list[int]) -> None:
    """2E passes with orders of their own in two stages, E in one; each stage has a curve."""
    data = Watched(**vars(local_data()))
    metrics = participant(train_mode=mode, epochs=3).learn(data, TASK)
    assert expected == data.shuffles
    assert names == metrics.keys()
    assert all(np.isfinite(value) for value in metrics.values())


def plain_participant(**settings: Any) -> dualfed.Client:
    """A participant whose z and u are its two inputs, and whose personal head says nothing."""
    config = METHOD.settle({"lr": 1e-300, "batch": 4, **settings})
    client = dualfed.Client(config, Backbone(nn.Sequential(nn.Identity()), nn.Linear(2, 3), 2), 3)
    client.projector = nn.Sequential()
    load_into(client.head_p, {"weight": torch.zeros(3, 2), "bias": torch.zeros(3)})
    return client.double()


def plain_data(x: list[list[float]], labels: list[int]) -> LocalData:
    """These samples, to train on and to test with."""
    part = Samples(torch.tensor(x, dtype=torch.float64), torch.tensor(labels))
    return LocalData(train=part, validation=part, test=part, classes=3, site="a", seed=1)


@pytest.mark.golden("dualfed", item=1)
@pytest.mark.parametrize(
    ("labels", "contrast"), [([0, 1, 0, 1], 0.774359), ([0, 1, 0, 2], 0.241504)], ids=["pairs", "singletons"]
)
@pytest.mark.parametrize("strength", [1.0, 2.5])
def test_golden_contrast(labels: list[int], contrast: float, strength: float) -> None:
    """Four directions, tau 0.5: log 3 of a head that says nothing, and lambda times the contrast, over all 4."""
    data = plain_data([[1, 0], [0, 1], [1, 1], [-1, 0]], labels)
    loss = plain_participant(tau=0.5, **{"lambda": strength}).learn(data, TASK)["loss"]
    assert np.log(3) + strength * contrast == pytest.approx(loss, abs=1e-5 * strength)


@pytest.mark.golden("dualfed", item=13)
def test_golden_separation() -> None:
    """Two classes of two directions: R² 0.744521, for z; u is z with its second number taken away."""
    client, data = plain_participant(), plain_data([[1, 0], [1, 1], [0, 1], [-1, 1]], [0, 0, 1, 1])
    client.projector = nn.Linear(2, 2, bias=False).double()
    load_into(client.projector, {"weight": torch.tensor([[1.0, 0.0], [0.0, 0.0]])})
    with torch.no_grad():
        told = client.eval().diagnose(data, TASK)
    assert 0.744521 == pytest.approx(told["separation/before"], abs=1e-5)
    # Directions (1,0), (1,0) | 0, (-1,0): centres 1 and -0.5; within (0 + 0.75) / 2, total 1 - 0.25².
    assert 1 - 0.375 / 0.9375 == pytest.approx(told["separation/after"], abs=1e-12)


def test_without_a_test_set_no_separation_is_told() -> None:
    """A site may have none."""
    data = dataclasses.replace(local_data(), test=Samples(torch.zeros(0, 3).double(), torch.zeros(0).long()))
    assert {} == participant().eval().diagnose(data, TASK)


def test_with_nothing_personal_both_heads_are_global() -> None:
    """lambda = 0 and personal = 0,0,0,0: after a download two sites that trained apart have the same heads."""
    clients = [participant(personal="0,0,0,0", **{"lambda": 0.0}) for _ in range(2)]
    for client, samples in zip(clients, (6, 4), strict=True):
        client.learn(local_data(samples), TASK)
    assert numbers(clients[0])["head_p.weight"].tolist() != numbers(clients[1])["head_p.weight"].tolist()
    common = State.of(clients[0], clients[0].travels("train"))
    for client in clients:
        client.receive(common, TASK)
    for name in HEAD_P | HEAD_G:
        np.testing.assert_array_equal(numbers(clients[0])[name], numbers(clients[1])[name])


def fixed_heads(**settings: Any) -> dualfed.Client:
    """A participant whose heads always say (0, −10, 0.5) and (0, 3, 0)."""
    client = participant(**settings).eval()
    for head, bias in ((client.head_g, [0.0, -10.0, 0.5]), (client.head_p, [0.0, 3.0, 0.0])):
        load_into(head, {"weight": torch.zeros(3, 4), "bias": torch.tensor(bias)})
    return client


@pytest.mark.parametrize(
    ("ensemble", "expected", "prediction"),
    [("prob", [0.422812, 0.909460, 0.667727], 1), ("logit", [0.0, -7.0, 0.5], 2)],
)
def test_both_heads_are_added(ensemble: str, expected: list[float], prediction: int) -> None:
    """(0.377534, 0.000017, 0.622449) + (0.045279, 0.909443, 0.045279), or logits: another class."""
    client, x = fixed_heads(ensemble=ensemble), local_data().train.x[:1]
    views = client.views(x)
    assert expected == pytest.approx(views["combined"][0].tolist(), abs=2e-5)
    assert prediction == client(x).argmax().item()
    assert [0.0, -10.0, 0.5] == views["global"][0].tolist()
    assert [0.0, 3.0, 0.0] == views["personal"][0].tolist()
    assert {"combined", "global", "personal"} == views.keys()


@pytest.mark.parametrize(("position", "seen"), [("pre", 0), ("post_P", 1), ("post_G", 1)])
def test_position_of_the_global_head(position: str, seen: int) -> None:
    """The global head takes z before the projector, or u after it; the personal one always takes u."""
    client, x = participant(gclf_position=position).eval(), local_data().train.x
    z, u = numbers_of(client.encoder(x)), numbers_of(client.projector(client.encoder(x)))
    weights = numbers(client)
    expected = (z, u)[seen] @ weights["head_g.weight"].T + weights["head_g.bias"]
    np.testing.assert_allclose(numbers_of(client.views(x)["global"]), expected)
    own = u @ weights["head_p.weight"].T + weights["head_p.bias"]
    np.testing.assert_allclose(numbers_of(client.views(x)["personal"]), own)


def numbers_of(value: torch.Tensor) -> np.ndarray:
    """A result as plain numbers."""
    return value.detach().numpy()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ENCODER | HEAD_G),
        ({"personal": "0,1,1,1"}, ENCODER),
        ({"personal": "0,1,1,0"}, ENCODER | HEAD_G),
        ({"personal": "0,0,0,0"}, ENCODER | PROJECTOR | HEAD_P | HEAD_G),
        ({"personal": "0,0,1,0"}, ENCODER | PROJECTOR | HEAD_G),
        ({"personal": "1,1,1,1"}, set()),
        ({"personal": "1,0,0,0"}, PROJECTOR | HEAD_P | HEAD_G),
        ({"gclf_position": "post_P"}, ENCODER | HEAD_G),
        ({"gclf_position": "post_G"}, ENCODER | PROJECTOR | HEAD_G),
        ({"gclf_position": "post_G", "personal": "0,1,1,1"}, ENCODER | PROJECTOR),
        ({"gclf_position": "post_G", "personal": "1,1,1,1"}, set()),
        ({"bn_policy": "local_bn"}, ENCODER - {"encoder.bn.weight", "encoder.bn.bias"} | HEAD_G),
        (
            {"bn_policy": "share_all"},
            ENCODER | {"encoder.bn.running_mean", "encoder.bn.running_var"} | HEAD_G,
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_leaves_the_site(settings: dict[str, Any], expected: set[str]) -> None:
    """Shared modules and nothing else are reported; the vault keeps the rest, counters included."""
    client = participant(**settings)
    assert expected == set(client.travels("train"))
    assert expected == client.report(local_data(), TASK).summed.keys()
    assert client.state_dict().keys() - expected == set(client.stays("train"))
    assert expected == dualfed.Server(client.settings, spec=None).start(client, seed=1).keys()


@pytest.mark.parametrize(("aggregation", "expected"), [("uniform", 3.0), ("samples", 4.0)])
def test_every_site_counts_alike(aggregation: str, expected: float) -> None:
    """Sites of 2 and 6 samples send 1 and 5: (1 + 5) / 2 = 3, or (2 · 1 + 6 · 5) / 8 = 4."""
    client, total = participant(aggregation=aggregation), Sum()
    server = dualfed.Server(client.settings, spec=None)
    start = server.start(client, seed=1)
    for samples, value in ((2, 1.0), (6, 5.0)):
        load_into(client, {name: torch.full_like(v, value) for name, v in start.items()})
        total.add(client.report(local_data(samples), TASK).summed)
    after = server.close(start, Arrivals(total, {}), TASK).state
    assert start.keys() == after.keys()
    assert all((value == expected).all() for value in after.values())


def test_default_aggregation_is_uniform() -> None:
    """A site counts 1, however much it has."""
    assert participant().weight(local_data(5)).item() == 1


def test_a_download_leaves_personal_modules_alone() -> None:
    """Receiving overwrites encoder and global head, not projector, personal head or running statistics."""
    client, other = participant(), participant()
    client.learn(local_data(), TASK)
    mine = numbers(client)
    client.receive(State.of(other, other.travels("train")), TASK)
    now, theirs = numbers(client), numbers(other)
    for name in now:
        expected = theirs if name in ENCODER | HEAD_G else mine
        np.testing.assert_array_equal(now[name], expected[name], err_msg=name)


def test_twins_agree() -> None:
    """Two sites alike in data, values and chance send the same, and their mean is what each sent."""
    results, total = [], Sum()
    for _ in range(2):
        client = participant(batch=4)
        client.learn(local_data(), TASK)
        up = client.report(local_data(), TASK).summed
        total.add(up)
        results.append({name: term.value for name, term in up.items()})
    mean = total.mean(otherwise=State(results[0]))
    for name, value in results[0].items():
        assert value.equal(results[1][name])
        assert value.equal(mean[name])


def residual_client(classes: int, **settings: Any) -> dualfed.Client:
    """The paper's network."""
    config = METHOD.settle(settings)
    return dualfed.Client(config, build("resnet18", shape=(3, 64, 64), classes=classes), classes)


def size(client: dualfed.Client, names: Iterable[str]) -> int:
    """How many numbers are under these names."""
    return sum(client.state_dict()[name].numel() for name in names)


def test_bytes_of_a_transfer() -> None:
    """ResNet-18 and 7 classes: 11,176,512 + 512 · 7 + 7 numbers travel; the paper charged 264,448 more."""
    plain, paper = residual_client(7), residual_client(7, paper_accounting=True)
    sent = 4 * size(plain, plain.travels("train"))
    assert 4 * 11_180_103 == sent
    assert sent == dualfed.accounted_bytes(plain, sent)
    assert 4 * 11_444_551 == dualfed.accounted_bytes(paper, sent)


@pytest.mark.parametrize("settings", [{"gclf_position": "post_G"}, {"personal": "0,0,1,0"}])
def test_a_projector_that_travels_is_counted_once(settings: dict[str, Any]) -> None:
    """There is nothing to add to what was really sent."""
    assert dualfed.accounted_bytes(participant(paper_accounting=True, **settings), 1000) == 1000


@pytest.mark.parametrize(
    ("settings", "added"),
    [
        ({}, 4 * 3 + 3 + 2 * 3 + 3 * 4 + 4 + 2 * 4),
        ({"proj_bn": False}, 4 * 3 + 3 + 3 * 4 + 4),
        ({"proj_depth": 1}, 4 * 4 + 4 + 2 * 4),
        ({"bn_policy": "share_all"}, 4 * 3 + 3 + 4 * 3 + 3 * 4 + 4 + 4 * 4),
    ],
    ids=str,
)
def test_charge_for_the_projector(settings: dict[str, Any], added: int) -> None:
    """Four bytes for each number that would travel if the projector were shared."""
    client = participant(paper_accounting=True, **settings)
    assert 1000 + 4 * added == dualfed.accounted_bytes(client, 1000)


def test_presets_are_settings() -> None:
    """Each preset can be applied and says what the paper says; `repro` what its code says of itself."""
    settled = {name: METHOD.settle(preset) for name, preset in dualfed.PRESETS.items()}
    assert {"pacs": (40.0, 0.2), "domainnet": (2.0, 0.05), "office-home": (2.0, 0.05)} == {
        name: (c.lambda_, c.tau) for name, c in settled.items() if name not in ("paper", "repro")
    }
    code = settled["repro"]
    assert (40.0, 0.2, "logit", "train") == (code.lambda_, code.tau, code.ensemble, code.stage2_bn)
    assert (1.0, 0.2, "prob") == (settled["paper"].lambda_, settled["paper"].tau, settled["paper"].ensemble)
    assert {(0.01, 0.5, 256, 1)} == {(c.lr, c.momentum, c.batch, c.epochs) for c in settled.values()}


def test_defaults() -> None:
    """What runs when nobody chooses: the paper's method with mild values."""
    config = METHOD.settle({})
    assert (1, 32, 0.1, 0.5, 0.0) == (
        config.epochs,
        config.batch,
        config.lr,
        config.momentum,
        config.weight_decay,
    )
    assert ("uniform", "local_stats", "pre") == (config.aggregation, config.bn_policy, config.eval_point)
    assert (1.0, 0.2, "stagewise", "train", "prob") == (
        config.lambda_,
        config.tau,
        config.train_mode,
        config.stage2_bn,
        config.ensemble,
    )
    assert (2, 256, True, "pre") == (
        config.proj_depth,
        config.proj_hidden,
        config.proj_bn,
        config.gclf_position,
    )
    assert (False, True, True, False) == config.personal
    assert not config.paper_accounting


@pytest.mark.parametrize(
    "wrong",
    [
        {"tau": "0"},
        {"lambda": "-1"},
        {"proj_depth": "4"},
        {"proj_hidden": "0"},
        {"personal": "0,1,1"},
        {"gclf_position": "post"},
        {"train_mode": "both"},
        {"temperature": "1"},
    ],
    ids=str,
)
def test_wrong_settings_are_named(wrong: dict[str, str]) -> None:
    """A setting that makes no sense is refused before anything runs, by its name."""
    (name,) = wrong
    with pytest.raises(SettingError, match=name):
        METHOD.settle(wrong)


def test_a_second_stage_that_is_not_there_has_no_batch_norm() -> None:
    """With one stage for all modules the word would change nothing: it is refused."""
    with pytest.raises(SettingError, match="stage2_bn was given without train_mode = stagewise"):
        METHOD.settle({"train_mode": "simultaneous", "stage2_bn": "eval"})


@pytest.mark.golden("dualfed", item=25)
@pytest.mark.parametrize(("ensemble", "winner"), [("logit", 0), ("prob", 1)])
def test_golden_ensemble(ensemble: str, winner: int) -> None:
    """o_g = (2, 0, 0) and o_p = (0, 1.9, −10): the sum of logits says class 0, that of probabilities class 1."""
    client = fixed_heads(ensemble=ensemble)
    for head, bias in ((client.head_g, [2.0, 0.0, 0.0]), (client.head_p, [0.0, 1.9, -10.0])):
        load_into(head, {"bias": torch.tensor(bias)})
    assert winner == client(local_data().train.x[:1]).argmax().item()


def test_no_secret_is_shown() -> None:
    """All that leaves is summed: secure sums can be used."""
    assert METHOD.shows == ""
    assert not participant().report(local_data(), TASK).shown
