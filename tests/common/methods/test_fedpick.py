"""FedPick: what is picked, what is left, and four losses that all learn at once."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pfl_common.errors import SettingError
from pfl_common.learning.method import Batch, LocalData, Samples
from pfl_common.methods import fedbn, fedpick, load
from pfl_common.models import Backbone
from pfl_common.randomness import generators
from pfl_common.tensors.state import State, load_into
from tests.common.methods.toy import ask, build_backbone, build_client, build_data, build_spec, equal, gather

METHOD = load("fedpick")
FEATURES = [[1.0, 2.0], [2.0, 1.0]]
LOGITS = [[0.3, -0.2], [0.5, -1.5]]
UNIFORM = [[[0.5, 0.25], [0.25, 0.5]], [[0.25, 0.5], [0.5, 0.25]]]
HEADS = {
    "head_g": [[1.0, 0.0], [0.0, 1.0], [-1.0, 1.0]],
    "head_p": [[1.0, -1.0], [0.0, 1.0], [0.5, 0.0]],
    "head_u": [[0.0, 1.0], [1.0, 0.0], [0.0, -1.0]],
}


class InOrder(LocalData):
    """A site's data whose batches come as they lie, so that an example's noise meets its sample."""

    def batches(self, task: Any, epoch: int, **named: Any) -> Iterator[Batch]:
        """One batch of all samples."""
        yield self.train.x, self.train.y


class Given(nn.Module):
    """A selection that says what an example says, whatever the features are."""

    def __init__(self, logits: list[list[float]]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits, dtype=torch.float64))

    def forward(self, z: Tensor) -> Tensor:
        """The example's logits."""
        return self.logits


def double(values: Any) -> Tensor:
    """Numbers in double precision."""
    return torch.tensor(values, dtype=torch.float64)


def build_example(**settings: Any) -> fedpick.Client:
    """Two samples, two features, three classes: the features are the encoder's own weights, for x is the identity."""
    plain = {"lr": 1.0, "momentum": 0.0, "batch": 2, "diagnose": False}
    backbone = Backbone(nn.Linear(2, 2, bias=False), nn.Linear(2, 3, bias=False), 2)
    client = fedpick.Client(METHOD.settle({**plain, **settings}), backbone, 3).double()
    client.pfsm["select"] = Given(LOGITS)
    heads = {f"{name}.weight": double(weight) for name, weight in HEADS.items()}
    load_into(client, {"encoder.weight": double(FEATURES).T.contiguous(), **heads})
    return client


def example_data() -> LocalData:
    """Classes 0 and 2."""
    part = Samples(torch.eye(2, dtype=torch.float64), torch.tensor([0, 2]))
    return InOrder(train=part, validation=part, test=part, classes=3, site="a", seed=7)


def step(
    client: fedpick.Client, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """One step of rate 1 with the example's noise: what was told, and the gradients."""
    monkeypatch.setattr(torch, "rand", lambda *_, **__: double(UNIFORM))
    before = {name: value.clone() for name, value in client.state_dict().items()}
    told = client.learn(example_data(), ask())
    return told, {name: before[name] - value for name, value in client.state_dict().items()}


CASES: dict[str, dict[str, Any]] = {
    "mild": {
        "settings": {},
        "total": 4.189311,
        "logits": [[0.026923, -0.112513], [-0.096564, 0.083132]],
        "features": [[-0.516223, 0.674790], [1.345347, -0.667435]],
        "soft": [[0.729709, 0.290461], [0.451863, 0.308562]],
    },
    "digits": {
        "settings": {"tau": 10.0, "lambda_lce": 10.0, "lambda_dis": 10.0},
        "total": 19.846256,
        "logits": [[0.034020, -0.136141], [-0.097400, 0.097245]],
        "features": [[-0.662234, 3.200211], [5.936118, -3.499794]],
        "soft": [[0.524808, 0.477686], [0.495171, 0.479840]],
    },
}


@pytest.mark.golden("fedpick", item=25)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_worked_example(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """All four terms, their sum, and its gradients with respect to the selection's logits and the features."""
    client = build_example(**case["settings"])
    told, slopes = step(client, monkeypatch)
    assert {
        "loss": pytest.approx(case["total"], abs=1e-5),
        "part/gce": pytest.approx(2.450228, abs=1e-5),
        "part/lce": pytest.approx(0.889441, abs=1e-5),
        "part/ent": pytest.approx(-0.577462, abs=1e-5),
        "part/dis": pytest.approx(0.850219, abs=1e-5),
    } == told
    torch.testing.assert_close(slopes["pfsm.select.logits"], double(case["logits"]), rtol=0, atol=2e-6)
    torch.testing.assert_close(slopes["encoder.weight"].T, double(case["features"]), rtol=0, atol=2e-6)


@pytest.mark.golden("fedpick", item=25)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_worked_masks(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The sigmoids, and the mask: (1, 0), (0, 0) for either temperature."""
    monkeypatch.setattr(torch, "rand", lambda *_, **__: double(UNIFORM))
    hard, z = build_example(**case["settings"]), double(FEATURES)
    noise = fedpick.draw_noise(z, torch.Generator())
    soft = build_example(**case["settings"], mask="soft")
    torch.testing.assert_close(soft.pick(z, noise), double(case["soft"]), rtol=0, atol=1e-6)
    assert [[1.0, 0.0], [0.0, 0.0]] == hard.pick(z, noise).tolist()


@pytest.mark.golden("fedpick", item=25)
@pytest.mark.parametrize(("ensemble", "winner"), [("logit", 0), ("prob", 1), ("global_only", 0)])
def test_who_predicts(ensemble: str, winner: int) -> None:
    """o_g = (2, 0, 0) and o_p = (0, 1.9, −10): the logits' sum says class 0, that of the probabilities class 1."""
    client = constant_heads((2.0, 0.0, 0.0), (0.0, 1.9, -10.0), ensemble=ensemble)
    views = client.views(torch.zeros(1, 2))
    assert winner == client(torch.zeros(1, 2)).argmax().item()
    assert [2.0, 0.0, 0.0] == views["global"][0].tolist()
    assert [0.0, pytest.approx(1.9), -10.0] == views["personal"][0].tolist()
    if ensemble == "global_only":
        assert [2.0, 0.0, 0.0] == views["combined"][0].tolist()


def constant_heads(*scores: tuple[float, float, float], **settings: Any) -> fedpick.Client:
    """A participant whose heads say the same of every sample: head_g, head_p, head_u."""
    client = build_client(fedpick, **settings).eval()
    for name, bias in zip(HEADS, scores, strict=False):
        load_into(client.get_submodule(name), {"weight": torch.zeros(3, 3), "bias": torch.tensor(bias)})
    return client


@pytest.mark.golden("fedpick", item=6)
def test_divergence_entropy_and_ensemble() -> None:
    """KL in both directions is 0.463214 + 0.379738; the entropy of (0.5, 0, 0) is next to the largest, log 3."""
    client = constant_heads((2.0, 0.0, -1.0), (1.0, 1.0, 0.0), (0.5, 0.0, 0.0), lr=1e-9)
    told = client.learn(build_data(labels=(0, 1, 2)), ask())
    assert 0.842952 == pytest.approx(told["part/dis"], abs=1e-5)
    assert -1.068445 == pytest.approx(told["part/ent"], abs=1e-5)
    combined = client.eval()(torch.zeros(1, 2)).softmax(1)[0]
    assert [0.866813, 0.117310, 0.015876] == pytest.approx(combined.tolist(), abs=1e-5)


@pytest.mark.golden("fedpick", item=6)
@pytest.mark.parametrize(("tau", "soft"), [(1.0, 0.729709), (10.0, 0.524808)])
def test_gumbel_noise(tau: float, soft: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """U = 0.5 and 0.25 become 0.366513 and −0.326634; with a logit of 0.3 the sigmoid is over one half."""
    monkeypatch.setattr(torch, "rand", lambda *_, **__: double([[[0.5, 0.5]], [[0.25, 0.25]]]))
    noise = fedpick.draw_noise(double([[1.0, 1.0]]), torch.Generator())
    assert [[pytest.approx(0.366513 + 0.326634, abs=1e-5)] * 2] == noise.tolist()
    logits = [[0.3, 0.3]]
    for mask, expected in (("soft", soft), ("hard", 1.0)):
        client = build_example(tau=tau, mask=mask)
        client.pfsm["select"] = Given(logits)
        assert [[pytest.approx(expected, abs=1e-5)] * 2] == client.pick(double([[1.0, 1.0]]), noise).tolist()


@pytest.mark.golden("fedpick", item=16)
@pytest.mark.parametrize(("features", "expected"), [(8192, 67_121_152), (4096, 16_783_360)])
def test_size_of_the_selection(features: int, expected: int) -> None:
    """Linear(d, d/2) and Linear(d/2, d), with biases."""
    with torch.device("meta"):
        client = fedpick.Client(
            METHOD.settle({}), Backbone(nn.Identity(), nn.Linear(features, 10), features), 10
        )
        assert expected == sum(p.numel() for p in client.pfsm.parameters())


@pytest.mark.parametrize(("features", "between"), [(3, 1), (1, 1), (4, 2), (7, 3)])
def test_width_of_the_selection(features: int, between: int) -> None:
    """Half the features, rounded down, and at least one."""
    layers = fedpick.build_selection(features)
    assert ((features, between), (between, features)) == (
        (layers.fc1.in_features, layers.fc1.out_features),
        (layers.fc2.in_features, layers.fc2.out_features),
    )


# -- the mask


def test_a_hard_mask_is_exactly_zero_or_one() -> None:
    """Also in training, where it carries a gradient: picked and left add up to all, to the last bit."""
    client = build_client(fedpick)
    z, noise = (torch.randn(200, 3, generator=generators.generator("z", n)) for n in "ab")
    m = client.pick(z, noise)
    assert {0.0, 1.0} == set(m.flatten().tolist())
    assert torch.equal(z, z * m + z * (1 - m))
    assert m.requires_grad


@pytest.mark.parametrize(
    ("settings", "logit", "expected"),
    [
        ({}, 0.0, 1.0),
        ({}, -1e-9, 0.0),
        ({"tau": 10.0}, -1e-9, 0.0),
        ({"epsilon": 0.25, "tau": 10.0}, 10 * log(1 / 3) + 0.01, 1.0),
        ({"epsilon": 0.25, "tau": 10.0}, 10 * log(1 / 3) - 0.01, 0.0),
        ({"epsilon": 0.75}, log(3) - 0.01, 0.0),
        ({"mask": "soft"}, 1.0, 0.731059),
        ({"mask": "soft", "tau": 10.0}, 1.0, 0.524979),
    ],
    ids=str,
)
def test_what_is_picked_without_noise(settings: dict[str, Any], logit: float, expected: float) -> None:
    """From a logit of τ log(ε/(1−ε)) on; the sigmoid of −1e-9 is rounded to one half. A soft mask is σ(logit/τ)."""
    client = build_client(fedpick, **settings)
    nn.init.zeros_(client.pfsm["select"].fc2.weight)
    nn.init.constant_(client.pfsm["select"].fc2.bias, logit)
    assert [pytest.approx(expected, abs=1e-6)] * 3 == client.pick(torch.ones(1, 3))[0].tolist()


def test_the_selection_s_gradient_reaches_the_encoder() -> None:
    """One feature z = 1, both layers 1: the logit is 1, and the hard mask has the slope σ'(1) = 0.196612."""
    client = fedpick.Client(METHOD.settle({}), Backbone(nn.Identity(), nn.Linear(1, 2), 1), 2)
    with torch.no_grad():
        for name, value in client.pfsm.named_parameters():
            value.fill_(float(name.endswith("weight")))
    z = torch.ones(1, 1, requires_grad=True)
    client.pick(z).sum().backward()
    assert 0.196612 == pytest.approx(z.grad.item(), abs=1e-6)


def test_soft_masks_weigh_features() -> None:
    """Picked is z σ, left z (1 − σ): with σ = 1/2 both heads see half of z."""
    client = build_client(fedpick, mask="soft")
    nn.init.zeros_(client.pfsm["select"].fc2.weight)
    nn.init.zeros_(client.pfsm["select"].fc2.bias)
    x = build_data().train.x
    expected = client.head_p(client.encoder(x) / 2)
    torch.testing.assert_close(client.views(x)["personal"], expected)


# -- the noise


def test_one_generator_for_all_batches_of_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch takes the next draws of its site and round; they are not the same again."""
    seen: list[Tensor] = []
    draw = fedpick.draw_noise
    monkeypatch.setattr(fedpick, "draw_noise", lambda z, chance: seen.append(draw(z, chance)) or seen[-1])
    client, data = build_client(fedpick, batch=3, epochs=2, tail="keep"), build_data()
    client.learn(data, ask(4))
    chance = data.generator(ask(4), "gumbel")
    assert [3, 3, 1] * 2 == [len(noise) for noise in seen]
    for noise in seen:
        u = torch.rand(2, *noise.shape, generator=chance, dtype=torch.float64)
        assert torch.equal(noise, (-(-u[0].log()).log() + (-u[1].log()).log()).float())
    assert not torch.equal(seen[0], seen[1])


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_noise_is_always_a_number(uniform: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 0, and at the largest number below 1."""
    drawn = torch.stack([torch.full((1, 3), uniform, dtype=torch.float64), double([[0.5] * 3])])
    monkeypatch.setattr(torch, "rand", lambda *_, **__: drawn)
    assert fedpick.draw_noise(torch.ones(1, 3), torch.Generator()).isfinite().all()


def test_evaluation_is_deterministic() -> None:
    """Outside training there is no noise: whatever was drawn before, the scores are the same bits."""
    client, x = build_client(fedpick).eval(), build_data().test.x
    first = client(x)
    with generators.scope("other"):
        assert torch.equal(first, client(x))


# -- the losses


@pytest.mark.parametrize(
    ("settings", "total"),
    [
        ({"lambda_lce": 0.0}, 4.189311 - 0.889441),
        ({"lambda_ent": 0.0}, 4.189311 + 0.001 * 0.577462),
        ({"lambda_dis": 0.0}, 4.189311 - 0.850219),
        ({"lambda_lce": 10.0}, 4.189311 + 9 * 0.889441),
        ({"lambda_ent": 0.1}, 4.189311 - 0.099 * 0.577462),
        ({"lambda_dis": 10.0}, 4.189311 + 9 * 0.850219),
    ],
    ids=str,
)
def test_weights_of_the_terms(
    settings: dict[str, float], total: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each λ multiplies its own term; at 0 the term is told still."""
    told, slopes = step(build_example(**settings), monkeypatch)
    assert total == pytest.approx(told["loss"], abs=1e-5)
    moved = bool(slopes["head_u.weight"].any())
    assert moved == (settings.get("lambda_ent") != 0)


def test_entropy_of_a_certain_head_is_a_number() -> None:
    """Probabilities of 1, 0 and 0: p log p taken literally would be NaN."""
    client = constant_heads((0.0,) * 3, (0.0,) * 3, (200.0, 0.0, -200.0))
    told = client.learn(build_data(), ask())
    assert 0.0 == pytest.approx(told["part/ent"], abs=1e-6)
    assert all(value.isfinite().all() for value in client.state_dict().values())


# -- without the selection


def test_without_the_selection_it_is_fedbn() -> None:
    """Bit by bit, over two rounds of two sites of different size; no module is made for what is left out."""
    both = {"lr": 0.5, "epochs": 2, "batch": 3}
    modules = {"fedbn": (fedbn, {}), "fedpick": (fedpick, {"use_pfsm": False})}
    data = {"a": build_data("a", labels=(0, 1)), "b": build_data("b", labels=(0, 1, 2, 0, 1, 2))}
    states, vaults = {}, {}
    first = State.of(build_client(fedbn, norm=True))
    for name, (module, settings) in modules.items():
        clients = {site: build_client(module, norm=True, **both, **settings) for site in data}
        for client in clients.values():
            load_into(client, renamed(first, "head_g" if name == "fedpick" else "head"))
        server = load(name).build_server(build_spec(name))
        state = server.start(clients["a"], 3)
        for number in (1, 2):
            for site, client in clients.items():
                client.receive(server.send(state, site, ask(number)), ask(number))
                client.learn(data[site], ask(number))
            state = server.close(state, gather(clients, data, ask(number)), ask(number)).state
        states[name] = renamed(state, "head")
        vaults[name] = {site: State.of(c, c.stays("train")) for site, c in clients.items()}
    assert equal(states["fedbn"], states["fedpick"])
    assert all(equal(vaults["fedbn"][site], vaults["fedpick"][site]) for site in data)


def renamed(state: State, head: str) -> State:
    """The same tensors, the head's under another name."""
    return State(
        {f"{head}.{n.partition('.')[2]}" if n.startswith("head") else n: v for n, v in state.items()}
    )


def test_without_the_selection_there_is_one_view() -> None:
    """As in FedBN; and nothing of the selection is told."""
    client = build_client(fedpick, use_pfsm=False)
    assert {"combined"} == client.views(build_data().test.x).keys()
    assert {"loss"} == client.learn(build_data(), ask()).keys()
    assert {"sparsity/trained"} == client.eval().diagnose(build_data(), ask()).keys()


@pytest.mark.parametrize("beside", [{"share_pfsm": True}, {"mask": "soft"}, {"ensemble": "prob"}], ids=str)
def test_switches_of_a_selection_that_is_not_there_are_refused(beside: dict[str, Any]) -> None:
    """In words that name both."""
    with pytest.raises(SettingError, match=f"{next(iter(beside))} was given without use_pfsm = true"):
        METHOD.settle({"use_pfsm": False, **beside})


def test_a_threshold_of_a_soft_mask_is_refused() -> None:
    """It would have no effect."""
    with pytest.raises(SettingError, match="epsilon was given without mask = hard"):
        METHOD.settle({"mask": "soft", "epsilon": 0.7})


# -- what travels

LINEAR = {"encoder.0.weight", "encoder.0.bias"}
NORM = {"encoder.1.1.weight", "encoder.1.1.bias"}
STATISTICS = {"encoder.1.1.running_mean", "encoder.1.1.running_var"}
HEAD_G = {"head_g.weight", "head_g.bias"}
PFSM = {
    f"{layer}.{name}"
    for layer in ("pfsm.select.fc1", "pfsm.select.fc2", "head_p", "head_u")
    for name in ("weight", "bias")
}


@pytest.mark.parametrize(
    ("settings", "travels"),
    [
        ({}, LINEAR | HEAD_G),
        ({"bn_policy": "local_stats"}, LINEAR | NORM | HEAD_G),
        ({"bn_policy": "share_all"}, LINEAR | NORM | STATISTICS | HEAD_G),
        ({"share_pfsm": True}, LINEAR | HEAD_G | PFSM),
        ({"use_pfsm": False}, LINEAR | HEAD_G),
    ],
)
def test_what_travels(settings: dict[str, Any], travels: set[str]) -> None:
    """The shared part is reported; the vault keeps all the rest."""
    client = build_client(fedpick, norm=True, **settings)
    assert travels == set(client.travels("train"))
    assert travels == client.report(build_data(), ask()).summed.keys()
    assert client.state_dict().keys() - travels == set(client.stays("train"))


@pytest.mark.parametrize(
    ("settings", "shared"),
    [
        ({}, set()),
        ({"bn_policy": "share_all"}, {"head_g"}),
        ({"share_pfsm": True}, set()),
        ({"share_pfsm": True, "bn_policy": "share_all"}, {"head_g", "head_p", "head_u"}),
    ],
)
def test_batch_norm_inside_the_heads(settings: dict[str, Any], shared: set[str]) -> None:
    """It follows the policy where its head is shared, and stays otherwise."""
    backbone = Backbone(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3)), 3)
    travels = set(fedpick.Client(METHOD.settle(settings), backbone, 3).travels("train"))
    assert shared == {name.split(".")[0] for name in travels if name.endswith("0.weight")}
    assert shared == {name.split(".")[0] for name in travels if name.endswith("running_var")}


@pytest.mark.parametrize(("aggregation", "expected"), [("samples", 3.25), ("uniform", 2.5)])
def test_how_sites_count(aggregation: str, expected: float) -> None:
    """(2*1 + 6*4) / 8 = 3.25 by samples; (1 + 4) / 2 = 2.5 if every site counts alike."""
    data = {"a": build_data("a", labels=(0, 1)), "b": build_data("b", labels=(0, 1, 2, 0, 1, 2))}
    clients = {site: build_client(fedpick, aggregation=aggregation) for site in data}
    for client, value in zip(clients.values(), (1.0, 4.0), strict=True):
        nn.init.constant_(client.head_g.bias, value)
    server = METHOD.build_server(build_spec("fedpick"))
    after = server.close(server.start(clients["a"], 3), gather(clients, data, ask()), ask()).state
    assert [expected] * 3 == after["head_g.bias"].tolist()


# -- diagnostics and settings


@pytest.mark.golden("fedpick", item=14)
def test_diagnostics_by_hand() -> None:
    """One of two components is picked: 4 is its Fisher score and 0 the other's; masked ones that are 0 score 0."""
    backbone = Backbone(nn.Identity(), nn.Linear(2, 2), 2)
    client = fedpick.Client(METHOD.settle({}), backbone, 2).eval()
    nn.init.zeros_(client.pfsm["select"].fc2.weight)
    load_into(client.pfsm["select"].fc2, {"weight": torch.zeros(2, 1), "bias": torch.tensor([1.0, -1.0])})
    z = torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 0.0], [6.0, 2.0]])
    part = Samples(z, torch.tensor([0, 0, 1, 1]))
    data = LocalData(train=part, validation=part, test=part, classes=2, site="a", seed=7)
    with torch.no_grad():
        told = client.diagnose(data, ask())
    assert {"picked": 0.5, "fisher/picked": 2.0, "fisher/left": 0.0, "sparsity/trained": 0.25} == told
    assert 0.25 == client.learn(data, ask(2, since=1))["sparsity/received"]


def test_what_is_not_wanted_or_not_ready_is_not_measured() -> None:
    """A newcomer's batch norm has seen nothing yet; with `diagnose = false` nobody measures."""
    wanted, unwanted = build_client(fedpick), build_client(fedpick, diagnose=False)
    assert "sparsity/received" not in wanted.learn(build_data(), ask(1))
    assert "sparsity/received" in wanted.learn(build_data(), ask(2, since=1))
    assert "sparsity/received" not in unwanted.learn(build_data(), ask(2, since=1))


def test_measuring_before_training_changes_nothing() -> None:
    """The same bits after a round with and without it, batch norm's statistics included."""
    clients = [build_client(fedpick, norm=True, diagnose=wanted) for wanted in (True, False)]
    for client in clients:
        client.learn(build_data(), ask(2, since=1))
    assert equal(*(State.of(client) for client in clients))


def test_the_default_is_the_method() -> None:
    """Nothing typed: the values for pictures of Office-Caltech-10 and DomainNet, all batch norm at home."""
    s = METHOD.settle({})
    assert (1.0, 1.0, 0.001, 1.0, 0.5) == (s.tau, s.lambda_lce, s.lambda_ent, s.lambda_dis, s.epsilon)
    assert ("local_bn", "samples", "hard", "logit") == (s.bn_policy, s.aggregation, s.mask, s.ensemble)
    assert (True, False) == (s.use_pfsm, s.share_pfsm)
    assert "" == METHOD.shows


def test_presets_are_the_table() -> None:
    """Table III, with the optimiser of the paper."""
    settled = {name: METHOD.settle(preset) for name, preset in fedpick.PRESETS.items()}
    assert {(0.01, 0.5, 64, 1)} == {(s.lr, s.momentum, s.batch, s.epochs) for s in settled.values()}
    mild = (1.0, 1.0, 0.001, 1.0)
    expected = {
        "paper": mild,
        "digits-five": (10.0, 10.0, 0.001, 10.0),
        "office-caltech-10": mild,
        "domainnet": mild,
    }
    assert expected == {n: (s.tau, s.lambda_lce, s.lambda_ent, s.lambda_dis) for n, s in settled.items()}


@pytest.mark.parametrize(
    "wrong",
    [{"tau": "0"}, {"epsilon": "1"}, {"lambda_ent": "-1"}, {"mask": "both"}, {"ensemble": "sum"}],
    ids=str,
)
def test_wrong_settings_are_named(wrong: dict[str, str]) -> None:
    """A setting that makes no sense is refused before anything runs, by its name."""
    (name,) = wrong
    with pytest.raises(SettingError, match=name):
        METHOD.settle(wrong)


def test_a_head_of_any_shape_will_do() -> None:
    """The two further heads are the backbone's own, with first values of their own."""
    stack = Backbone(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)), 3)
    client = fedpick.Client(METHOD.settle({}), stack, 3)
    generators.initialise(client, 3)
    weights = [client.get_submodule(name)[0].weight for name in HEADS]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])
    assert (7, 3) == client(build_data().train.x).shape
    assert build_backbone().features == 3
