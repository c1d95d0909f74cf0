"""LG-FedAvg: one number a, two heads' weights, two sites of one and three samples, over three rounds."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pfl_common.learning.method import LocalData, Participant, Samples, ServerHalf
from pfl_common.methods import Method, lgfedavg, load
from pfl_common.models import Backbone
from pfl_common.spec.run import Json, Task
from pfl_common.tensors.state import State
from pfl_server.run.rehearsal import rehearse
from tests.common.methods.toy import ask, build_client, build_spec, equal, gather

torch.set_num_threads(1)

ROUNDS = 3


class Federation:
    """Two sites and their coordinator, each site the same object from round to round."""

    def __init__(self, *, absent: tuple[tuple[str, int], ...] = (), **settings: Json) -> None:
        self.absent = absent
        given = {"lr": 0.5, "momentum": 0.0, **settings}
        self.config = load("lgfedavg").settle(given)
        self.clients = {site: self._build() for site in ("one", "two")}
        self.data = {"one": samples("one", 1.0, 0, 1), "two": samples("two", 2.0, 1, 3)}
        self.server: ServerHalf = load("lgfedavg").build_server(build_spec("lgfedavg", given))
        self.state = self.server.start(self.clients["one"], 3)
        self.since = {"one": 0, "two": 0}

    def _build(self) -> Participant:
        """o = W a x with a = 1 and W = (0.5, −0.5)."""
        backbone = Backbone(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False), 1)
        client = lgfedavg.Client(self.config, backbone, 2).double()
        with torch.no_grad():
            client.encoder.weight.fill_(1.0)
            client.head.weight.copy_(torch.tensor([[0.5], [-0.5]]))
        return client

    def task(self, number: int, site: str) -> Task:
        """A round's request to a site."""
        name = lgfedavg.phase(self.config, number, ROUNDS)
        return ask(number, phase=name, since=self.since[site])

    def play(self, rounds: int = ROUNDS) -> Federation:
        """Play rounds; who is absent in one is not asked."""
        for number in range(1, rounds + 1):
            there = {s: c for s, c in self.clients.items() if (s, number) not in self.absent}
            for site, client in there.items():
                task = self.task(number, site)
                client.receive(self.server.send(self.state, site, task), task)
                client.learn(self.data[site], task)
            task = ask(number, phase=lgfedavg.phase(self.config, number, ROUNDS))
            self.state = self.server.close(self.state, gather(there, self.data, task), task).state
            self.since |= dict.fromkeys(there, number)
        return self

    def encoders(self) -> list[float]:
        """Each site's own a."""
        return [client.encoder.weight.item() for client in self.clients.values()]

    def head(self) -> list[float]:
        """The common W."""
        return self.state["head.weight"].flatten().tolist()


def samples(site: str, x: float, label: int, count: int) -> LocalData:
    """Equal samples, in one batch."""
    part = Samples(torch.full((count, 1), x, dtype=torch.float64), torch.full((count,), label))
    return LocalData(part, part, part, classes=2, site=site, seed=7)


def near(values: list[float]) -> object:
    """The specification's tolerance."""
    return pytest.approx(values, abs=1e-5)


@pytest.mark.golden("lgfedavg", item=29)
def test_in_the_shared_rounds_it_is_fedavg() -> None:
    """After round 1 of T_pre = 1 both a and W are the means by samples."""
    played = Federation(pretrain_rounds=1).play(1)

    assert near([0.37302]) == played.state["encoder.weight"].flatten().tolist()
    assert near([-0.12698, 0.12698]) == played.head()


@pytest.mark.golden("lgfedavg", item=29)
@pytest.mark.parametrize(
    ("rounds", "encoders", "head"),
    [
        (2, [0.306525, 0.488007], [-0.229234, 0.229234]),
        (3, [0.183868, 0.666792], [-0.35146, 0.35146]),
    ],
)
def test_after_the_switch_each_goes_on_from_the_common_encoder(
    rounds: int, encoders: list[float], head: list[float]
) -> None:
    """A site that kept the encoder it had trained itself would be at 1.061897 or 0.24234 after round 2."""
    played = Federation(pretrain_rounds=1).play(rounds)

    assert near(encoders) == played.encoders()
    assert near(head) == played.head()
    assert near([1.061897, 0.24234]) != played.encoders()


@pytest.mark.golden("lgfedavg", item=29)
def test_two_shared_rounds() -> None:
    """T_pre = 2: each site's a after its one round alone."""
    assert near([0.316429, 0.625979]) == Federation(pretrain_rounds=2).play().encoders()


@pytest.mark.golden("lgfedavg", item=29)
@pytest.mark.parametrize(("aggregation", "expected"), [("samples", 0.37302), ("uniform", 0.626837)])
def test_how_sites_count(aggregation: str, expected: float) -> None:
    """By their one and three samples, or alike."""
    played = Federation(pretrain_rounds=1, aggregation=aggregation).play(1)
    assert near([expected]) == played.state["encoder.weight"].flatten().tolist()


def test_without_shared_rounds_nobody_ever_sends_an_encoder() -> None:
    """The default: the first encoder is handed out, and every site trains its own from round 1 on."""
    played = Federation()
    first = played.state["encoder.weight"].item()
    played.play()

    assert 0 == load("lgfedavg").settle({}).pretrain_rounds
    assert first == played.state["encoder.weight"].item() == 1.0
    assert played.encoders()[0] != played.encoders()[1]


def test_who_missed_the_switch_gets_its_encoder() -> None:
    """Site two is away in round 2: in round 3 it starts from the snapshot and not from the a it had trained."""
    played = Federation(pretrain_rounds=1, absent=(("two", 2),)).play(2)
    snapshot, task = played.state["encoder.weight"], played.task(3, "two")
    client = played.clients["two"]
    trained = client.encoder.weight.item()

    client.receive(played.server.send(played.state, "two", task), task)

    assert near([0.37302]) == snapshot.flatten().tolist()
    assert snapshot.item() == client.encoder.weight.item() != trained


@pytest.mark.parametrize(
    ("number", "since", "expected"),
    [
        (1, 0, {"encoder", "head"}),
        (2, 1, {"encoder", "head"}),
        (3, 2, {"encoder", "head"}),
        (5, 1, {"encoder", "head"}),
        (5, 0, {"encoder", "head"}),
        (4, 3, {"head"}),
        (5, 3, {"head"}),
    ],
)
def test_who_gets_the_encoder(number: int, since: int, expected: set[str]) -> None:
    """T_pre = 2: sites that have not trained since the switch; the others keep theirs."""
    method = load("lgfedavg")
    server = method.build_server(build_spec("lgfedavg", {"pretrain_rounds": 2}))
    state = server.start(build_client(lgfedavg), 3)
    task = ask(number, phase=method.phase(server.config, number, 5), since=since)

    assert expected == set(server.send(state, "a", task).branches())
    assert equal(state, server.welcome(state))
    assert method.per_client


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [("head", 1)]),
        ({"pretrain_rounds": 2}, [("full", 1), ("head", 3)]),
        ({"pretrain_rounds": 9}, [("full", 1)]),
    ],
)
def test_when_it_switches(given: dict[str, Json], expected: list[tuple[str, int]]) -> None:
    """After T_pre rounds; at once, or never, if there are none or only shared ones."""
    method = load("lgfedavg")
    assert expected == method.phases(method.settle(given), 5)


@pytest.mark.parametrize(
    ("parcel", "expected"),
    [
        ("train/full/down", {("encoder", ""), ("head", "")}),
        ("train/head/down", {("encoder", "encoder"), ("head", "")}),
    ],
)
def test_a_rehearsal_sees_that_an_encoder_may_not_come(parcel: str, expected: set[tuple[str, str]]) -> None:
    """After the switch it is pinned as a group that may be absent, and never goes up."""
    method = Method.of(lgfedavg)
    spec = build_spec("lgfedavg", {"pretrain_rounds": 2})
    manifests = rehearse(method, spec, build_client(lgfedavg, pretrain_rounds=2))

    assert expected == {(entry.name.partition(".")[0], entry.group) for entry in manifests[parcel]}
    assert not any("encoder" in entry.name for entry in manifests["train/head/up"])


def test_after_the_switch_all_of_the_encoder_stays() -> None:
    """With its batch norm and statistics, whatever was shared of them before."""
    client = build_client(lgfedavg, norm=True)
    encoder = {name for name in client.state_dict() if name.startswith("encoder.")}

    assert {"encoder.1.1.num_batches_tracked"} == set(client.stays("full"))
    assert encoder == set(client.stays("head"))
    assert {"head.weight", "head.bias"} == set(client.travels("head"))
    assert State.of(client, client.travels("head")).keys() == {"head.weight", "head.bias"}
