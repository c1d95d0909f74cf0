"""What holds for every method, whatever it computes: nothing personal leaves, only counted sets matter.

A new file is found and tried without a line here.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from pfl_common.learning.method import Participant
from pfl_common.methods import Method
from pfl_common.tensors.state import State

from .cases import CALLED, FOUND, SENT_TOO, UNMOVED, Case, play
from .federation import Habits, History, Trained, alike
from .schedule import BYSTANDER, ROUNDS, SITES

each_method = pytest.mark.parametrize("case", FOUND, ids=str)


def method_of(case: Case) -> Method:
    """The method as the product reads it."""
    return Method.of(case.module())


# -- the schedule


@each_method
def test_every_mishap_happens(case: Case) -> None:
    """Absences, drop-outs, a given-up attempt, a late join, a return and an empty round are really played."""
    history = play(case)
    expected = {
        "trained": 28,
        "counted": 17,
        "dropped": 8,
        "empty": 1,
        "abandoned": 1,
        "welcomed": 6,  # four in round 1; e twice, for its first attempt was given up
        "late": 2,
        "returned": 1,
        "evaluated": 48,
        "finished": 6,
    }
    assert expected == dict(history.events)
    assert {} == dict(history.vaults[ROUNDS][BYSTANDER]), "who is never asked keeps nothing"


@each_method
def test_training_moves_every_tensor(case: Case) -> None:
    """Whatever a method shares or keeps is really trained, so that no equality holds by standing still."""
    history = play(case)
    for site in set(SITES) - {BYSTANDER}:
        vault = history.vaults[ROUNDS][site]
        still = {name for name, value in vault.items() if torch.equal(value, history.init[name])}
        assert set() == still - UNMOVED.get(case.name, frozenset()), site
    first, last = history.states[1], history.states[ROUNDS]
    shared = first.keys() & last.keys() & history.init.keys()
    assert set() == {name for name in shared if torch.equal(history.init[name], first[name])}


# -- nothing personal leaves


@each_method
def test_nothing_personal_goes_up(case: Case) -> None:
    """No update has the name of a tensor that stays, or a single number of one, or of a sample."""
    if method_of(case).shows:
        pytest.skip("it shows, and says so")
    for _, trained in play(case).trained:
        for site in trained.values():
            if site.up is not None:
                assert set() == set(site.up.summed) & site.stays, site.site
                private = private_numbers(site, SENT_TOO.get(case.name))
                assert set() == numbers_of(site.up_state()) & private, site.site


def private_numbers(trained: Trained, copied: str | None) -> set[float]:
    """All that a site knows and nobody else: its tensors before and after training, its samples."""
    values = [trained.before[name] for name in trained.stays]
    values += [trained.after[name] for name in trained.stays if not (copied and name.startswith(copied))]
    return numbers_of([*values, trained.samples])


def numbers_of(values: Mapping[str, Tensor] | list[Tensor]) -> set[float]:
    """The single numbers of some tensors; 0 and 1 say nothing."""
    tensors = values.values() if isinstance(values, Mapping) else values
    floating = [value.reshape(-1) for value in tensors if value.is_floating_point()]
    return set(torch.cat([*floating, torch.zeros(1)]).tolist()) - {0.0, 1.0}


@each_method
def test_who_shows_says_so(case: Case) -> None:
    """A method that shows the coordinator single sites' values has a sentence for it; others show nothing."""
    shown = [t.up.shown for _, trained in play(case).trained for t in trained.values() if t.up is not None]
    sentence = method_of(case).shows
    assert bool(sentence) == any(len(state) > 0 for state in shown)
    if sentence:
        assert sentence.endswith(".")
        assert 4 <= len(sentence.split())


# -- what must not matter


@each_method
def test_the_order_of_names_and_of_arrival_does_not_matter(case: Case) -> None:
    """With every State turned round and updates arriving in another order, all bits are the same."""
    assert_same(play(case), play(case, Habits(watched=False, reverse=True, arrival=2)))


@each_method
def test_measuring_does_not_matter(case: Case) -> None:
    """With no evaluation task at all, but a look before and after each training, all bits are the same."""
    quiet = (("eval_point", "both"), ("diagnose", False))
    assert_same(play(case), play(case, Habits(watched=False, settings=quiet)))


@each_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_restored_from_the_vault_it_goes_on_alike(case: Case, dtype: torch.dtype) -> None:
    """A site whose process is new for every task ends in the same bits as one that was never stopped."""
    anew, on = (Habits(watched=False, dtype=dtype, warm=warm) for warm in (False, True))
    assert_same(play(case) if dtype == torch.float64 else play(case, anew), play(case, on))


@each_method
def test_what_sites_are_called_does_not_matter(case: Case) -> None:
    """Other names change the order of samples within a batch, which is rounding, and nothing else.

    Where one parcel goes to all, the sites even change places; else equal ones are told apart by their order.
    """
    if case.name in CALLED:
        pytest.skip(CALLED[case.name])
    names = tuple(f"ward-{number}_x" for number in range(len(SITES)))
    order = names if method_of(case).per_client else names[::-1]
    assert_close(play(case), play(case, Habits(watched=False, names=order)))


@each_method
def test_finish_leaves_the_model_that_was_measured(case: Case) -> None:
    """The serving model is complete; if the method adds nothing in `finish`, it is the last one measured."""
    history, quiet = play(case), method_of(case).client.finish is Participant.finish
    for site in SITES:
        serving = history.serving[site]
        assert history.init.keys() == serving.keys()
        assert alike(history.finished[site], serving.only(history.finished[site]))
        if quiet:
            assert alike(history.measured[ROUNDS + 1][site].model, serving), site


def assert_same(one: History, other: History) -> None:
    """Two federations saw the same in every round, to the last bit."""
    for number, state in one.states.items():
        assert alike(state, other.states[number]), f"shared state after round {number}"
        for site in SITES:
            assert alike(one.vaults[number][site], other.vaults[number][site]), f"{site} after round {number}"
    for site in SITES:
        assert alike(one.serving[site], other.serving[site]), f"{site} at the end"
        assert alike(one.finished[site], other.finished[site]), f"{site} at the end"


def assert_close(one: History, other: History) -> None:
    """Two federations saw the same in every round but for rounding."""
    for number in one.states:
        for site in SITES:
            compare(one.vaults[number][site], other.vaults[number][site], f"{site} after round {number}")
    for site in SITES:
        compare(one.serving[site], other.serving[site], f"{site} at the end")


def compare(one: State, other: State, where: str) -> None:
    """The same names, and numbers that differ by rounding only."""
    assert one.keys() == other.keys(), where
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-8, atol=1e-10, msg=f"{name} of {where}")
