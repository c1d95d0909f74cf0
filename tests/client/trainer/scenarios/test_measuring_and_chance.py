"""A run that is measured trains as one that is not, also where layers draw by chance."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pfl_client.trainer import tasks
from pfl_common.methods import load
from pfl_common.models import Backbone
from pfl_common.randomness import generators
from pfl_common.spec.run import Json
from pfl_common.tensors.state import State
from tests.common.methods.toy import ask, build_data, equal


def learned(method: str, settings: dict[str, Json], *, point: str) -> State:
    """What a site keeps of its first round, with a network that has dropout and batch norm."""
    found = load(method)
    encoder = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    config = found.settle({"batch": 3, **settings, "eval_point": point})
    client = found.client(config, Backbone(encoder, nn.Linear(3, 3), 3), 3)
    generators.initialise(client, 3)
    down = State.of(client, client.travels("train"))
    tasks.perform(client, build_data(), down, ask())
    return State.of(client)


@pytest.mark.parametrize(
    ("method", "settings"),
    [("fedper", {}), ("perfedavg", {}), ("fedcp", {"policy": "gumbel"})],
    ids=["a calibration", "a step before predicting", "noise in predictions"],
)
def test_measuring_before_training_draws_nothing_of_it(method: str, settings: dict[str, Json]) -> None:
    """Each of the three draws from torch's chance: the model is the same wherever it is measured."""
    before, after, both = (learned(method, settings, point=point) for point in ("pre", "post", "both"))
    assert equal(before, after)
    assert equal(before, both)
    assert not torch.equal(
        before["encoder.0.weight"], learned(method, {"lr": 0.01}, point="pre")["encoder.0.weight"]
    )
