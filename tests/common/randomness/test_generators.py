"""Every draw starts from words, and torch's global generator is left as it was found."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from pfl_common.randomness import generators

torch.set_num_threads(1)


def build(*order: str) -> nn.ModuleDict:
    layers = {
        "encoder": nn.Linear(3, 4),
        "head": nn.Linear(4, 2),
        "norm": nn.BatchNorm1d(4),
        "extra": nn.Linear(3, 4),
    }
    return nn.ModuleDict({name: layers[name] for name in order})


def values(module: nn.Module) -> dict[str, list[float]]:
    return {name: value.tolist() for name, value in module.state_dict().items()}


def draw(generator: torch.Generator) -> list[float]:
    return torch.rand(3, generator=generator).tolist()


def test_the_same_words_give_the_same_draws() -> None:
    """A purpose has its own chance, and a second asking starts it anew."""
    assert draw(generators.generator(1, "a", "shuffle")) == draw(generators.generator(1, "a", "shuffle"))
    assert draw(generators.generator(1, "a", "shuffle")) != draw(generators.generator(1, "b", "shuffle"))


def test_a_generator_leaves_the_global_one_alone() -> None:
    """Drawing for one purpose moves nothing else."""
    before = torch.get_rng_state()
    draw(generators.generator(1))

    assert torch.equal(before, torch.get_rng_state())


def test_a_scope_seeds_and_restores() -> None:
    """Inside, layers draw by the words; outside, nothing happened."""
    before = torch.get_rng_state()
    with generators.scope(1, "dropout"):
        first = torch.rand(3)
    torch.rand(1)
    moved = torch.get_rng_state()
    with generators.scope(1, "dropout"):
        second = torch.rand(3)

    assert torch.equal(first, second)
    assert torch.equal(moved, torch.get_rng_state())
    assert not torch.equal(before, moved)


def test_a_scope_that_fails_restores_too() -> None:
    """An error inside does not leak a seed."""
    before = torch.get_rng_state()
    with pytest.raises(ArithmeticError), generators.scope(1):
        torch.rand(3)
        raise ArithmeticError

    assert torch.equal(before, torch.get_rng_state())


def test_first_values_do_not_depend_on_other_layers() -> None:
    """With one more layer, or in another order, a network starts alike where the names are the same."""
    one, two = build("encoder", "head"), build("extra", "head", "norm", "encoder")
    generators.initialise(one, 3)
    generators.initialise(two, 3)

    assert values(one) == {name: value for name, value in values(two).items() if name in values(one)}


def test_first_values_do_not_depend_on_what_was() -> None:
    """Neither the values before nor the global generator shine through."""
    one, two = build("encoder", "norm"), build("encoder", "norm")
    with torch.no_grad():
        two["norm"].running_mean.add_(1)
        two["norm"].weight.add_(1)
    generators.initialise(one, 3)
    torch.rand(5)
    generators.initialise(two, 3)

    assert values(one) == values(two)


def test_seed_and_name_decide() -> None:
    """Another seed gives other values; two layers of one shape are not twins."""
    one, two = build("encoder", "extra"), build("encoder", "extra")
    generators.initialise(one, 3)
    generators.initialise(two, 4)

    assert not torch.equal(one["encoder"].weight, two["encoder"].weight)
    assert not torch.equal(one["encoder"].weight, one["extra"].weight)


def test_initialising_leaves_the_global_generator_alone() -> None:
    """Building a method must not change the next draw of a data loader."""
    module, before = build("encoder", "head", "norm"), torch.get_rng_state()
    generators.initialise(module, 3)

    assert torch.equal(before, torch.get_rng_state())


def test_first_values_are_those_of_the_specification() -> None:
    """Weights and biases of a linear layer lie evenly in ±1/sqrt(inputs)."""
    layer = nn.Sequential(nn.Linear(16, 400))
    generators.initialise(layer, 3)
    drawn: Tensor = torch.cat([layer[0].weight.detach().reshape(-1), layer[0].bias.detach()])

    assert drawn.abs().max() <= 0.25
    assert abs(drawn.std().item() - 0.25 / 3**0.5) < 0.01


def test_threads_are_pinned() -> None:
    """The number asked for is the number used."""
    before = torch.get_num_threads()
    try:
        generators.pin_threads(2)
        assert 2 == torch.get_num_threads()
    finally:
        generators.pin_threads(before)
