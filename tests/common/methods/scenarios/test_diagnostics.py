"""What methods tell of themselves: each number in a sentence, and the state none the wiser for it."""

from __future__ import annotations

from importlib import import_module
from math import isfinite, nan
from types import SimpleNamespace

import pytest
import torch

from pfl_client.trainer import tasks
from pfl_common import evaluation, methods
from pfl_common.learning.method import Arrivals, Averaging, Closed, Metrics
from pfl_common.methods import Method, fedavg, fedproto
from pfl_common.spec.run import Task
from pfl_common.tensors.state import State
from pfl_common.tensors.summing import Sum
from tests.common.methods.toy import ask, build_client, build_data, build_spec, equal, gather

torch.set_num_threads(1)


def play(name: str) -> tuple[list[Metrics], list[Metrics], set[str]]:
    """Two rounds of three sites: what the coordinator told, what training said, which views there are.

    Of the seven samples that a site has Per-FedAvg needs two batches for each step.
    """
    module = import_module(f"pfl_common.methods.{name}")
    method = Method.of(module)
    half = method.build_server(build_spec(name))
    clients, told, learned = {site: build_client(module, batch=3) for site in "abc"}, [], []
    data = {site: build_data(site) for site in "abc"}
    state = half.start(clients["a"], 3)
    for number in (1, 2):
        task = ask(number, since=number - 1)
        for site, client in clients.items():
            client.receive(half.welcome(state) if number == 1 else half.send(state, site, task), task)
            learned.append(client.learn(data[site], task) | tasks.diagnose(client, data[site], task))
        arrivals = gather(clients, data, task)
        closed = method.close(half, state, arrivals=arrivals, task=task)
        assert equal(half.close(state, arrivals, task).state, closed.state)
        told.append(closed.numbers)
        state = closed.state
    return told, learned, set(clients["a"].views(data["a"].test.x))


@pytest.mark.parametrize("name", methods.names())
def test_each_number_has_its_sentence_and_each_sentence_its_number(name: str) -> None:
    """Numbers of one picture share a sentence; heads have one if there are several."""
    told, learned, views = play(name)
    numbers = {number for metrics in (*told, *learned) for number in metrics}
    assert all(isfinite(value) for metrics in (*told, *learned) for value in metrics.values())
    assert {number for metrics in learned for number in metrics} == {
        number for metrics in learned for number in evaluation.told(evaluation.tell(metrics))
    }, "a name that no report may hold stays at the site"
    families = {number.partition("/")[0] for number in numbers} | ({"views"} if len(views) > 1 else set())
    diagnostics = methods.load(name).diagnostics
    assert set(diagnostics) == families
    assert all(words.endswith(".") for words in diagnostics.values())
    assert all(view in diagnostics["views"] for view in views if len(views) > 1)


def test_methods_that_only_average_tell_nothing_at_the_coordinator() -> None:
    """What is not computed is not made up."""
    assert [{}, {}] == play("fedavg")[0]


def test_only_numbers_are_told() -> None:
    """What is not finite has no place in a curve, in JSON or on a page."""

    class Talkative(Averaging):
        def close(self, state: State, arrivals: Arrivals, task: Task) -> Closed:
            return Closed(state, {"one": 1, "odd": nan, "endless": -torch.inf})

    half = Talkative(fedavg.Config(), build_spec("fedavg"))
    closed = Method.of(fedavg).close(half, State(), arrivals=Arrivals(Sum(), {}), task=ask())
    assert {"one": 1.0} == closed.numbers


def state_of(prototypes: list[list[float]], known: list[float]) -> State:
    """FedProto's state."""
    return State({"prototypes": torch.tensor(prototypes), "known": torch.tensor(known)})


def tell(before: State, after: State) -> Metrics:
    """What FedProto tells of a round between two states."""
    half = fedproto.Server(fedproto.Config(), build_spec("fedproto"))
    brought = SimpleNamespace(mean=lambda otherwise: after)
    return half.close(before, Arrivals(brought, {}), ask()).numbers


def test_prototypes_by_hand() -> None:
    """Class 0 goes by (3,4), class 1 stays, class 2 is new; from (3,4), (3,0), (9,0) the nearest are 4, 4, 6 away."""
    before = state_of([[0.0, 0.0], [3.0, 0.0], [7.0, 7.0]], [1, 1, 0])
    after = state_of([[3.0, 4.0], [3.0, 0.0], [9.0, 0.0]], [1, 1, 0.999])
    expected = {"classes": 3.0, "prototypes/moved": 2.5, "prototypes/apart": pytest.approx(14 / 3)}
    assert expected == tell(before, after)


def test_prototypes_that_are_not_there_are_not_told_of() -> None:
    """The first ones came from nowhere, and one alone is apart from nobody."""
    none = state_of([[0.0, 0.0]] * 2, [0, 0])
    assert {"classes": 0.0} == tell(none, none)
    assert {"classes": 1.0} == tell(none, state_of([[5.0, 0.0], [1.0, 1.0]], [1, 0]))
    one = state_of([[2.0, 0.0], [1.0, 1.0]], [1, 0])
    assert {"classes": 1.0, "prototypes/moved": 0.0} == tell(one, one)
