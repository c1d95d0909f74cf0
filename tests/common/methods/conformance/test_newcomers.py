"""A site that comes after the run: what travels stays as it came, what is its own is fitted, and it predicts better."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
from torch.nn.functional import cross_entropy

from pfl_common.learning.method import LocalData, Participant
from pfl_common.methods import Method
from pfl_common.spec.run import Json, Kind, Task
from pfl_common.tensors.state import State, load_into

from .cases import FOUND, Case
from .federation import Federation, Habits, Newcomer, alike
from .schedule import CLASSES, ROUNDS, SEED, build_samples

POSSIBLE = tuple(case for case in FOUND if not Method.of(case.module()).no_newcomer)
TAKEN_AS_IT_IS = {"fedavg", "fedprox", "fedetf", "spherefed"}
"""Methods whose sites have no parameter of their own, by default: there is nothing to fit."""
MIXED_IN = {"perfedavg", "fedphp"}
"""Methods whose sites predict with something made of the shared model: it stands in that model's place."""

QUICK: dict[str, dict[str, Json]] = {"pfedme": {"eta_p": 0.1, "lambda": 1}}
"""A spring that lets go: after two rounds the shared model has little to hold on to."""

each_method = pytest.mark.parametrize("case", POSSIBLE, ids=str)


@cache
def finished(case: Case) -> Federation:
    """A federation after two of the schedule's rounds."""
    federation = Federation(
        case.module(), {**case.settings, **QUICK.get(case.name, {})}, Habits(watched=False)
    )
    federation.begin(2)
    return federation


@cache
def newcomer_of(case: Case) -> Newcomer:
    """The site z after a run."""
    return finished(case).welcome_after_the_end(build_data())


def build_data() -> LocalData:
    """Forty samples of three classes to learn from, and sixty to be tested with."""
    parts = [torch.arange(count).numpy() % 3 for count in (40, 0, 60)]
    train, validation, test = (
        build_samples(y, 5, part, torch.float64) for part, y in zip((5, 6, 7), parts, strict=True)
    )
    return LocalData(train, validation, test, CLASSES, "z", SEED)


def count_right(model: Participant) -> int:
    """Test samples that are named rightly."""
    test = build_data().test
    with torch.no_grad():
        return int((model(test.x).argmax(1) == test.y).sum())


@each_method
def test_what_travels_stays_as_it_came(case: Case) -> None:
    """The shared tensors are those of the download, bit for bit, in all methods that do not predict with a mixture."""
    newcomer = newcomer_of(case)
    model, shared = State.of(newcomer.participant), newcomer.travelling & newcomer.down.keys()
    moved = {name for name in shared if not torch.equal(model[name], newcomer.down[name])}
    assert (case.name in MIXED_IN) == bool(moved)
    sent = Method.of(case.module()).shows == "" and bool(newcomer.travelling)
    assert sent == bool(shared), (
        "what travels came, unless a method sends single models in branches of their own"
    )


@each_method
def test_what_is_its_own_is_fitted(case: Case) -> None:
    """Parameters that stay are others than before it trained; methods without any are known."""
    newcomer = newcomer_of(case)
    before, after = (dict(model.named_parameters()) for model in (newcomer.received, newcomer.participant))
    own = before.keys() - newcomer.travelling
    moved = {name for name in own if not torch.equal(before[name], after[name])}
    expected = case.name not in TAKEN_AS_IT_IS | {"perfedavg"}
    assert expected == bool(moved)


@each_method
def test_it_predicts_better_than_with_what_came(case: Case) -> None:
    """On samples that it has not seen; where nothing is fitted, as well as before."""
    newcomer = newcomer_of(case)
    before, after = count_right(newcomer.received), count_right(newcomer.participant)
    if case.name in TAKEN_AS_IT_IS | {"perfedavg"}:
        assert before == after
    else:
        assert before < after


@each_method
def test_a_newcomer_is_the_same_twice(case: Case) -> None:
    """All its draws follow from the run's seed and its name."""
    again = finished(case).welcome_after_the_end(build_data())
    assert alike(State.of(newcomer_of(case).participant), State.of(again.participant))


def test_per_fedavg_takes_one_step() -> None:
    """The model is one step of rate alpha from what came, on one batch of training samples."""
    (case,) = (case for case in POSSIBLE if case.name == "perfedavg")
    newcomer, task = newcomer_of(case), Task(Kind.FINISH, ROUNDS, ROUNDS, late=True)
    model = copy.deepcopy(newcomer.participant).train()
    load_into(model, newcomer.down)
    x, y = next(build_data().batches(task, 0, size=model.settings.batch))
    names, values = zip(*model.named_parameters(), strict=True)
    slopes = torch.autograd.grad(cross_entropy(model(x), y), values)
    for name, value, slope in zip(names, values, slopes, strict=True):
        expected = value.detach() - model.settings.lr * slope
        assert torch.allclose(expected, newcomer.participant.get_parameter(name)), name


def test_local_says_why_there_can_be_none() -> None:
    """Nothing is shared, so nothing can be fetched."""
    refusing = {case.name for case in FOUND if Method.of(case.module()).no_newcomer}
    assert {"local"} == refusing


@pytest.mark.parametrize("case", FOUND, ids=str)
def test_each_method_says_it_in_one_sentence(case: Case) -> None:
    """Of its own, not the usual one: what is trained, how long, what is taken as it is; or why not."""
    module = case.module()
    (said,) = (getattr(module, name) for name in ("NEWCOMER", "NO_NEWCOMER") if hasattr(module, name))
    assert said.endswith(".")
    assert ". " not in said
