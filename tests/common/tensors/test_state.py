"""Named tensors are cut, joined and flattened by name, never by place."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pfl_common.tensors.state import State, flat, load_into, look_into

torch.set_num_threads(1)


class Held:
    id = "a-1"

    def load(self) -> State:
        return State({"w": torch.ones(1)})


def make(*names: str) -> State:
    return State({name: torch.tensor([float(place)]) for place, name in enumerate(names)})


def numbers(state: State) -> dict[str, list[float]]:
    return {name: tensor.tolist() for name, tensor in state.items()}


def test_a_branch_is_named_without_its_prefix() -> None:
    """Only whole parts of a name count: `encoder2` is not below `encoder`."""
    state = make("encoder.a", "encoder.b.c", "encoder2.a", "head.a", "encoder")

    assert {"a": [0.0], "b.c": [1.0]} == numbers(state.under("encoder"))


def test_a_deeper_branch() -> None:
    """A prefix may have dots of its own."""
    assert {"c": [1.0]} == numbers(make("a.c", "a.b.c").under("a.b"))


def test_within_undoes_under() -> None:
    """One level deeper and back is where one was."""
    state = make("a", "b.c")

    assert ["slot1.a", "slot1.b.c"] == sorted(state.within("slot1"))
    assert numbers(state) == numbers(state.within("slot1").under("slot1"))


def test_branches_cut_at_the_first_dot() -> None:
    """Together they are the whole again."""
    state = make("slot0.a.b", "slot1.a.b", "slot0.c")
    branches = state.branches()

    assert {"slot0": {"a.b": [0.0], "c": [2.0]}, "slot1": {"a.b": [1.0]}} == {
        name: numbers(branch) for name, branch in branches.items()
    }


def test_a_state_may_be_empty() -> None:
    """Local training sends nothing, and nothing has no branches."""
    assert ({}, {}, 0) == (State().branches(), dict(State().under("a")), flat(State()).numel())


def test_the_right_one_wins() -> None:
    """Joining takes what is new, and leaves both sides as they were."""
    left, right = make("a", "b"), State({"b": torch.tensor([9.0]), "c": torch.tensor([8.0])})

    assert {"a": [0.0], "b": [9.0], "c": [8.0]} == numbers(left | right)
    assert {"a": [0.0], "b": [1.0]} == numbers(left)


def test_references_survive_joining() -> None:
    """What is kept of each site stays kept when tensors change; the newer update replaces the older."""
    old, new = Held(), Held()
    left, right = State(kept={"a": old, "b": old}), State(kept={"b": new, "c": new})

    assert {"a": old, "b": new, "c": new} == (left | right).kept
    assert left.kept == (left | {"w": torch.ones(1)}).kept


def test_a_branch_holds_no_references() -> None:
    """A branch may be on its way to a site, and what is kept is the coordinator's."""
    state = State({"a.b": torch.ones(1)}, kept={"x": Held()})

    assert [{}, {}, {}, {}] == [
        part.kept
        for part in (state.under("a"), state.within("z"), state.only(["a.b"]), state.apply(torch.neg))
    ]


def test_only_names_that_are_there() -> None:
    """A wrong name is an error, not a gap."""
    assert {"b": [1.0]} == numbers(make("a", "b").only(["b"]))
    with pytest.raises(KeyError):
        make("a").only(["b"])


def test_every_tensor_is_changed_alike() -> None:
    """Half of everything, under the same names."""
    assert {"a": [0.0], "b": [0.5]} == numbers(make("a", "b").apply(lambda t: t / 2))


def test_flat_sorts_by_name() -> None:
    """Two States of equal names give equal vectors, however they were built."""
    one = State({"b": torch.tensor([[1.0, 2.0]]), "a": torch.tensor(3.0)})
    two = State({name: one[name] for name in ("a", "b")})

    assert [3.0, 1.0, 2.0] == flat(one).tolist() == flat(two).tolist()


def test_values_are_cut_loose_from_the_module() -> None:
    """Training on changes nothing in a State taken before."""
    module = nn.Linear(2, 1)
    before = module.weight.detach().clone()
    state = State.of(module, ["weight"])
    with torch.no_grad():
        module.weight.add_(1)

    assert ["weight"] == list(state)
    assert torch.equal(before, state["weight"])
    assert not state["weight"].requires_grad


def test_a_view_follows_the_module() -> None:
    """Nothing is copied: what the module does next shows, and gradients stay out of it."""
    module = nn.Linear(2, 1)
    view, copied = State.view(module, ["weight"]), State.of(module, ["weight"])
    before = module.weight.tolist()
    with torch.no_grad():
        module.weight.add_(1)
    assert module.weight.tolist() == view["weight"].tolist()
    assert before == copied["weight"].tolist()
    assert not view["weight"].requires_grad
    assert module.state_dict().keys() == State.view(module).keys()


def test_a_module_gives_its_buffers_too() -> None:
    """Without names, all parameters and buffers are meant."""
    assert set(nn.BatchNorm1d(2).state_dict()) == set(State.of(nn.BatchNorm1d(2)))


def test_loading_keeps_the_parameter_and_changes_the_values() -> None:
    """An optimizer that holds the parameter sees the new values; what is not named stays."""
    module = nn.Linear(1, 1)
    weight, bias = module.weight, module.bias.item()
    load_into(module, {"weight": torch.tensor([[4.0]])})

    assert module.weight is weight
    assert (4.0, bias) == (weight.item(), module.bias.item())
    assert weight.requires_grad


def test_loading_copies() -> None:
    """What was sent to one site must not be trained by another in the same process."""
    sent, module = torch.tensor([[4.0]]), nn.Linear(1, 1)
    load_into(module, {"weight": sent})
    with torch.no_grad():
        module.weight.add_(1)

    assert 4.0 == sent.item()


def test_loading_a_buffer() -> None:
    """Running statistics and masks come the same way."""
    module = nn.BatchNorm1d(1)
    load_into(module, {"running_mean": torch.tensor([2.0]), "num_batches_tracked": torch.tensor(5)})

    assert (2.0, 5) == (module.running_mean.item(), module.num_batches_tracked.item())


def test_loading_an_unknown_name_is_an_error() -> None:
    """A name of another method or another network is said aloud."""
    with pytest.raises(KeyError, match="'weights' is no parameter or buffer of Linear"):
        load_into(nn.Linear(1, 1), {"weights": torch.ones(1, 1)})


@pytest.mark.parametrize("shape", [(1,), (), (2, 1)])
def test_loading_another_shape_is_an_error(shape: tuple[int, ...]) -> None:
    """Nothing is broadcast into a parameter."""
    with pytest.raises(ValueError, match="'weight' has shape"):
        load_into(nn.Linear(1, 1), {"weight": torch.ones(shape)})


def test_a_module_that_looks_into_tensors() -> None:
    """It has their numbers without a copy, still learns, and refuses what does not fit as loading does."""
    numbers, module = torch.tensor([[4.0]]), nn.Linear(1, 1)
    look_into(module, {"weight": numbers})
    assert numbers.data_ptr() == module.weight.data_ptr()
    assert module.weight.requires_grad
    with pytest.raises(ValueError, match="'weight' has shape"):
        look_into(module, {"weight": torch.ones(1)})


def test_it_shows_shapes_and_never_values() -> None:
    """A State in a log says nothing of anybody's weights."""
    state = State({"w": torch.tensor([123.0])}, kept={"a": Held()})

    assert "State({'w': (1,)}, kept=['a'])" == repr(state)


def test_a_state_is_looked_through_as_it_lies() -> None:
    """Names, tensors and both, in the order in which they were put in."""
    state = make("b", "a")

    assert (["b", "a"], [0.0, 1.0]) == (list(state.keys()), [float(value) for value in state.values()])
    assert list(state) == [name for name, _ in state.items()]
    assert "a" in state
    assert "c" not in state
    assert {"a"} == state.keys() & {"a", "c"}
