"""Sums and distances of single models: the numbers, and how many models are in memory at a time."""

from __future__ import annotations

import pytest
import torch

from pfl_common.learning import single_models
from pfl_common.tensors.state import State
from tests.common.methods.toy import Copied

torch.set_num_threads(1)


NONE = torch.zeros(0, 0, dtype=torch.float64)


@pytest.fixture(autouse=True)
def _fresh_counts() -> None:
    Copied.forget()


def kept(name: str, value: torch.Tensor) -> Copied:
    """A model of one tensor, as an update shows it."""
    return Copied(name, State({"model.x": value, "liked": torch.zeros(1)}))


def build(count: int, size: int = 3) -> tuple[dict[str, Copied], torch.Tensor]:
    """So many models, and the same as rows of one matrix."""
    rows = torch.randn(count, size, generator=torch.Generator().manual_seed(1))
    return {f"s{n:03d}": kept(f"s{n:03d}", row) for n, row in enumerate(rows)}, rows


def table(models: dict[str, Copied], new: list[str], known: torch.Tensor, before: list[str]) -> torch.Tensor:
    """Distances of models of which some are new."""
    return single_models.squared_distances(models, known, before=before, new=new)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 10])
def test_all_distances(count: int) -> None:
    """Each pair by the formula, whatever its place among those held in memory."""
    models, rows = build(count)
    gaps = rows.double()[:, None] - rows.double()[None]
    expected = gaps.square().sum(2)
    torch.testing.assert_close(expected, table(models, list(models), NONE, []), rtol=1e-12, atol=0)


def test_only_pairs_with_a_new_model_are_measured() -> None:
    """Of nine sites two are new and two were there before with another model; the other pairs are as they were."""
    models, rows = build(9)
    old = [f"s{n:03d}" for n in (0, 2, 3, 5, 6, 7, 8)]
    known = -torch.ones(7, 7, dtype=torch.float64).fill_diagonal_(0)
    new = ["s001", "s003", "s004", "s008"]
    found = table(models, new, known, old)
    expected = (rows.double()[:, None] - rows.double()[None]).square().sum(2)
    fresh = torch.tensor([site in new for site in sorted(models)])
    measured = fresh[:, None] | fresh[None]
    torch.testing.assert_close(expected[measured], found[measured], rtol=1e-12, atol=0)
    assert bool((found[~measured] == -1 + torch.eye(9, dtype=torch.float64)[~measured]).all())


def test_nobody_is_new() -> None:
    """Nothing is read."""
    models, _ = build(3)
    known = torch.arange(9, dtype=torch.float64).view(3, 3)
    assert torch.equal(known, table(models, [], known, sorted(models)))
    assert 0 == Copied.reads_of_all


def test_a_hundred_models_are_compared_with_four_in_memory() -> None:
    """Three are held while the others pass by one at a time."""
    models, _ = build(100)
    table(models, list(models), NONE, [])
    assert 4 == Copied.most


def test_a_hundred_models_are_mixed_one_at_a_time() -> None:
    """Also when their mean is taken."""
    models, rows = build(100)
    weights = {site: n / 4950 for n, site in enumerate(models)}
    mixed = single_models.mix(models, weights)["x"]
    torch.testing.assert_close(mixed, (torch.arange(100.0) / 4950) @ rows)
    assert 1 == Copied.most
    mean = single_models.mean(models, State({"x": torch.zeros(3)}))
    torch.testing.assert_close(mean["x"], rows.mean(0))
    assert 1 == Copied.most


def test_models_without_weight_are_not_read() -> None:
    """s000 has weight 0 and is left out."""
    models, rows = build(2)
    assert torch.equal(rows[1], single_models.mix(models, {"s000": 0.0, "s001": 1.0})["x"])
    assert 1 == Copied.reads_of_all


def test_numbers_keep_their_type_and_are_added_in_float64() -> None:
    """1e8 + 1 - 1e8: in float32 the 1 would be lost."""
    values = {"a": 1e8, "b": 1.0, "c": -1e8}
    models = {site: kept(site, torch.tensor([value])) for site, value in values.items()}
    mixed = single_models.mix(models, dict.fromkeys(models, 1.0))["x"]
    assert (torch.float32, [1.0]) == (mixed.dtype, mixed.tolist())


def test_long_tensors_go_by_blocks() -> None:
    """One more number than a block has: the last one counts like the others."""
    one, other = torch.zeros(single_models.BLOCK + 1), torch.zeros(single_models.BLOCK + 1)
    one[-1], one[0], other[0] = 3.0, 1.0, 5.0
    assert 9.0 + 16.0 == single_models.squared_distance({"x": one}, {"x": other})
    models = {"a": kept("a", one), "b": kept("b", other)}
    mixed = single_models.mix(models, {"a": 0.5, "b": 0.5})["x"]
    assert [3.0, 1.5] == [float(mixed[0]), float(mixed[-1])]


def test_the_mean_of_nobody_is_what_stands_for_it() -> None:
    """Before anybody has sent a model."""
    first = State({"x": torch.ones(3)})
    assert torch.equal(first["x"], single_models.mean({}, first)["x"])
