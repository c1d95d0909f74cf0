"""A manifest follows from rehearsed parcels: every tensor once, in one order, and what some parcels lack as a group."""

from __future__ import annotations

import pytest
import torch

from pfl_common.spec.manifest import Entry
from pfl_common.tensors import pinning
from pfl_common.tensors.state import State


def test_tensors_are_pinned_in_the_order_of_their_names() -> None:
    """With type and shape; a branch that one parcel lacks is a group, whichever parcel is looked at first."""
    both = State({"model.w": torch.ones(2, 3), "extra.v": torch.ones(3, dtype=torch.int64)})
    one = State({"model.w": torch.ones(2, 3)})
    expected = (Entry("extra.v", "int64", (3,), "extra"), Entry("model.w", "float32", (2, 3), ""))
    assert expected == pinning.pin([both, one]) == pinning.pin([one, both])


def test_a_name_that_changes_cannot_be_pinned() -> None:
    """Two rehearsed parcels that disagree on a tensor are an error before the run."""
    with pytest.raises(ValueError, match="'w' changes between parcels"):
        pinning.pin([State({"w": torch.ones(2)}), State({"w": torch.ones(3)})])
