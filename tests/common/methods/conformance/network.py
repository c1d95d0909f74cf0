"""A small network in numpy, every gradient worked out by hand: the part of the oracle that all methods share.

Layers are named as in the participants' `state_dict`; tensors lie in one dictionary from name to array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray
Arrays: TypeAlias = dict[str, Array]
Backward: TypeAlias = Callable[[Array], Array]
Layers: TypeAlias = tuple[tuple[str, str], ...]

ENCODER: Layers = (
    ("linear", "encoder.mix"),
    ("norm", "encoder.scale"),
    ("relu", "encoder.bend"),
    ("linear", "encoder.out"),
)
PROJECTOR: Layers = (
    ("linear", "projector.fc1"),
    ("relu", "projector.relu1"),
    ("norm", "projector.bn1"),
    ("linear", "projector.fc2"),
    ("norm", "projector.bn2"),
)
STATISTICS = ("running_mean", "running_var")
COUNTER = "num_batches_tracked"


class Pass:
    """One forward pass in one mode; gradients gather in `grads` when the pass is walked back."""

    def __init__(self, w: Arrays, *, training: bool) -> None:
        self.w, self.training = w, training
        self.grads: Arrays = {}

    def chain(self, layers: Layers, x: Array) -> tuple[Array, Backward]:
        """Layers one after the other, and the way back through them."""
        backs: list[Backward] = []
        for kind, name in layers:
            x, back = getattr(self, kind)(name, x)
            backs.append(back)

        def walk_back(dy: Array) -> Array:
            for back in reversed(backs):
                dy = back(dy)
            return dy

        return x, walk_back

    def linear(self, name: str, x: Array) -> tuple[Array, Backward]:
        """y = x Wᵀ + b, where b may be missing."""
        weight, bias = self.w[f"{name}.weight"], self.w.get(f"{name}.bias")
        y = x @ weight.T + (0.0 if bias is None else bias)

        def back(dy: Array) -> Array:
            self._gather(f"{name}.weight", dy.T @ x)
            if bias is not None:
                self._gather(f"{name}.bias", dy.sum(0))
            return dy @ weight

        return y, back

    def relu(self, name: str, x: Array) -> tuple[Array, Backward]:
        """y = max(x, 0)."""
        return np.maximum(x, 0.0), lambda dy: dy * (x > 0)

    def norm(self, name: str, x: Array) -> tuple[Array, Backward]:
        """Batch normalisation: in training by the batch, whose statistics move the running ones."""
        scale, shift, eps = self.w[f"{name}.weight"], self.w[f"{name}.bias"], 1e-5
        if self.training:
            mean, var = x.mean(0), x.var(0)
            self._move_statistics(name, mean, var, len(x))
        else:
            mean, var = self.w[f"{name}.running_mean"], self.w[f"{name}.running_var"]
        deviation = np.sqrt(var + eps)
        normal = (x - mean) / deviation

        def back(dy: Array) -> Array:
            self._gather(f"{name}.weight", (dy * normal).sum(0))
            self._gather(f"{name}.bias", dy.sum(0))
            d = dy * scale
            if self.training:
                d = d - d.mean(0) - normal * (d * normal).mean(0)
            return d / deviation

        return scale * normal + shift, back

    def layer_norm(self, name: str, x: Array) -> tuple[Array, Backward]:
        """Normalisation of each row."""
        return self._rows(name, x, groups=1)

    def halves_norm(self, name: str, x: Array) -> tuple[Array, Backward]:
        """Normalisation of each half of a row (group norm with two groups)."""
        return self._rows(name, x, groups=2)

    def _rows(self, name: str, x: Array, *, groups: int) -> tuple[Array, Backward]:
        scale, shift = self.w[f"{name}.weight"], self.w[f"{name}.bias"]
        parts = x.reshape(len(x), groups, -1)
        deviation = np.sqrt(parts.var(2, keepdims=True) + 1e-5)
        grouped = (parts - parts.mean(2, keepdims=True)) / deviation
        normal = grouped.reshape(x.shape)

        def back(dy: Array) -> Array:
            self._gather(f"{name}.weight", (dy * normal).sum(0))
            self._gather(f"{name}.bias", dy.sum(0))
            d = (dy * scale).reshape(grouped.shape)
            d = d - d.mean(2, keepdims=True) - grouped * (d * grouped).mean(2, keepdims=True)
            return (d / deviation).reshape(x.shape)

        return scale * normal + shift, back

    def tanh(self, name: str, x: Array) -> tuple[Array, Backward]:
        """y = tanh(x)."""
        y = np.tanh(x)
        return y, lambda dy: dy * (1.0 - y**2)

    def sigmoid(self, name: str, x: Array) -> tuple[Array, Backward]:
        """y = 1 / (1 + exp(−x))."""
        y = logistic(x)
        return y, lambda dy: dy * y * (1.0 - y)

    def _move_statistics(self, name: str, mean: Array, var: Array, rows: int) -> None:
        unbiased = var * rows / (rows - 1)
        for key, value in (("running_mean", mean), ("running_var", unbiased)):
            self.w[f"{name}.{key}"] = 0.9 * self.w[f"{name}.{key}"] + 0.1 * value
        self.w[f"{name}.{COUNTER}"] = self.w[f"{name}.{COUNTER}"] + 1

    def _gather(self, name: str, grad: Array) -> None:
        self.grads[name] = self.grads[name] + grad if name in self.grads else grad


class Descent:
    """SGD from an empty memory; only the named tensors move."""

    def __init__(
        self, w: Arrays, names: Iterable[str], *, lr: float, momentum: float, decay: float = 0.0
    ) -> None:
        self.w, self.names = w, sorted(names)
        self.lr, self.momentum, self.decay = lr, momentum, decay
        self._memory: Arrays = {}

    def step(self, grads: Arrays) -> None:
        """v ← m·v + ∇ + decay·w, then w ← w − lr·v; a tensor without gradient stays."""
        for name in self.names:
            if name in grads:
                grad, before = grads[name] + self.decay * self.w[name], self._memory.get(name)
                self._memory[name] = grad if before is None else self.momentum * before + grad
                self.w[name] = self.w[name] - self.lr * self._memory[name]


def descend(
    w: Arrays,
    names: Iterable[str],
    gradients: Callable[[], Arrays],
    *,
    epochs: int,
    lr: float,
    momentum: float,
) -> None:
    """SGD on whole batches."""
    descent = Descent(w, names, lr=lr, momentum=momentum)
    for _ in range(epochs):
        descent.step(gradients())


def logistic(x: Array) -> Array:
    """1 / (1 + exp(−x)), with an exponent that cannot grow large."""
    powers = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, powers) / (1.0 + powers)


def gumbel(uniform: Array) -> Array:
    """−log(−log U), where U is at least 1e-10."""
    return -np.log(-np.log(np.maximum(uniform, 1e-10)))


def difference(one: Array, other: Array) -> Array:
    """G' − G''."""
    return gumbel(one) - gumbel(other)


def unit(x: Array) -> tuple[Array, Backward]:
    """Rows of length one: x / max(‖x‖, 1e-12)."""
    length = np.linalg.norm(x, axis=1, keepdims=True)
    divisor = np.maximum(length, 1e-12)
    v = x / divisor

    def back(dv: Array) -> Array:
        along = np.where(length >= 1e-12, (dv * v).sum(1, keepdims=True), 0.0)
        return (dv - v * along) / divisor

    return v, back


def softmax(scores: Array) -> Array:
    """Probabilities per row."""
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def cross_entropy(scores: Array, y: Array) -> tuple[float, Array]:
    """Mean of −log softmax(scores)_y, and its gradient."""
    p, rows = softmax(scores), np.arange(len(y))
    slope = p.copy()
    slope[rows, y] -= 1.0
    return float(-np.log(p[rows, y]).mean()), slope / len(y)


def balanced(scores: Array, y: Array, counts: Array) -> tuple[float, Array]:
    """Balanced softmax: CE(o + log n, y); a class without samples gets probability 0."""
    with np.errstate(divide="ignore"):
        return cross_entropy(scores + np.log(counts), y)


def supcon(u: Array, y: Array, tau: float) -> tuple[float, Array]:
    """DualFed's L_con (Eq. 7), and its gradient; anchors without a positive count as zero."""
    length = np.linalg.norm(u, axis=1, keepdims=True)
    v, n = u / length, len(y)
    s = v @ v.T / tau
    others = ~np.eye(n, dtype=bool)
    positives = (y[:, None] == y[None, :]) & others
    counts = positives.sum(1, keepdims=True)
    powers = np.where(others, np.exp(s), 0.0)
    total = powers.sum(1, keepdims=True)
    share = np.where(counts > 0, positives / np.maximum(counts, 1), 0.0)
    loss = -(share * (s - np.log(total))).sum() / n
    slope = -(share - np.where(counts > 0, powers / total, 0.0)) / n
    dv = (slope + slope.T) @ v / tau
    return float(loss), (dv - v * (dv * v).sum(1, keepdims=True)) / length


def pull(h: Array, y: Array, prototypes: Array, known: Array) -> tuple[float, Array]:
    """MSE(h, P_y) over all B×K entries, zero for a class without prototype; and its gradient."""
    apart = np.where(known[y][:, None], h - prototypes[y], 0.0)
    return float((apart**2).mean()), 2.0 * apart / apart.size
