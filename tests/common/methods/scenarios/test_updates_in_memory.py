"""However many sites there are: a coordinator that needs single models has four of them in memory, and no more."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch

from pfl_common.learning.method import Arrivals
from pfl_common.methods import Method
from pfl_common.spec.run import Json
from pfl_common.tensors.state import State
from pfl_common.tensors.summing import Sum
from tests.common.methods.toy import Copied, ask, build_client, build_data, build_spec

torch.set_num_threads(1)

SITES = tuple(f"s{number:03d}" for number in range(100))
WIDE: dict[str, dict[str, Json]] = {
    "fedamp": {"alpha_k": 1.0, "sigma": 1000.0},
    "fedcac": {"collab": "top5", "merge_at": "server"},
    "fedfomo": {"M": 3},
}
"""Settings with which replies are made of several models."""


def updates(name: str, number: int) -> dict[str, Copied]:
    """An update of each site: what one would send, and by a little another one from each."""
    module = import_module(f"pfl_common.methods.{name}")
    client = build_client(module, **WIDE[name])
    client.learn(build_data(), ask())
    shown = client.report(build_data(), ask()).shown
    moved = [
        State({n: v + 0.01 * number * place if v.is_floating_point() else v for n, v in shown.items()})
        for place in range(len(SITES))
    ]
    return {site: Copied(f"{number}-{site}", state) for site, state in zip(SITES, moved, strict=True)}


@pytest.mark.parametrize(
    ("name", "closing", "sending"), [("fedamp", 4, 1), ("fedcac", 1, 1), ("fedfomo", 1, 3)]
)
def test_a_hundred_sites(name: str, closing: int, sending: int) -> None:
    """Two rounds of all, then replies to a few: the most models alive at once, by weak references."""
    module = import_module(f"pfl_common.methods.{name}")
    half = Method.of(module).build_server(build_spec(name, WIDE[name]))
    state = half.start(build_client(module, **WIDE[name]), 3)
    for number in (1, 2):
        Copied.forget()
        state = half.close(state, Arrivals(Sum(), updates(name, number)), ask(number)).state
        assert closing == Copied.most, f"closing round {number}"
    for site in (*SITES[:3], "newcomer"):
        Copied.forget()
        down = half.send(state, site, ask(3, since=2))
        assert len(down) > 0
        assert sending >= Copied.most, f"a reply to {site}"
        assert 3 <= Copied.reads_of_all or site == "newcomer", "it is made of several models"
