"""A batch norm cannot learn from batches of one sample: such a run is refused before it begins, whatever its method."""

from __future__ import annotations

import pytest

from pfl_common import methods
from pfl_common.errors import SettingError
from pfl_common.spec.run import Model, RunSpec


def spec(method: str, backbone: str, batch: int) -> RunSpec:
    """A run on small pictures."""
    model = Model(backbone, (1, 16, 16), ("a", "b", "c"))
    return RunSpec("toy", method, {"batch": batch}, model, rounds=5, seed=3, roster=("a",))


@pytest.mark.parametrize("method", methods.names())
def test_batches_of_one_are_refused_beside_batch_norm(method: str) -> None:
    """Every batch would be left out, and nothing trained."""
    with pytest.raises(SettingError, match=f"batch is 1, and {method} on resnet8 has batch norm"):
        methods.build_participant(spec(method, "resnet8", 1))
    assert methods.build_participant(spec(method, "resnet8", 2)).settings.batch == 2


@pytest.mark.parametrize("method", sorted({*methods.names()} - {"dualfed"}))
def test_batches_of_one_are_taken_elsewhere(method: str) -> None:
    """A network without batch norm learns from single samples; DualFed's projector has one."""
    assert methods.build_participant(spec(method, "cnn", 1)).settings.batch == 1
