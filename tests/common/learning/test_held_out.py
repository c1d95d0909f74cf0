"""What is held out of a site's training data, and the loss another model would have on it."""

from __future__ import annotations

import pytest
import torch

from pfl_common.errors import TooFewSamples
from pfl_common.learning.held_out import AT_ONCE, hold_out, loss_with
from pfl_common.methods import fedavg
from pfl_common.randomness import generators
from pfl_common.tensors.state import State
from tests.common.methods.toy import build_client, build_data

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("share", "samples", "expected"), [(0.2, 7, 1), (0.5, 7, 3), (0.2, 3, 1), (0.9, 10, 9)]
)
def test_the_share_is_rounded_down_and_at_least_one(share: float, samples: int, expected: int) -> None:
    """And the rest trains: each sample is in one of the two."""
    data = build_data(labels=(0, 1) * (samples // 2) + (0,) * (samples % 2))
    training, held_out = hold_out(data, share)
    assert (samples - expected, expected) == (len(training.train), len(held_out))
    both = torch.cat([held_out.x, training.train.x])
    assert sorted(data.train.x.tolist()) == sorted(both.tolist())
    assert training.test is data.test


def test_it_is_the_first_part_of_a_draw_by_run_and_site() -> None:
    """The same in every round; another site draws another one."""
    data = build_data()
    order = torch.randperm(7, generator=generators.generator(7, "a", "validation"))
    assert torch.equal(data.train.x[order[:3]], hold_out(data, 0.5)[1].x)
    assert torch.equal(data.train.y[order[3:]], hold_out(data, 0.5)[0].train.y)
    assert order.tolist() != torch.randperm(7, generator=generators.generator(7, "b", "validation")).tolist()


@pytest.mark.parametrize("labels", [(), (1,)])
def test_fewer_than_two_are_too_few(labels: tuple[int, ...]) -> None:
    """Nothing would be left to train on."""
    with pytest.raises(TooFewSamples, match=f"{len(labels)} training sample"):
        hold_out(build_data(labels=labels), 0.2)


def test_the_loss_of_another_model() -> None:
    """By plain formulas, over more samples than go at once; the participant itself is not touched."""
    client = build_client(fedavg)
    own, other = State.of(client), State.of(client).apply(lambda value: value + 0.5)
    samples = build_data(labels=(0, 1, 2) * AT_ONCE).train
    features = torch.tanh(samples.x @ other["encoder.0.weight"].T + other["encoder.0.bias"])
    scores = features @ other["head.weight"].T + other["head.bias"]
    expected = float(-torch.log_softmax(scores.double(), 1)[range(len(samples)), samples.y].mean())
    assert expected == pytest.approx(loss_with(client, other, samples), rel=1e-6)
    assert all(torch.equal(value, client.state_dict()[name]) for name, value in own.items())


def test_it_is_measured_in_evaluation_mode() -> None:
    """Running statistics are used and not moved."""
    client = build_client(fedavg, norm=True)
    client.train()
    before = State.of(client)
    loss_with(client, {}, build_data().train)
    assert all(torch.equal(value, client.state_dict()[name]) for name, value in before.items())
