"""What a method costs a site: figures that can be worked by hand, and a file of them that is never stale."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pfl_common import methods
from pfl_server.method_help.costs import Alive, measure
from pfl_server.run.kept_figures import NETWORKS, SAMPLES, Figures, read_kept

torch.set_num_threads(1)

CNN = NETWORKS[0]
FORWARD = 28 * 28 * 32 * 75 + 10 * 10 * 64 * 800 + 1600 * 512 + 512 * 10
"""Multiply-adds of one picture through the four layers."""
FIRST = 28 * 28 * 32 * 75
"""Of its first layer, whose input takes no gradient."""


def test_tensors_are_counted_as_long_as_they_are_there() -> None:
    """Weights, gradients and momentum of a million numbers each; then a copy; then nothing."""
    with Alive() as alive:
        net = nn.Linear(1000, 1000, bias=False)
        assert 4_000_000 == alive.now
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
        for _ in range(2):
            optimiser.zero_grad()
            net(torch.ones(2, 1000)).sum().backward()
            optimiser.step()
        assert 12_000_000 == alive.now
        view = net.weight.detach()[:10]
        assert 12_000_000 == alive.now, "a view is no copy"
        copy = view.clone()
        assert 12_000_000 + copy.numel() * 4 == alive.now
        del view, copy, net, optimiser
        assert 0 == alive.now
        assert 12_000_000 <= alive.most < 12_100_000


@pytest.fixture(scope="module")
def fedavg() -> Figures:
    """FedAvg on the small network."""
    return measure("fedavg", CNN)


def test_fedavg_holds_four_networks(fedavg: Figures) -> None:
    """Its own, the download, gradients, momentum; the rest is two samples on their way."""
    assert 4 * 878_538 == fedavg.model
    assert 4 <= fedavg.sets < 4.25
    assert fedavg.peak > fedavg.held


def test_fedavg_multiplies_what_its_layers_say(fedavg: Figures) -> None:
    """Forward, gradients of all weights, gradients of all inputs but the first layer's."""
    assert FORWARD * 3 - FIRST == fedavg.products_per_sample
    assert SAMPLES * (FORWARD * 3 - FIRST) == fedavg.products


def test_more_passes_multiply_more(fedavg: Figures) -> None:
    """Two epochs are twice the work and no more memory."""
    twice = measure("fedavg", CNN, {"epochs": 2})
    assert (2 * fedavg.products, fedavg.up) == (twice.products, twice.up)
    assert fedavg.held == pytest.approx(twice.held, rel=0.01)


@pytest.mark.parametrize("name", methods.names())
def test_the_kept_figures_are_those_of_today(name: str) -> None:
    """Bytes and multiply-adds to the last one; memory as near as another release of torch may bring it."""
    kept, now = read_kept()[CNN.words][name], measure(name, CNN)
    advice = f"{name} costs otherwise than the file says: python -m pfl_deploy.reference.method_pages"
    assert (kept.down, kept.up, kept.kept, kept.products) == (now.down, now.up, now.kept, now.products), (
        advice
    )
    assert kept.held == pytest.approx(now.held, rel=0.02), advice
    assert kept.peak == pytest.approx(now.peak, rel=0.02), advice
