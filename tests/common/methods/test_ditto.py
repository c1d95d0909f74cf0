"""Ditto: one's own model is pulled towards the common one as it was received; by hand on models of one number."""

from __future__ import annotations

import pytest
import torch

from pfl_common.learning.method import LocalData
from pfl_common.methods import ditto, load
from pfl_common.spec.run import Json
from pfl_common.tensors.state import State
from tests.common.methods.one_number import build_number, build_samples, download, read, slide
from tests.common.methods.toy import ask, build_client, build_data, equal

torch.set_num_threads(1)

V = "personal.encoder"


@pytest.fixture
def _slope(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both models learn on a slope of −1: a step without a pull adds 0.1."""
    monkeypatch.setattr(ditto, "cross_entropy", slide)


@pytest.mark.usefixtures("_slope")
@pytest.mark.parametrize(
    ("settings", "own", "common"),
    [
        ({}, 2.1, 2.1),
        ({"mu": 0.5, "personal_epochs": 2}, 2.195, 2.1),
        ({"mu": 0.5, "personal_epochs": 3, "epochs": 2}, 2.28525, 2.2),
        ({"mu": 0.0, "personal_epochs": 3}, 2.3, 2.1),
        ({"epochs": 3}, 2.1, 2.3),
    ],
)
def test_both_models_learn_and_one_is_pulled(settings: dict[str, Json], own: float, common: float) -> None:
    """v and w start from the received 2; v's slope is −1 + mu (v − 2), w's is −1."""
    client = build_number(ditto, 99.0, **settings)
    client.receive(download(2.0), ask())
    client.learn(build_samples(), ask())

    assert (pytest.approx(own), pytest.approx(common)) == (read(client, V), read(client))


@pytest.mark.usefixtures("_slope")
def test_the_pull_is_towards_the_model_as_received() -> None:
    """v = 2.1 from round 1; w^t = 5: the slope is −1 + 0.5 (2.1 − 5) = −2.45, and v = 2.345.

    Towards the w that has been trained, 5.1, it would be 2.35; towards that of round 1, 2.205.
    """
    client = build_number(ditto, mu=0.5)
    for number, start in ((1, 2.0), (2, 5.0)):
        client.receive(download(start), ask(number, since=number - 1))
        told = client.learn(build_samples(), ask(number, since=number - 1))

    assert (pytest.approx(2.345), pytest.approx(5.1)) == (read(client, V), read(client))
    expected = {"loss": -2.1 + 0.25 * 2.9**2, "loss_shared": -5.0, "apart": 5 - 2.345}
    assert {name: pytest.approx(value) for name, value in expected.items()} == told


@pytest.mark.parametrize(("mu", "expected"), [(None, 1.0), (2.0, 2.0)])
def test_the_strength_of_the_pull(mu: float | None, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a slope, from v = 1 with w^t = 3: v = 1 + 0.1 mu 2; mu is 1 unless it is set."""
    monkeypatch.setattr(ditto, "cross_entropy", lambda scores, labels: 0 * scores.mean())
    client = build_number(ditto, 1.0, **({} if mu is None else {"mu": mu}))
    client.receive(download(3.0), ask(2, since=1))
    client.learn(build_samples(), ask(2, since=1))
    assert pytest.approx(1 + 0.2 * expected) == read(client, V)


def test_one_s_own_model_predicts() -> None:
    """It starts as the first model received, and no later one takes its place."""
    client, x = build_number(ditto, 9.0), torch.ones(1, 1, dtype=torch.float64)
    client.receive(download(2.0), ask(1, since=0))
    assert 2.0 == client(x).item()
    client.receive(download(3.0), ask(2, since=1))
    assert (2.0, 3.0) == (client(x).item(), read(client))


def test_each_loop_numbers_its_shuffles_from_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs on one's own model, then three on the common one, which sees the orders it always would."""
    epochs, batches = [], LocalData.batches
    monkeypatch.setattr(
        LocalData, "batches", lambda *words, **named: epochs.append(words[2]) or batches(*words, **named)
    )
    build_client(ditto, personal_epochs=2, epochs=3).learn(build_data(), ask())
    assert [0, 1, 0, 1, 2] == epochs


def test_the_models_have_statistics_of_their_own() -> None:
    """Each counts its own batches: two epochs on v, one on w; neither hears of the other's."""
    client = build_client(ditto, norm=True, personal_epochs=2)
    client.learn(build_data(), ask())
    state, counter = client.state_dict(), "encoder.1.1.num_batches_tracked"

    assert (2, 1) == (state[f"personal.{counter}"], state[counter])


@pytest.mark.parametrize(
    ("policy", "taken"), [("local_stats", False), ("local_bn", False), ("share_all", True)]
)
def test_what_a_new_site_takes_over(policy: str, taken: bool) -> None:
    """All parameters, those of batch norm too; statistics only where they are common."""
    client = build_client(ditto, norm=True, bn_policy=policy)
    everything = State.of(client, [n for n in client.state_dict() if not n.startswith("personal.")])
    down = everything.only(client.travels("train")).apply(lambda value: value + 1)
    client.receive(down, ask())
    own, common = State.of(client.personal), State.of(client)
    parameters = [name for name, _ in client.personal.named_parameters()]

    assert equal(own.only(parameters), common.only(parameters))
    assert [1.0 if taken else 0.0] * 3 == own["encoder.1.1.running_mean"].tolist()


def test_what_stays() -> None:
    """One's own model, all of it; of the common one the statistics and the counter."""
    client = build_client(ditto, norm=True)
    own = set(State.of(client.personal).within("personal"))
    bn = {f"encoder.1.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    assert own | bn == set(client.stays("train"))
    assert "" == load("ditto").shows
