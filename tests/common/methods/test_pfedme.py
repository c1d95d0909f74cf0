"""pFedMe: theta learns on a spring and w follows; the steps are worked out on a model of one number."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pfl_common.errors import SettingError
from pfl_common.learning.method import Participant
from pfl_common.methods import load, pfedme
from pfl_common.spec.run import Json
from pfl_common.tensors.state import State
from tests.common.methods.one_number import bowl, build_number, build_samples, download, read, slide
from tests.common.methods.toy import ask, build_client, build_data, build_spec, equal, gather

torch.set_num_threads(1)

W, THETA = "encoder", "theta.encoder"


def half_square(scores: Tensor, labels: Tensor) -> Tensor:
    """F = theta²/2."""
    return scores.square().mean() / 2


def trained(
    monkeypatch: pytest.MonkeyPatch, *labels: int, start: float = 1.0, **settings: Json
) -> Participant:
    """A site that received `start` and trained one round on F = (theta − b)²/2, one label a batch."""
    monkeypatch.setattr(pfedme, "cross_entropy", bowl)
    client = build_number(pfedme, 99.0, batch=1, **settings)
    client.receive(download(start), ask(1))
    client.learn(build_samples(labels), ask(1))
    return client


@pytest.mark.golden("pfedme", item=12)
def test_five_steps_of_theta_and_one_of_w(monkeypatch: pytest.MonkeyPatch) -> None:
    """F = theta²/2 from w = 1 with K_in = 5, eta_p = 0.09, lambda = 15, mu = 0, eta = 0.005."""
    monkeypatch.setattr(pfedme, "cross_entropy", half_square)
    client = build_number(pfedme, K_in=5, eta_p=0.09, mu=0.0, lr=0.005, **{"lambda": 15.0})
    client.receive(download(1.0), ask())
    client.learn(build_samples(), ask())

    assert pytest.approx(0.936469, abs=1e-5) == read(client, THETA)
    assert pytest.approx(0.995235, abs=1e-5) == read(client, W)


@pytest.mark.parametrize(("given", "decay"), [({}, 0.001), ({"mu": 0.0}, 0.0), ({"mu": 0.5}, 0.5)])
def test_theta_decays(given: dict[str, Json], decay: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step from 1 towards b = 0: 1 − 0.1 (1 + 15 · 0 + mu · 1); by default mu = 0.001, as in both codes."""
    client = trained(monkeypatch, 0, K_in=1, eta_p=0.1, lr=0.01, **given)
    theta = 1 - 0.1 * (1 + decay)

    assert pytest.approx(theta) == read(client, THETA)
    assert pytest.approx(1 - 0.01 * 15 * (1 - theta)) == read(client, W)


def test_theta_goes_on_from_batch_to_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches of b = 0, K_in = 1, eta_p = 0.1, lambda = 2, mu = 0, eta = 0.25, from 1.

    theta 0.9, w = 1 − 0.5 · 0.1 = 0.95; then theta = 0.9 − 0.1 (0.9 + 2 (0.9 − 0.95)) = 0.82 and w = 0.95 − 0.5 · 0.13
    = 0.885. Put back to w before the second batch theta would be 0.855.
    """
    client = trained(monkeypatch, 0, 0, K_in=1, eta_p=0.1, mu=0.0, lr=0.25, **{"lambda": 2.0})

    assert pytest.approx(0.82) == read(client, THETA)
    assert pytest.approx(0.885) == read(client, W)


@pytest.mark.parametrize(("steps", "theta"), [(1, 0.1), (2, 0.2), (3, 0.3)])
def test_k_steps_a_batch(steps: int, theta: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a spring on a slope of −1 each step adds eta_p = 0.1; progress is told once a batch."""
    monkeypatch.setattr(pfedme, "cross_entropy", slide)
    client, seen = build_number(pfedme, K_in=steps, eta_p=0.1, mu=0.0, **{"lambda": 0.0}), []
    client.progress = seen.append
    client.receive(download(0.0), ask())
    client.learn(build_samples(), ask())

    assert (pytest.approx(theta), 0.0, [1]) == (read(client, THETA), read(client, W), seen)


def test_theta_starts_each_round_at_the_received_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where it ended, although that is kept for predicting."""
    client = trained(monkeypatch, 0, K_in=1, eta_p=0.1, mu=0.0)
    kept = read(client, THETA)
    client.receive(download(3.0), ask(2, since=1))
    assert kept == read(client, THETA), "a site is measured with the theta it has"

    client.learn(build_samples((0,)), ask(2, since=1))
    assert pytest.approx(3.0 - 0.1 * 3.0) == read(client, THETA)


def test_a_site_that_never_learnt_predicts_with_what_it_received() -> None:
    """theta := w at first contact, and only then."""
    client, x = build_number(pfedme, 5.0), torch.ones(1, 1, dtype=torch.float64)
    client.receive(download(2.0), ask(1, since=0))
    assert 2.0 == client(x).item()
    client.receive(download(3.0), ask(2, since=1))
    assert 2.0 == client(x).item()


@pytest.mark.parametrize(("model", "before", "after"), [("theta", 2.0, 1.8), ("w_local", 3.0, 2.7)])
def test_which_model_predicts(
    model: str, before: float, after: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """theta was 2 and w comes as 3. On b = 0 theta goes from 3 to 2.7, w by 0.1 · 10 of the way, which is all of it.

    A list of theta's parameters that is in truth the live model's makes the two alike.
    """
    monkeypatch.setattr(pfedme, "cross_entropy", bowl)
    x = torch.ones(1, 1, dtype=torch.float64)
    client = build_number(
        pfedme, 2.0, K_in=1, eta_p=0.1, mu=0.0, eval_model=model, lr=0.04, **{"lambda": 10.0}
    )
    client.receive(download(3.0), ask(2, since=1))
    assert before == client(x).item()

    client.learn(build_samples(), ask(2, since=1))
    theta = 3 - 0.1 * 3
    expected = theta if model == "theta" else 3 - 0.4 * (3 - theta)
    assert pytest.approx(expected) == client(x).item()


@pytest.mark.parametrize(("beta", "expected"), [(1.0, 4.0), (0.5, 2.5), (0.25, 1.75), (2.0, 7.0)])
def test_how_far_the_common_model_goes(beta: float, expected: float) -> None:
    """From w = 1 towards the mean of the sites' 3 (two samples) and 4.5 (four): 4 by samples."""
    clients = {"a": build_number(pfedme, 3.0), "b": build_number(pfedme, 4.5)}
    data = {"a": build_samples((0,) * 2), "b": build_samples((0,) * 4)}
    server = load("pfedme").build_server(build_spec("pfedme", {"beta": beta}))

    after = server.close(download(1.0), gather(clients, data, ask()), ask()).state

    assert {"encoder.weight": pytest.approx(expected)} == {
        name: value.item() for name, value in after.items()
    }


@pytest.mark.parametrize("beta", [0.3, 1.0, 1.7])
def test_a_round_that_counts_nobody_changes_nothing(beta: float) -> None:
    """To the last bit, whatever share of the way is gone."""
    server = load("pfedme").build_server(build_spec("pfedme", {"beta": beta}))
    state = server.start(build_client(pfedme), 3)
    assert equal(state, server.close(state, gather({}, {}, ask()), ask()).state)


@pytest.mark.parametrize(("policy", "common"), [("local_stats", False), ("share_all", True)])
def test_w_takes_the_statistics_of_theta(policy: str, common: bool) -> None:
    """All passes are theta's: after training both have its statistics and counter; common ones are where it starts."""
    client = build_client(pfedme, norm=True, bn_policy=policy, K_in=2)
    mean = "encoder.1.1.running_mean"
    client.get_buffer(mean).fill_(100.0)
    client.learn(build_data(), ask())
    state = client.state_dict()
    layer = ("running_mean", "running_var", "num_batches_tracked")

    assert all(torch.equal(state[f"encoder.1.1.{n}"], state[f"theta.encoder.1.1.{n}"]) for n in layer)
    assert 2 == state["encoder.1.1.num_batches_tracked"]
    assert common == bool((state[mean] > 50).all())


def test_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss before theta's last step, at 0.9: 0.405; theta ends at 0.82 and w at 0.91."""
    monkeypatch.setattr(pfedme, "cross_entropy", bowl)
    client = build_number(pfedme, K_in=2, eta_p=0.1, mu=0.0, lr=0.25, **{"lambda": 2.0})
    client.receive(download(1.0), ask())
    told = client.learn(build_samples(), ask())

    theta = 0.9 - 0.1 * (0.9 + 2 * (0.9 - 1))
    assert {"loss": pytest.approx(0.405), "apart": pytest.approx((1 - theta) / 2)} == told


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"momentum": 0.9}, "its mu is a decay"),
        ({"weight_decay": 0.1}, "its mu is a decay"),
        ({"beta": 1.5, "bn_policy": "share_all"}, "a beta of at most 1 where running variances are shared"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Json], words: str) -> None:
    """A setting that would be ignored, and variances that can become negative."""
    with pytest.raises(SettingError) as caught:
        load("pfedme").settle(given)
    assert words in caught.value.expected


def test_the_defaults_are_the_papers() -> None:
    """K_in = 5, lambda = 15, beta = 1, eta_p = 0.01; theta predicts and never travels."""
    chosen, client = load("pfedme").settle({}), build_client(pfedme, norm=True)
    assert (5, 15.0, 1.0, 0.01, "theta") == (
        chosen.K_in,
        chosen.lambda_,
        chosen.beta,
        chosen.eta_p,
        chosen.eval_model,
    )
    assert State.of(client.theta).within("theta").keys() <= set(client.stays("train"))
