"""FedBN: FedAvg around batch-norm layers that stay at home."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pfl_common.methods import fedavg, fedbn, load
from pfl_common.models import Backbone
from pfl_common.tensors.state import State
from tests.common.methods.toy import ask, build_client, build_data, build_spec, equal, gather

NORM = {
    f"encoder.1.1.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
}
REST = {"encoder.0.weight", "encoder.0.bias", "head.weight", "head.bias"}


def run_round(module: object, *, norm: bool, **settings: object) -> tuple[State, dict[str, State]]:
    """One round of two sites of 2 and 6 samples: the state after it, and what each site's vault keeps."""
    method = load(module.__name__.rpartition(".")[2])
    data = {"a": build_data("a", labels=(0, 1)), "b": build_data("b", labels=(0, 1, 2, 0, 1, 2))}
    clients = {site: build_client(module, norm=norm, lr=0.5, **settings) for site in data}
    server = method.build_server(build_spec(method.name))
    state = server.start(build_client(module, norm=norm, **settings), 3)
    for site, client in clients.items():
        client.receive(server.send(state, site, ask()), ask())
        client.learn(data[site], ask())
    after = server.close(state, gather(clients, data, ask()), ask()).state
    return after, {site: State.of(client, client.stays("train")) for site, client in clients.items()}


def test_batch_norm_stays_whatever_its_name() -> None:
    """The layer here is called `1.1`: scale, shift, statistics and counter stay, the rest travels."""
    client = build_client(fedbn, norm=True)

    assert REST == set(client.travels("train"))
    assert NORM == set(client.stays("train"))
    assert REST == client.report(build_data(), ask()).summed.keys()


def test_a_shortcut_s_batch_norm_stays() -> None:
    """The one that a search for "bn" in the name misses."""
    shortcut = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    backbone = Backbone(nn.ModuleDict({"downsample": shortcut, "bn1": nn.BatchNorm2d(2)}), nn.Linear(2, 2), 2)
    client = fedbn.Client(fedbn.Config(), backbone, 2)

    assert {
        "encoder.downsample.0.weight",
        "encoder.downsample.0.bias",
        "head.weight",
        "head.bias",
    } == set(client.travels("train"))


def test_a_download_leaves_batch_norm_alone() -> None:
    """A site that returns finds its own layers around the new ones."""
    client = build_client(fedbn, norm=True)
    client.learn(build_data(), ask())
    own, common = State.of(client, NORM), State.of(client, REST).apply(torch.zeros_like)

    client.receive(common, ask(2, since=1))

    assert equal(own, State.of(client, NORM))
    assert equal(common, State.of(client, REST))


def test_batch_norm_is_trained() -> None:
    """It stays, but it learns: the two sites' scales and statistics part."""
    _, vaults = run_round(fedbn, norm=True)

    assert NORM == vaults["a"].keys()
    assert all(
        not torch.equal(vaults["a"][name], vaults["b"][name])
        for name in NORM
        if "weight" in name or "mean" in name
    )


def test_without_batch_norm_it_is_fedavg() -> None:
    """Bit by bit, also where the policies differ."""
    one, two = run_round(fedbn, norm=False)[0], run_round(fedavg, norm=False)[0]

    assert equal(one, two)
    assert not equal(one, State.of(build_client(fedbn), one))


def test_under_one_policy_it_is_fedavg() -> None:
    """What makes the method is what stays, and nothing else."""
    (one, ours), (two, theirs) = (run_round(m, norm=True, bn_policy="local_bn") for m in (fedbn, fedavg))

    assert equal(one, two)
    assert all(equal(ours[site], theirs[site]) for site in "ab")


@pytest.mark.parametrize(("aggregation", "expected"), [("samples", 3.25), ("uniform", 2.5)])
def test_how_sites_count(aggregation: str, expected: float) -> None:
    """(2*1 + 6*4) / 8 = 3.25 by samples; (1 + 4) / 2 = 2.5 as the original code has it."""
    data = {"a": build_data("a", labels=(0, 1)), "b": build_data("b", labels=(0, 1, 2, 0, 1, 2))}
    clients = {site: build_client(fedbn, norm=True, aggregation=aggregation) for site in data}
    with torch.no_grad():
        for client, value in zip(clients.values(), (1.0, 4.0), strict=True):
            client.head.bias.fill_(value)
    server = fedbn.Server(fedbn.Config(), build_spec("fedbn"))
    after = server.close(server.start(clients["a"], 3), gather(clients, data, ask()), ask()).state

    assert [expected] * 3 == after["head.bias"].tolist()


@pytest.mark.parametrize(("policy", "stays"), [("share_all", 1), ("local_stats", 3), ("local_bn", 5)])
def test_the_policy_can_be_chosen(policy: str, stays: int) -> None:
    """Another policy shares more: only the counter stays, or the statistics beside it, or the whole layer."""
    assert stays == len(set(build_client(fedbn, norm=True, bn_policy=policy).stays("train")))


def test_the_default_is_the_method() -> None:
    """Nothing typed gives batch norm at home and sites that count by samples."""
    settings = load("fedbn").settle({})

    assert ("local_bn", "samples") == (settings.bn_policy, settings.aggregation)
    assert "" == load("fedbn").shows


def test_presets() -> None:
    """The optimisers of the papers that compare with it; the authors' code counts sites alike."""
    method = load("fedbn")
    settled = {name: method.settle(preset) for name, preset in method.presets.items()}
    optimisers = {n: (c.lr, c.momentum, c.batch, c.epochs, c.drop_last) for n, c in settled.items()}
    expected = {
        "paper": (0.01, 0.5, 256, 1, False),
        "dualfed": (0.01, 0.5, 256, 1, False),
        "fedpick": (0.01, 0.5, 64, 1, False),
        "fedcac": (0.1, 0.0, 100, 5, False),
        "repro": (0.01, 0.5, 256, 1, False),
    }
    assert expected == optimisers
    assert {"local_bn"} == {config.bn_policy for config in settled.values()}
    assert {"repro"} == {name for name, config in settled.items() if config.aggregation == "uniform"}
