"""A second model has tensors of its own, and starts where the first is."""

from __future__ import annotations

import pytest
import torch

from pfl_common.learning.second_model import build_second, predict, start_second
from pfl_common.methods import fedavg
from pfl_common.tensors.state import State
from tests.common.methods.toy import build_client, equal

torch.set_num_threads(1)

STATISTICS = {"encoder.1.1.running_mean", "encoder.1.1.running_var"}


@pytest.mark.parametrize(
    ("policy", "stays"), [("local_stats", STATISTICS), ("local_bn", STATISTICS), ("share_all", set())]
)
def test_it_starts_where_the_first_is(policy: str, stays: set[str]) -> None:
    """Parameters, those of batch norm too; statistics only where they are common."""
    client = build_client(fedavg, norm=True, bn_policy=policy)
    second = build_second(client)
    with torch.no_grad():
        for value in client.state_dict().values():
            value.add_(1) if value.is_floating_point() else value.fill_(9)
    start_second(second, client)
    names = {name for name, value in second.state_dict().items() if value.is_floating_point()}

    assert set(client.state_dict()) == set(second.state_dict())
    assert equal(State.of(client, names - stays), State.of(second, names - stays))
    assert not any(torch.equal(client.state_dict()[name], second.state_dict()[name]) for name in stays)
    assert 0 == second.state_dict()["encoder.1.1.num_batches_tracked"]


def test_it_predicts_by_itself() -> None:
    """What is done to one of the two does not show in the other."""
    client, x = build_client(fedavg), torch.ones(1, 2)
    second = build_second(client)
    before = client(x)
    torch.nn.init.zeros_(second["head"].weight)
    torch.nn.init.constant_(second["head"].bias, 7.0)

    assert [7.0] * 3 == predict(second, x)[0].tolist()
    assert torch.equal(before, client(x))
