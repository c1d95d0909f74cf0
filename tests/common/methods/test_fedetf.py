"""FedETF: features that learn to meet a fixed frame, and a frame that may learn to meet them at the very end."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pfl_client.trainer import tasks
from pfl_common.errors import SettingError
from pfl_common.learning import sgd
from pfl_common.learning.method import LocalData, Samples
from pfl_common.methods import fedetf, load
from pfl_common.models import Backbone, ProjectorShape, build
from pfl_common.randomness import generators
from pfl_common.spec.run import Kind
from pfl_common.tensors.state import State, load_into
from tests.common.methods.test_fedrod import one_sample
from tests.common.methods.toy import ask, build_client, build_data, build_spec, gather

METHOD = load("fedetf")
BASIS = [[0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.5, 0.5, -0.5], [0.5, -0.5, -0.5]]
"""P of the worked example: columns (1,1,1,1)/2, (1,−1,1,−1)/2, (1,1,−1,−1)/2."""


class Table(nn.Module):
    """An encoder that says its own four numbers of every sample, and is called what a projector's encoder is."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Identity()
        self.projector = nn.Linear(1, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """p, for x = 1."""
        projected: torch.Tensor = self.projector(self.body(x))
        return projected


def build_example(**settings: Any) -> fedetf.Client:
    """p = (1, 2, 2, 0), s = 2, and the example's V; one step of rate 1."""
    given = {"lr": 1.0, "momentum": 0.0, "projection": "none", "scale_init": 2.0, **settings}
    client = fedetf.Client(METHOD.settle(given), Backbone(Table(), nn.Linear(4, 3), 4), 3).double()
    client.etf.build(torch.tensor(BASIS, dtype=torch.float64))
    load_into(client, {"encoder.projector.weight": torch.tensor([[1.0], [2.0], [2.0], [0.0]]).double()})
    return client


@pytest.mark.golden("fedetf", item=27)
def test_worked_example() -> None:
    """Cosines, loss, and the gradients of the scale and of the projected features."""
    client, data = build_example(), one_sample((1.0,), 1, (8, 2, 0))
    cosines = client(data.train.x)[0]
    assert [0.544331, -0.272166, -0.272166] == pytest.approx(cosines.tolist(), abs=1e-6)
    told = client.learn(data, ask())
    assert 3.066969 == pytest.approx(told["loss"], abs=1e-6)
    assert 2 - 0.778479 == pytest.approx(told["scale"], abs=1e-6)
    moved = (
        torch.tensor([1.0, 2.0, 2.0, 0.0]).double() - client.get_submodule("encoder.projector").weight[:, 0]
    )
    assert [-0.172995, 0.432488, -0.345991, 0.778479] == pytest.approx(moved.tolist(), abs=1e-6)


@pytest.mark.golden("fedetf", item=27)
@pytest.mark.parametrize(("absent", "loss"), [("exclude", 3.066969), ("one", 3.089983)])
def test_what_an_absent_class_counts(absent: str, loss: float) -> None:
    """Nothing, or 1 as in the authors' code."""
    told = build_example(absent=absent).learn(one_sample((1.0,), 1, (8, 2, 0)), ask())
    assert loss == pytest.approx(told["loss"], abs=1e-6)


@pytest.mark.golden("fedetf", item=7)
def test_balanced_softmax() -> None:
    """Against the third class's vector the cosines are (1/2, 1/2, −1): with s = 2/3 the logits are (1, 1, 0) less 1/3.

    With counts (8, 2, 0) class 1 costs 1.609438, and 0.861995 if classes were not balanced.
    """
    client = build_client(fedetf, scale_init=2 / 3)
    load_into(client.projection, {"weight": torch.zeros(3, 3), "bias": -client.etf.vectors[:, 2]})
    told = client.learn(one_sample_of_two((8, 2, 0)), ask())
    assert 1.609438 == pytest.approx(told["loss"], abs=1e-5)
    assert all(value.isfinite().all() for value in client.state_dict().values())


def one_sample_of_two(counts: tuple[int, ...]) -> LocalData:
    """One sample of class 1 for the toy network."""
    data = one_sample((0.0, 0.0), 1, counts)
    single = Samples(data.train.x.float(), data.train.y)
    return type(data)(single, single, single, classes=3, site="a", seed=7, counted=counts)


@pytest.mark.golden("fedetf", item=8)
def test_frame_of_three_classes() -> None:
    """P = I: 0.816497 on the diagonal, −0.408248 beside it; columns of length 1 with inner products −1/2."""
    etf = fedetf.Etf(3, 3)
    etf.build(torch.eye(3))
    expected = torch.full((3, 3), -0.408248).fill_diagonal_(0.816497)
    torch.testing.assert_close(etf.vectors, expected, rtol=0, atol=1e-6)
    inner = etf.vectors.T @ etf.vectors
    torch.testing.assert_close(inner, torch.full((3, 3), -0.5).fill_diagonal_(1.0), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("width", "classes"), [(7, 7), (9, 4), (2, 2)])
def test_frame_of_any_size(width: int, classes: int) -> None:
    """V_aᵀV_b = −1/(C−1), whatever the basis; drawn from the seed, the same each time and another for another seed."""
    etfs = [fedetf.Etf(width, classes) for _ in range(3)]
    for etf, seed in zip(etfs, (5, 5, 6), strict=True):
        generators.initialise(nn.ModuleDict({"etf": etf}), seed)
    inner = etfs[0].vectors.T @ etfs[0].vectors
    expected = torch.full((classes, classes), -1 / (classes - 1)).fill_diagonal_(1.0)
    torch.testing.assert_close(inner, expected, rtol=0, atol=1e-6)
    assert torch.equal(etfs[0].vectors, etfs[1].vectors)
    assert not torch.equal(etfs[0].vectors, etfs[2].vectors)


def test_the_scale_changes_no_prediction() -> None:
    """Also where training made it negative: the class is the one of the largest cosine."""
    client, x = build_client(fedetf), build_data().test.x
    before = client(x)
    with torch.no_grad():
        client.scale.fill_(-3.0)
    assert torch.equal(before, client(x))


@pytest.mark.parametrize("init", [1.0, 5.0])
def test_the_scale_s_first_value(init: float) -> None:
    """A single number, trained and shared; drawing the layers' first values leaves it."""
    client = build_client(fedetf, scale_init=init)
    assert (init, ()) == (client.scale.item(), tuple(client.scale.shape))
    client.learn(build_data(), ask())
    assert init != client.scale.item()


# -- what travels

LINEAR = {"encoder.0.weight", "encoder.0.bias"}
NORM = {"encoder.1.1.weight", "encoder.1.1.bias"}
STATISTICS = {"encoder.1.1.running_mean", "encoder.1.1.running_var"}
PROJECTION = {"projection.weight", "projection.bias"}


@pytest.mark.parametrize(
    ("policy", "travels"),
    [
        ("share_all", LINEAR | NORM | STATISTICS | PROJECTION | {"scale"}),
        ("local_stats", LINEAR | NORM | PROJECTION | {"scale"}),
        ("local_bn", LINEAR | PROJECTION | {"scale"}),
    ],
)
def test_what_travels(policy: str, travels: set[str]) -> None:
    """Encoder, projection and scale; the frame is nobody's to change, so it does not travel."""
    client = build_client(fedetf, norm=True, bn_policy=policy)
    assert travels == set(client.travels("train"))
    assert travels == client.report(build_data(), ask()).summed.keys()
    assert client.state_dict().keys() - travels == set(client.stays("train"))
    assert "etf.vectors" in client.stays("train")


@pytest.mark.parametrize(("aggregation", "expected"), [("samples", 3.25), ("uniform", 2.5)])
def test_how_sites_count(aggregation: str, expected: float) -> None:
    """(2*1 + 6*4) / 8 = 3.25 by samples; (1 + 4) / 2 = 2.5 if every site counts alike; of the scale as of all else."""
    data = {"a": build_data("a", labels=(0, 1)), "b": build_data("b", labels=(0, 1, 2, 0, 1, 2))}
    clients = {site: build_client(fedetf, aggregation=aggregation) for site in data}
    for client, value in zip(clients.values(), (1.0, 4.0), strict=True):
        nn.init.constant_(client.scale, value)
    server = METHOD.build_server(build_spec("fedetf"))
    after = server.close(server.start(clients["a"], 3), gather(clients, data, ask()), ask()).state
    assert expected == after["scale"].item()


# -- the projection


def test_a_projector_can_be_the_projection() -> None:
    """No layer more: the frame lies in the space of the features, and the projector travels with the encoder."""
    backbone = projected_backbone(classes=3)
    client = fedetf.Client(METHOD.settle({"projection": "none"}), backbone, 3)
    assert {"encoder", "scale", "etf"} == {name.split(".")[0] for name in client.state_dict()}
    assert (backbone.features, 3) == tuple(client.etf.vectors.shape)
    assert "encoder.projector.fc1.weight" in client.travels("train")


def projected_backbone(classes: int) -> Backbone:
    """A network with a projector, as `--encoder-projector` makes it."""
    return build("mlp", shape=(2,), classes=classes, projector=ProjectorShape(hidden=4))


def test_without_a_projector_there_must_be_a_projection() -> None:
    """Said before anything runs, with what to do."""
    with pytest.raises(SettingError, match="no projector") as refusal:
        build_client(fedetf, projection="none")
    assert "--encoder-projector" in str(refusal.value)


def test_more_classes_than_features_need_a_projection() -> None:
    """The projector of 100 features has no room for a frame of 101 vectors; a projection to 101 has."""
    with pytest.raises(SettingError, match="101 classes and a backbone of 100 features"):
        fedetf.Client(METHOD.settle({"projection": "none"}), projected_backbone(101), 101)
    assert 101 == fedetf.Client(METHOD.settle({}), projected_backbone(101), 101).projection.out_features


def test_a_head_of_several_layers_is_refused() -> None:
    """There is one linear layer to put the frame in place of, or none."""
    backbone = build("digits_stack_head", shape=(1, 8, 8), classes=3)
    with pytest.raises(
        SettingError, match=r"fedetf has a fixed classifier .* digits_stack_head has a head of several layers"
    ):
        fedetf.Client(METHOD.settle({}), backbone, 3)


# -- fine-tuning


def test_fine_tuning_takes_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more update of E epochs, then 20 times 3 epochs on V (rate 0.1) and 3 on the projection (rate 0.05)."""
    client, data = (
        build_client(fedetf, norm=True, etf_finetune=True, epochs=2, weight_decay=0.01),
        build_data(),
    )
    seen, train = [], sgd.train

    def watched(participant: Any, parameters: Any, loss: Any, **named: Any) -> float:
        chosen = list(parameters)
        before = {name: value.clone() for name, value in participant.state_dict().items()}
        groups = [{**group, "params": None} for group in chosen if isinstance(group, dict)]
        result = train(participant, chosen, loss, **named)
        moved = {n for n, v in participant.state_dict().items() if not torch.equal(v, before[n])}
        counted = {n for n in moved if "running" in n or "batches" in n}
        seen.append((moved - counted, bool(counted), groups, named.get("epochs"), named.get("first_epoch")))
        return result

    monkeypatch.setattr(sgd, "train", watched)
    client.finish(data, ask(5, kind=Kind.FINISH, since=5))
    trained = set(client.travels("train")) | {"encoder.1.1.weight", "encoder.1.1.bias"}
    assert (trained, True, [], None, None) == seen[0]
    vectors = {"params": None, "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}
    expected = []
    for turn in range(20):
        expected.append(({"etf.vectors"}, True, [vectors], 3, 2 + 6 * turn))
        expected.append((PROJECTION, True, [{"params": None, "lr": 0.05}], 3, 5 + 6 * turn))
    assert expected == seen[1:]
    assert not client.etf.vectors.requires_grad
    assert client.etf.vectors.grad is None


def test_fine_tuning_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """One turn, worked out in numpy: plain cross entropy of s Vᵀμ, V first and not normalised again, momentum for p."""
    monkeypatch.setattr(fedetf, "TURNS", 1)
    client, data = build_example(etf_finetune=True, lr=1e-300, momentum=0.5), one_sample((1.0,), 1, (8, 2, 0))
    v, p, s = client.etf.vectors.numpy().copy(), np.array([1.0, 2.0, 2.0, 0.0]), 2.0
    client.finish(data, ask(5, kind=Kind.FINISH, since=5))

    def slope_of_scores() -> np.ndarray:
        scores = np.exp(s * v.T @ (p / np.linalg.norm(p)))
        return scores / scores.sum() - np.array([0.0, 1.0, 0.0])

    for _ in range(3):
        v = v - 0.1 * s * np.outer(p / np.linalg.norm(p), slope_of_scores())
    memory = np.zeros(4)
    for _ in range(3):
        mu, length = p / np.linalg.norm(p), np.linalg.norm(p)
        slope = s * v @ slope_of_scores()
        memory = 0.5 * memory + (slope - mu * (mu @ slope)) / length
        p = p - 0.05 * memory
    np.testing.assert_allclose(client.etf.vectors.numpy(), v, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        client.get_submodule("encoder.projector").weight.detach().numpy()[:, 0], p, atol=1e-12
    )


@pytest.mark.parametrize("wanted", [False, True])
def test_fine_tuning_is_asked_for(wanted: bool) -> None:
    """Without it the last model is what was shared; with it V and projection are the site's own, s is not."""
    client, data = build_client(fedetf, etf_finetune=wanted), build_data()
    before = copy.deepcopy(State.of(client).apply(torch.clone))
    client.finish(data, ask(5, kind=Kind.FINISH, since=5))
    changed = {name for name, value in client.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == (client.state_dict().keys() if wanted else set())


@pytest.mark.parametrize("wanted", [False, True])
def test_the_finished_model_is_measured(wanted: bool) -> None:
    """Beside the last shared one, where fine-tuning made another of it: the serving model is the finished one."""
    client, data = build_client(fedetf, etf_finetune=wanted), build_data()
    down = State.of(client, client.travels("train")).apply(torch.clone)
    outcome = tasks.perform(client, data, down, ask(5, kind=Kind.FINISH, since=5))
    views = {"pre/test/combined", "pre/validation/combined"}
    more = {"pre/test/finished", "pre/validation/finished"} if wanted else set()
    assert views | more == outcome.scores.keys()
    if wanted:
        assert tasks.score(client, data, "pre")["pre/test/combined"] == outcome.scores["pre/test/finished"]


# -- diagnostics and settings


def test_cosines_by_hand() -> None:
    """All features lie on class 0's vector: 1 for its own samples, −1/2 for others', whose rival is 1."""
    client = build_client(fedetf)
    load_into(client.projection, {"weight": torch.zeros(3, 3), "bias": client.etf.vectors[:, 0].clone()})
    told = client.diagnose(build_data(labels=(0, 0, 1)), ask())
    assert {"cosine/own": pytest.approx(0.5), "cosine/rival": pytest.approx(0.0, abs=1e-6)} == told


def test_the_default_is_the_method() -> None:
    """Nothing typed: no fine-tuning, absent classes left out, a projection of its own."""
    s = METHOD.settle({})
    assert (False, 1.0, "exclude", "linear") == (s.etf_finetune, s.scale_init, s.absent, s.projection)
    assert ("local_stats", "samples", "") == (s.bn_policy, s.aggregation, METHOD.shows)
    repro = METHOD.settle(fedetf.PRESETS["repro"])
    assert ("one", True) == (repro.absent, repro.etf_finetune)
    paper = METHOD.settle(fedetf.PRESETS["paper"])
    assert (0.01, 0.5, 256, "exclude") == (paper.lr, paper.momentum, paper.batch, paper.absent)


@pytest.mark.parametrize("wrong", [{"scale_init": "0"}, {"absent": "two"}, {"projection": "mlp"}], ids=str)
def test_wrong_settings_are_named(wrong: dict[str, str]) -> None:
    """A setting that makes no sense is refused before anything runs, by its name."""
    (name,) = wrong
    with pytest.raises(SettingError, match=name):
        METHOD.settle(wrong)
