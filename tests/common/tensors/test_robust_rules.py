"""Each robust rule against its published definition, in plain numpy over whole vectors and worked by hand."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations

import numpy as np
import pytest
import torch

from pfl_common.spec.manifest import Manifest
from pfl_common.spec.rules import Robust
from pfl_common.tensors import codec, pinning, robust_rules
from pfl_common.tensors.robust_rules import Agreement
from pfl_common.tensors.state import State, flat
from tests.common.support.held import Held

torch.set_num_threads(1)

SHAPES = {"encoder.w": (7, 5), "encoder.b": (7,), "head.w": (3,), "scale": ()}


class Kept:
    """One update in memory."""

    def __init__(self, model: State, weight: int = 1) -> None:
        up = model.within("sum") | model.apply(lambda value: torch.tensor(weight)).within("weight")
        self.manifest: Manifest = pinning.pin([up])
        out = io.BytesIO()
        codec.encode(up, self.manifest, out)
        self._content, self.opened = bytearray(out.getvalue()), 0

    @contextmanager
    def source(self) -> Iterator[Held]:
        self.opened += 1
        yield Held(self._content)


def draw(seed: int, *, far: float = 1.0) -> State:
    chance = torch.Generator().manual_seed(seed)
    return State({name: far * torch.randn(shape, generator=chance) for name, shape in SHAPES.items()})


def agree(
    rule: Robust, models: Sequence[State], *, share: float = 0.2, weights: Sequence[int] = ()
) -> np.ndarray:
    """What the product makes of these models, as one vector; the state before lies at 1."""
    sent = draw(0).apply(torch.ones_like)
    kept = [Kept(model, weight) for model, weight in zip(models, weights or [1] * len(models), strict=True)]
    changes = [float((flat(model) - 1).norm()) for model in models]
    return flat(Agreement(rule, kept, sent, share=share, changes=changes).mean(sent)).numpy()


def vectors(models: Sequence[State]) -> np.ndarray:
    return np.stack([flat(model).numpy() for model in models]).astype(np.float64)


def coordinate_median(u: np.ndarray) -> np.ndarray:
    """Yin et al., definition 1."""
    return np.median(u, axis=0)


def trimmed_mean(u: np.ndarray, f: int) -> np.ndarray:
    """Yin et al., definition 2, one coordinate at a time."""
    return np.array([np.mean(sorted(column)[f : len(column) - f]) for column in u.T])


def krum_order(u: np.ndarray, f: int) -> list[int]:
    """Blanchard et al., section 4: s(i) is the sum over the n - f - 2 closest."""
    n = len(u)
    scores = []
    for i in range(n):
        near = sorted(float(np.sum((u[i] - u[j]) ** 2)) for j in range(n) if j != i)
        scores.append(sum(near[: n - f - 2]))
    return sorted(range(n), key=lambda i: (scores[i], i))


def clipped(u: np.ndarray, weights: Sequence[int]) -> np.ndarray:
    """Sun et al., section 5: each change divided by max(1, its length / M)."""
    changes = u - 1
    lengths = np.sqrt((changes**2).sum(axis=1))
    cut = changes / np.maximum(1, lengths / np.median(lengths))[:, None]
    return 1 + np.average(cut, axis=0, weights=weights)


@pytest.mark.parametrize("n", [3, 4, 5, 8, 11])
def test_each_rule_is_what_was_published(n: int) -> None:
    """Of a few sites, one of which went far away."""
    models = [draw(seed, far=40.0 if seed == 2 else 1.0) for seed in range(1, n + 1)]
    u, f = vectors(models), int(np.ceil(0.2 * n))
    weights = list(range(3, n + 3))
    bears = min(f, (n - 3) // 2)
    order = krum_order(u, bears)
    expected: dict[Robust, np.ndarray] = {
        "median": coordinate_median(u),
        "trimmed": trimmed_mean(u, f),
        "krum": u[order[0]],
        "multi-krum": u[sorted(order[: n - bears])].mean(axis=0),
        "norm-clip": clipped(u, weights),
    }
    for rule, wanted in expected.items():
        np.testing.assert_allclose(agree(rule, models, weights=weights), wanted, rtol=1e-6, atol=1e-6)


BY_HAND: list[tuple[Robust, list[float], float, float]] = [
    ("median", [1, 2, 30], 0.2, 2),
    ("median", [1, 2, 4, 30], 0.2, 3),
    ("trimmed", [1, 2, 3, 4, 100], 0.2, 3),
    ("trimmed", [-50, 1, 2, 6, 100], 0.4, 2),
    ("krum", [0, 1, 3, 100, 7], 0.2, 1),
    ("multi-krum", [0, 1, 3, 100, 7], 0.2, 2.75),
    ("norm-clip", [2, 3, 101], 0.2, 1 + (1 + 2 + 2) / 3),
]


@pytest.mark.parametrize(("rule", "numbers", "share", "expected"), BY_HAND)
def test_one_number_by_hand(rule: Robust, numbers: list[float], share: float, expected: float) -> None:
    """Krum's scores with f = 1 are 1+9, 1+4, 4+9, more, 16+36: the second is best, and without the fourth the mean is
    11 / 4. Changes from 1 are 1, 2 and 100, their median 2.
    """
    sent = State({"w": torch.tensor([1.0])})
    kept = [Kept(State({"w": torch.tensor([float(number)])})) for number in numbers]
    agreed = Agreement(rule, kept, sent, share=share, changes=[abs(number - 1) for number in numbers])
    assert expected == pytest.approx(agreed.mean(sent)["w"].item(), rel=1e-6)


def test_sites_count_alike() -> None:
    """A weight moves no rule but the clipped mean."""
    models = [draw(seed) for seed in range(1, 6)]
    for rule in ("median", "trimmed", "krum", "multi-krum"):
        one, other = agree(rule, models), agree(rule, models, weights=[1, 1, 9000, 1, 1])
        assert one.tolist() == other.tolist()


def test_fewer_than_three() -> None:
    """One cannot be told from the other: the plain mean."""
    models = [draw(1), draw(2)]
    for rule in ("median", "trimmed", "krum", "multi-krum"):
        np.testing.assert_allclose(agree(rule, models), vectors(models).mean(axis=0), rtol=1e-6)


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small blocks, cut in the middle of tensors, give the same bits; no more is held than was said."""
    models = [draw(seed) for seed in range(1, 7)]
    rules: tuple[Robust, ...] = ("median", "trimmed", "krum", "multi-krum", "norm-clip")
    whole = {rule: agree(rule, models).tolist() for rule in rules}
    monkeypatch.setattr(robust_rules, "HELD", 1)
    monkeypatch.setattr(robust_rules, "SMALLEST", 4)
    assert whole == {rule: agree(rule, models).tolist() for rule in rules}


def test_the_set_decides_and_not_the_order() -> None:
    """Every order of the sites' names among the same updates: to the bit for each coordinate, by choice for krum."""
    models = [draw(seed) for seed in range(1, 6)]
    turned = [models[i] for i in (3, 0, 4, 2, 1)]
    rules: tuple[Robust, ...] = ("median", "trimmed", "krum")
    for rule in rules:
        assert agree(rule, models).tolist() == agree(rule, turned).tolist()


def test_equal_updates_tie_by_name() -> None:
    """Of two that are equally good the first one is taken."""
    square = np.array([[0, 1, 1, 4], [1, 0, 4, 1], [1, 4, 0, 1], [4, 1, 1, 0]], dtype=float)
    assert [0, 1, 2, 3] == robust_rules.rank(square, 0)
    assert all(i < j for i, j in combinations(robust_rules.rank(np.zeros((5, 5)), 1), 2))


def test_what_nobody_sent_stays() -> None:
    """Names of the state that are in no update, and a round without updates."""
    sent = draw(0) | {"other": torch.tensor([5.0])}
    made = Agreement("median", [Kept(draw(seed)) for seed in (1, 2, 3)], sent, share=0.2).mean(sent)
    assert [5.0] == made["other"].tolist()
    assert sent is Agreement("median", [], sent, share=0.2).mean(sent)


def refuses(read: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="makes no"):
        read()


def test_there_are_no_totals() -> None:
    """A method that needs them is refused before the run; a mistake there is said, not guessed."""
    agreed = Agreement("median", [], State(), share=0.2)
    refuses(lambda: agreed.totals)
    refuses(lambda: agreed.weights)
