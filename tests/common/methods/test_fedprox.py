"""FedProx: FedAvg, pulled back; the steps are worked out by hand on a model of one number."""

from __future__ import annotations

import pytest
import torch

from pfl_common.methods import fedprox, load
from pfl_common.tensors.state import State
from tests.common.methods.one_number import build_number, build_samples, download, read, slide
from tests.common.methods.toy import ask, build_client, build_data

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("mu", "steps"), [(0.0, [2.1, 2.2, 2.3]), (0.5, [2.1, 2.195, 2.28525]), (1.0, [2.1, 2.19, 2.271])]
)
def test_each_step_is_pulled_towards_the_received_model(
    mu: float, steps: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slope is −1 + mu (w − 2): at 2.1 with mu = 0.5 it is −0.95, at 2.195 it is −0.9025.

    An unsquared norm would pull by a constant; a pull towards 0 would show in the first step.
    """
    monkeypatch.setattr(fedprox, "cross_entropy", slide)
    reached = []
    for epochs in (1, 2, 3):
        client = build_number(fedprox, mu=mu, epochs=epochs)
        client.receive(download(2.0), ask())
        client.learn(build_samples(), ask())
        reached.append(read(client))

    assert pytest.approx(steps) == reached


def test_what_is_told_is_what_is_minimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the third step −2.195 + (0.5/2) 0.195²; afterwards w is 0.28525 away."""
    monkeypatch.setattr(fedprox, "cross_entropy", slide)
    client = build_number(fedprox, 2.0, mu=0.5, epochs=3)

    told = client.learn(build_samples(), ask())

    assert {"loss": pytest.approx(-2.18549375), "moved": pytest.approx(0.28525)} == told


def test_the_default_is_that_of_the_papers() -> None:
    """mu = 0.01, everything averaged as in FedAvg, sums are enough."""
    settings = load("fedprox").settle({})
    assert (0.01, "share_all", "samples", "") == (
        settings.mu,
        settings.bn_policy,
        settings.aggregation,
        load("fedprox").shows,
    )


def test_layers_that_stay_are_pulled_too() -> None:
    """Under local_bn scale and shift are pulled towards where they were at the start of the round."""
    moved = []
    for mu in (0.0, 5.0):
        client = build_client(fedprox, norm=True, bn_policy="local_bn", mu=mu, lr=0.1, epochs=20)
        scale = {"encoder.1.1.weight", "encoder.1.1.bias"}
        before = State.of(client, scale)
        client.learn(build_data(), ask())
        moved.append(sum((client.state_dict()[name] - before[name]).norm().item() for name in scale))

    assert set(client.stays("train")) >= scale
    assert 0 < 3 * moved[1] < moved[0]


def test_the_reference_is_the_download_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not copied; who trains again without one is held back near to where it is by then."""
    seen = []
    monkeypatch.setattr(fedprox, "cross_entropy", slide)
    monkeypatch.setattr(
        fedprox, "square_distance", lambda _, near: seen.append(near["encoder.weight"]) or torch.zeros(())
    )
    client, came = build_number(fedprox), download(2.0)
    client.receive(came, ask())
    client.learn(build_samples(), ask())
    client.learn(build_samples(), ask())
    assert came["encoder.weight"] is seen[0]
    assert 2.0 == seen[0].item() != seen[1].item()


def test_the_reference_is_of_this_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second round is pulled towards what came in it."""
    monkeypatch.setattr(fedprox, "cross_entropy", slide)
    client = build_number(fedprox, mu=1.0, epochs=2)
    for number, start in ((1, 2.0), (2, 7.0)):
        client.receive(download(start), ask(number))
        client.learn(build_samples(), ask(number))
        assert pytest.approx(start + 0.19) == read(client)
