"""What travels is decided by place and by type of layer, never by what a name looks like."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pfl_common.learning.partition import (
    floating,
    has_batch_norm,
    held_back,
    inside,
    of_type,
    running_statistics,
    travelling,
)

torch.set_num_threads(1)

AFFINE = {"encoder.downsample.1.weight", "encoder.downsample.1.bias"}
STATISTICS = {"encoder.downsample.1.running_mean", "encoder.downsample.1.running_var"}
COUNTER = {"encoder.downsample.1.num_batches_tracked"}
CONVOLUTION = {"encoder.downsample.0.weight"}
FALSE_FRIEND = {"encoder.bn_like.weight", "encoder.bn_like.bias"}
HEAD = {"head.weight", "head.bias"}
SCALE = {"scale"}
FLOATING = AFFINE | STATISTICS | CONVOLUTION | FALSE_FRIEND | HEAD | SCALE


class Network(nn.Module):
    """A batch norm whose name does not say so, a linear layer whose name does, and a bare parameter."""

    def __init__(self) -> None:
        super().__init__()
        downsample = nn.Sequential(nn.Conv2d(1, 2, 1, bias=False), nn.BatchNorm2d(2))
        self.encoder = nn.ModuleDict({"downsample": downsample, "bn_like": nn.Linear(2, 2)})
        self.head = nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.ones(()))


def test_every_name_is_placed() -> None:
    """The sets above are the whole network."""
    assert FLOATING | COUNTER == set(Network().state_dict())


def test_integer_counters_cannot_be_averaged() -> None:
    """All numbers but the batch counters."""
    assert FLOATING == floating(Network())


def test_batch_norm_is_found_by_type() -> None:
    """The one called `downsample.1`, and not the linear layer called `bn_like`."""
    assert AFFINE | STATISTICS | COUNTER == of_type(Network(), nn.BatchNorm2d)


def test_running_statistics_are_buffers_of_batch_norm() -> None:
    """Means and variances, and the counter beside them."""
    assert STATISTICS | COUNTER == running_statistics(Network())


def test_a_module_that_is_itself_a_batch_norm() -> None:
    """At the top, names have no owner before them."""
    assert {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"} == of_type(
        nn.BatchNorm1d(2), nn.BatchNorm1d
    )


def test_batch_norm_without_statistics() -> None:
    """A layer that keeps none has none that could stay."""
    layer = nn.Sequential(nn.BatchNorm1d(2, affine=False, track_running_stats=False))

    assert (set(), set(), True) == (
        of_type(layer, nn.BatchNorm1d),
        running_statistics(layer),
        has_batch_norm(layer),
    )


@pytest.mark.parametrize(
    ("prefixes", "expected"),
    [
        (("head",), HEAD),
        (("scale",), SCALE),
        (("encoder.downsample", "scale"), CONVOLUTION | AFFINE | STATISTICS | COUNTER | SCALE),
        (("enc", "hea", "head.w"), set()),
        ((), set()),
    ],
)
def test_a_place_is_a_whole_part_of_a_name(prefixes: tuple[str, ...], expected: set[str]) -> None:
    """A prefix ends at a dot or at the end, so `enc` is no place."""
    assert expected == inside(Network(), *prefixes)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("share_all", FLOATING),
        ("local_stats", FLOATING - STATISTICS),
        ("local_bn", FLOATING - STATISTICS - AFFINE),
    ],
)
def test_what_a_policy_keeps_at_home(policy: str, expected: set[str]) -> None:
    """Everything is averaged, or all but statistics, or all but batch norm."""
    assert expected == travelling(Network(), policy)
    assert expected == FLOATING - held_back(Network(), policy)


def test_a_policy_holds_below_a_prefix() -> None:
    """A method that shares its encoder shares of it what the policy lets go."""
    assert CONVOLUTION | FALSE_FRIEND | AFFINE == travelling(Network(), "local_stats", ["encoder"])
    assert HEAD == travelling(Network(), "local_bn", ["head"])


def test_no_prefix_is_not_every_prefix() -> None:
    """An empty list of places means nothing; leaving it out means everything."""
    assert (set(), FLOATING) == (travelling(Network(), "share_all", []), travelling(Network(), "share_all"))


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(2), nn.BatchNorm2d(2), nn.BatchNorm3d(2)])
def test_batch_norm_is_noticed_at_any_depth(layer: nn.Module) -> None:
    """Such a network cannot train on one sample."""
    assert has_batch_norm(nn.Sequential(nn.Sequential(layer)))


@pytest.mark.parametrize(
    "layer", [nn.LayerNorm(2), nn.GroupNorm(1, 2), nn.InstanceNorm2d(2, affine=True), nn.Linear(2, 2)]
)
def test_other_layers_train_on_one_sample(layer: nn.Module) -> None:
    """Norms over a sample's own numbers are no batch norm."""
    assert not has_batch_norm(nn.Sequential(layer))
