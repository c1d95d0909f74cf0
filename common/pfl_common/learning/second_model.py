"""A second model beside the travelling one: personal, inherited, or tied to the first."""

from __future__ import annotations

import copy

from torch import Tensor, nn

from pfl_common.learning.method import Participant
from pfl_common.learning.partition import BnPolicy, travelling
from pfl_common.tensors.state import State, load_into


def build_second(participant: Participant) -> nn.ModuleDict:
    """A copy of encoder and head, under these names, with batch-norm statistics of its own."""
    head = participant.get_submodule("head")
    return nn.ModuleDict({"encoder": copy.deepcopy(participant.encoder), "head": copy.deepcopy(head)})


def start_second(second: nn.ModuleDict, participant: Participant) -> None:
    """Put the second model where the first is: parameters; and statistics, where these are common to all sites."""
    common: BnPolicy = "share_all" if participant.settings.bn_policy == "share_all" else "local_stats"
    load_into(second, State.view(participant, travelling(participant, common, ["encoder", "head"])))


def predict(second: nn.ModuleDict, x: Tensor) -> Tensor:
    """The second model's scores."""
    scores: Tensor = second["head"](second["encoder"](x))
    return scores
