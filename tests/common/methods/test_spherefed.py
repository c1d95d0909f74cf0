"""SphereFed: fixed directions to learn towards, and a last round that only sums."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from pfl_common.errors import SettingError
from pfl_common.learning.method import Arrivals, LocalData, Samples
from pfl_common.methods import load, spherefed
from pfl_common.models import Backbone, build
from pfl_common.randomness import generators
from pfl_common.spec.run import Task
from pfl_common.tensors.state import State, load_into
from pfl_common.tensors.summing import Sum
from pfl_common.tensors.update import Weighted
from tests.common.methods.toy import ask, build_client, build_data, build_spec, equal, gather

METHOD = load("spherefed")
ROWS = [[0.6, 0.8, 0.0], [-0.8, 0.6, 0.0], [0.0, 0.0, 1.0]]


def build_example(**settings: Any) -> spherefed.Client:
    """Features (3, 0, 4) of x = 1, and the example's W; one step of rate 1."""
    backbone = Backbone(nn.Linear(1, 3, bias=False), nn.Linear(3, 3), 3)
    client = spherefed.Client(METHOD.settle({"lr": 1.0, "momentum": 0.0, **settings}), backbone, 3).double()
    rows = torch.tensor(ROWS, dtype=torch.float64)
    load_into(client, {"encoder.weight": torch.tensor([[3.0], [0.0], [4.0]]).double(), "frame.rows": rows})
    return client


def samples_of(x: list[list[float]], y: list[int], *, classes: int, site: str = "a") -> LocalData:
    """A site's data in double precision."""
    part = Samples(torch.tensor(x).double(), torch.tensor(y))
    return LocalData(part, part, part, classes=classes, site=site, seed=7)


ONE = samples_of([[1.0]], [2], classes=3)


@pytest.mark.golden("spherefed", item=26)
def test_worked_example() -> None:
    """o = (0.36, −0.48, 0.8), the mean over samples and classes, and a gradient that is orthogonal to the features."""
    client = build_example()
    assert [0.36, -0.48, 0.8] == pytest.approx(client(ONE.train.x)[0].tolist())
    told = client.learn(ONE, ask())
    assert {"loss": pytest.approx(0.133333, abs=1e-6)} == told
    moved = torch.tensor([3.0, 0.0, 4.0]).double() - client.encoder.weight[:, 0]
    assert [0.064, 0.0, -0.048] == pytest.approx(moved.tolist(), abs=1e-9)
    assert 0.0 == pytest.approx((moved * torch.tensor([3.0, 0.0, 4.0])).sum().item(), abs=1e-9)


@pytest.mark.golden("spherefed", item=26)
@pytest.mark.parametrize(
    ("gamma", "expected"),
    [(1e-9, [[0.06, 1.08], [0.82, -0.24]]), (0.1, [[0.077922, 1.012987], [0.753247, -0.207792]])],
)
@pytest.mark.parametrize("aggregation", ["samples", "uniform"])
def test_worked_calibration(gamma: float, expected: list[list[float]], aggregation: str) -> None:
    """z (0.6, 0.8) and (0, 1) of class 0, (1, 0) of class 1, at two sites: the sums are those of all samples."""
    settings = {"calibrate": True, "gamma": gamma, "aggregation": aggregation}
    backbone = Backbone(nn.Identity(), nn.Linear(2, 2), 2)
    server = METHOD.build_server(build_spec("spherefed", settings))
    task = Task(ask().kind, 5, 5, phase="calibrate", since=4)
    data = {
        "a": samples_of([[3.0, 4.0], [7.0, 0.0]], [0, 1], classes=2),
        "b": samples_of([[0.0, 0.1]], [0], classes=2),
    }
    clients = {site: spherefed.Client(METHOD.settle(settings), backbone, 2).double() for site in data}
    for site, client in clients.items():
        assert {} == client.learn(data[site], task)
    state = State({"encoder.weight": torch.zeros(1, dtype=torch.float64)})
    after = server.close(state, gather(clients, data, task), task).state
    torch.testing.assert_close(after["frame.calibrated"], torch.tensor(expected).double(), rtol=0, atol=1e-6)
    assert 1.0 == after["frame.fitted"].item()
    assert torch.equal(state["encoder.weight"], after["encoder.weight"])


def test_frame_has_orthonormal_rows() -> None:
    """Drawn from the seed: the same each time, another for another seed."""
    frames = [spherefed.Frame(4, 9, calibrate=False) for _ in range(3)]
    for frame, seed in zip(frames, (5, 5, 6), strict=True):
        generators.initialise(nn.ModuleDict({"frame": frame}), seed)
    torch.testing.assert_close(frames[0].rows @ frames[0].rows.T, torch.eye(4), rtol=0, atol=1e-6)
    assert torch.equal(frames[0].rows, frames[1].rows)
    assert not torch.equal(frames[0].rows, frames[2].rows)


def test_the_frame_is_never_trained() -> None:
    """Nor does it travel."""
    client = build_client(spherefed)
    before = client.frame.rows.clone()
    client.learn(build_data(), ask())
    assert torch.equal(before, client.frame.rows)
    assert "frame.rows" in client.stays("train")


@pytest.mark.parametrize(("scale", "expected"), [(10.0, 0.012205), (1.0, 0.653405)])
def test_cross_entropy(scale: float, expected: float) -> None:
    """s · (0.36, −0.48, 0.8), class 2: log(e^3.6 + e^−4.8 + e^8) − 8, and with s = 1 Σ e^o = e^.36 + e^−.48 + e^.8."""
    client = build_example(loss="ce", scale=scale)
    exact = torch.tensor([0.36, -0.48, 0.8], dtype=torch.float64) * scale
    assert (exact.logsumexp(0) - exact[2]).item() == pytest.approx(expected, abs=1e-5)
    assert expected == pytest.approx(client.learn(ONE, ask())["loss"], abs=1e-5)
    assert [0.36, -0.48, 0.8] == pytest.approx(build_example(loss="ce")(ONE.train.x)[0].tolist())


def test_features_of_length_zero_say_nothing() -> None:
    """An encoder that died gives scores of 0 and no NaN."""
    client = build_example()
    nn.init.zeros_(client.encoder.weight)
    client.learn(ONE, ask())
    assert client.encoder.weight.isfinite().all()
    nn.init.zeros_(client.encoder.weight)
    assert [0.0, 0.0, 0.0] == client(ONE.train.x)[0].tolist()


# -- calibration


def test_phases() -> None:
    """The last round is the calibration's, if it is wanted."""
    config, plain = METHOD.settle({"calibrate": True}), METHOD.settle({})
    assert ["train", "train", "calibrate"] == [spherefed.phase(config, n, 3) for n in (1, 2, 3)]
    assert ["train", "train", "train"] == [spherefed.phase(plain, n, 3) for n in (1, 2, 3)]


def last(since: int = 4) -> Task:
    """The calibrating round."""
    return Task(ask().kind, 5, 5, phase="calibrate", since=since)


def test_nobody_trains_in_the_last_round() -> None:
    """And what goes up are two means over samples, at most 1 in size, that count by samples."""
    client, data = build_client(spherefed, norm=True, calibrate=True), build_data()
    before = State.of(client).apply(torch.clone)
    client.learn(data, last())
    assert equal(before, State.of(client))
    up = client.report(data, last()).summed
    assert {"gram": (3, 3), "hits": (3, 3)} == {name: tuple(term.value.shape) for name, term in up.items()}
    assert {7} == {term.weight.item() for term in up.values()}
    assert all(term.value.abs().max() <= 1 for term in up.values())
    assert 1.0 == pytest.approx(up["gram"].value.trace().item())
    assert {"gram", "hits"}.isdisjoint(client.stays("calibrate"))


def test_a_newcomer_fills_its_statistics_before_it_sums() -> None:
    """In its very first round: batch norm that has seen nothing would spoil the sums of all."""
    newcomer, client = (build_client(spherefed, norm=True, calibrate=True) for _ in range(2))
    for one, since in ((newcomer, 0), (client, 4)):
        one.learn(build_data(), last(since))
    assert 1 == newcomer.encoder[1][1].num_batches_tracked
    assert 0 == client.encoder[1][1].num_batches_tracked
    shared = build_client(spherefed, norm=True, calibrate=True, bn_policy="share_all")
    shared.learn(build_data(), last(0))
    assert 0 == shared.encoder[1][1].num_batches_tracked


def test_the_calibrated_classifier_predicts() -> None:
    """Once it has come; until then the frame does."""
    client, x = build_client(spherefed, calibrate=True).eval(), build_data().test.x
    assert torch.equal(client(x), client.directions(x) @ client.frame.rows.T)
    client.receive(State({"frame.calibrated": torch.ones(3, 3), "frame.fitted": torch.tensor(1.0)}), last())
    torch.testing.assert_close(client(x), client.directions(x) @ torch.ones(3, 3).T)


def test_without_calibration_there_is_no_room_for_it() -> None:
    """No buffer is made for what is not wanted."""
    client = build_client(spherefed)
    assert {"frame.rows"} == {name for name in client.state_dict() if name.startswith("frame")}


def closed(gram: torch.Tensor, hits: torch.Tensor, *, gamma: float = 1e-3, samples: int = 4) -> State:
    """What the coordinator makes of one site's sums."""
    total = Sum()
    total.add({"gram": Weighted(gram, torch.tensor(samples)), "hits": Weighted(hits, torch.tensor(samples))})
    server = METHOD.build_server(build_spec("spherefed", {"calibrate": True, "gamma": gamma}))
    return server.close(State({"encoder.weight": torch.zeros(1)}), Arrivals(total, {}), last()).state


def test_what_cannot_be_true_is_bounded() -> None:
    """No mean of products of unit vectors is 1000: it counts as 1. The result has the model's own type."""
    bounded, honest = closed(torch.eye(2) * 1000, torch.eye(2) * -1000), closed(torch.eye(2), -torch.eye(2))
    assert equal(bounded, honest)
    assert torch.float32 == honest["frame.calibrated"].dtype


def test_what_cannot_be_solved_leaves_the_frame() -> None:
    """A singular system, which no honest sums make: the run ends without calibration instead of with an error."""
    after = closed(torch.eye(2) * -0.0625, torch.eye(2), gamma=0.25)
    assert {"encoder.weight"} == after.keys()


def test_sums_over_no_samples_leave_the_frame() -> None:
    """A site that says it has none may not put zeros in the place of every class's direction."""
    assert {"encoder.weight"} == closed(torch.eye(2), torch.eye(2), samples=0).keys()


def test_a_last_round_that_nobody_came_to_changes_nothing() -> None:
    """The frame predicts."""
    server = METHOD.build_server(build_spec("spherefed", {"calibrate": True}))
    state = State({"encoder.weight": torch.ones(1)})
    assert equal(state, server.close(state, Arrivals(Sum(), {}), last()).state)


# -- what travels, settings

LINEAR = {"encoder.0.weight", "encoder.0.bias"}
NORM = {"encoder.1.1.weight", "encoder.1.1.bias"}
STATISTICS = {"encoder.1.1.running_mean", "encoder.1.1.running_var"}


@pytest.mark.parametrize(
    ("policy", "travels"),
    [("share_all", LINEAR | NORM | STATISTICS), ("local_stats", LINEAR | NORM), ("local_bn", LINEAR)],
)
def test_what_travels(policy: str, travels: set[str]) -> None:
    """The encoder, less what the policy keeps; with the calibration its result."""
    client = build_client(spherefed, norm=True, bn_policy=policy, calibrate=True)
    assert travels == set(client.travels("train"))
    assert travels == client.report(build_data(), ask()).summed.keys()
    assert travels | {"frame.calibrated", "frame.fitted"} == set(client.travels("calibrate"))
    assert client.state_dict().keys() - travels == set(client.stays("train"))


@pytest.mark.parametrize(("aggregation", "expected"), [("samples", 3.25), ("uniform", 2.5)])
def test_how_sites_count(aggregation: str, expected: float) -> None:
    """(2*1 + 6*4) / 8 = 3.25 by samples; (1 + 4) / 2 = 2.5 if every site counts alike."""
    data = {"a": build_data("a", labels=(0, 1)), "b": build_data("b", labels=(0, 1, 2, 0, 1, 2))}
    clients = {site: build_client(spherefed, aggregation=aggregation) for site in data}
    for client, value in zip(clients.values(), (1.0, 4.0), strict=True):
        nn.init.constant_(client.encoder[0].bias, value)
    server = METHOD.build_server(build_spec("spherefed"))
    after = server.close(server.start(clients["a"], 3), gather(clients, data, ask()), ask()).state
    assert [expected] * 3 == after["encoder.0.bias"].tolist()


def test_a_head_of_several_layers_is_refused() -> None:
    """There is one linear layer to put the frame in place of, or none."""
    backbone = build("digits_stack_head", shape=(1, 8, 8), classes=3)
    with pytest.raises(
        SettingError,
        match=r"spherefed has a fixed classifier .* digits_stack_head has a head of several layers",
    ):
        spherefed.Client(METHOD.settle({}), backbone, 3)


def test_more_classes_than_features_are_refused() -> None:
    """Each class needs a direction of its own."""
    backbone = Backbone(nn.Linear(2, 3), nn.Linear(3, 4), 3)
    with pytest.raises(SettingError, match="4 classes and a backbone of 3 features"):
        spherefed.Client(METHOD.settle({}), backbone, 4)
    assert 3 == len(build_client(spherefed).frame.rows)


def test_cosines_by_hand() -> None:
    """(0.36, −0.48, 0.8) of class 2: its own is 0.8, the nearest other 0.36."""
    with torch.no_grad():
        told = build_example().diagnose(ONE, ask())
    assert {"cosine/own": pytest.approx(0.8), "cosine/rival": pytest.approx(0.36)} == told


def test_the_default_is_the_method() -> None:
    """Nothing typed: squares, no calibration."""
    s = METHOD.settle({})
    assert ("mse", 10.0, False, 1e-3) == (s.loss, s.scale, s.calibrate, s.gamma)
    assert ("local_stats", "samples", "") == (s.bn_policy, s.aggregation, METHOD.shows)
    rates = {name: METHOD.settle(preset).lr for name, preset in spherefed.PRESETS.items()}
    assert {"paper": 0.1, "dualfed": 0.1, "dualfed-office-home": 1.0} == rates


@pytest.mark.parametrize(
    ("idle", "beside"), [({"scale": 4.0}, {"loss": "ce"}), ({"gamma": 0.5}, {"calibrate": True})], ids=str
)
def test_numbers_that_have_no_effect_are_refused(idle: dict[str, Any], beside: dict[str, Any]) -> None:
    """With what they belong to; beside that they are taken."""
    with pytest.raises(SettingError, match=f"{next(iter(idle))} was given without {next(iter(beside))}"):
        METHOD.settle(idle)
    assert METHOD.settle({**idle, **beside}) != METHOD.settle(beside)


@pytest.mark.parametrize("wrong", [{"scale": "0"}, {"gamma": "0"}, {"loss": "l1"}], ids=str)
def test_wrong_settings_are_named(wrong: dict[str, str]) -> None:
    """A setting that makes no sense is refused before anything runs, by its name."""
    (name,) = wrong
    with pytest.raises(SettingError, match=name):
        METHOD.settle(wrong)
