"""What several oracles are made of: a second model in one dictionary, pulls towards a model, features compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from .network import (
    ENCODER,
    Array,
    Arrays,
    Descent,
    Pass,
    cross_entropy,
    softmax,
)
from .oracles import Oracle, Setting, SiteArrays, Upload, below, counters, norm_layers, statistics

MODEL = ("encoder", "head")
Slopes: TypeAlias = Callable[[SiteArrays], Arrays]
"""The gradients of one batch."""
BANDWIDTHS = (10.0, 15.0, 20.0, 50.0)


class Whole(Oracle):
    """Methods that average the whole model, as far as the batch-norm policy lets it travel."""

    defaults: Mapping[str, Setting] = {"bn_policy": "local_stats"}

    def first_shared(self) -> Arrays:
        self.calibrates = self.policy != "share_all"
        return {name: self.init[name] for name in sent(self.init, self.policy, *MODEL)}

    @property
    def policy(self) -> str:
        """What batch norms share; a case that names none goes by the method's default."""
        return str(self.settings["bn_policy"])

    def shares(self, t: int) -> set[str]:
        return sent(self.init, self.policy, *MODEL)

    def taken(self, w: Arrays) -> Arrays:
        """What a second model takes over from the received one: parameters, and statistics if they travel."""
        moved = running(w) if self.policy == "share_all" else set()
        return {name: w[name] for name in below(w, *MODEL) | moved}

    def train(self, site: str, t: int) -> tuple[Upload, Array]:
        self.turn = site, t
        return super().train(site, t)

    def parts(self, data: SiteArrays, epochs: int, first_epoch: int = 0) -> list[SiteArrays]:
        """The batches of this turn's epochs; the turn is the site and the round whose chance is asked."""
        site, t = self.turn
        places = self.batches(site, t, epochs, first_epoch=first_epoch, samples=len(data.y))
        return [chosen(data, some) for some in places]

    def run(
        self,
        w: Arrays,
        names: set[str],
        slopes: Slopes,
        data: SiteArrays,
        epochs: int,
        *,
        first_epoch: int = 0,
    ) -> None:
        """One stage of local training with an optimizer of its own."""
        descent = Descent(w, names, lr=self.number("lr"), momentum=self.number("momentum"))
        for part in self.parts(data, epochs, first_epoch):
            descent.step(slopes(part))

    @property
    def epochs(self) -> int:
        """E."""
        return int(self.number("epochs"))

    def pulled(self, w: Arrays, data: SiteArrays, anchor: Arrays, strength: float) -> Arrays:
        """Gradients of CE + strength/2 ‖w − anchor‖²."""
        grads = self.classify(w, data)
        return {name: grad + proximal(w, anchor, strength)[1].get(name, 0.0) for name, grad in grads.items()}


def chosen(data: SiteArrays, places: Array) -> SiteArrays:
    """Some of the training samples."""
    return replace(data, x=data.x[places], y=data.y[places])


def sent(w: Arrays, policy: str, *modules: str) -> set[str]:
    """Names of these modules that travel under a batch-norm policy."""
    names = below(w, *modules)
    if policy == "share_all":
        return names | {name for name in running(w) if name.partition(".")[0] in modules}
    norms = norm_layers(w)
    return {name for name in names if policy == "local_stats" or name.rpartition(".")[0] not in norms}


def running(w: Arrays) -> set[str]:
    """Running means and variances of the first model, not of one beside it."""
    return {name for name in statistics(w) if name.partition(".")[0] in MODEL}


def under(w: Arrays, prefix: str) -> Arrays:
    """A second model out of the dictionary of all, under the names of a first."""
    return {
        name.removeprefix(f"{prefix}."): value for name, value in w.items() if name.startswith(f"{prefix}.")
    }


def within(w: Arrays, prefix: str) -> Arrays:
    """A second model on its way back."""
    return {f"{prefix}.{name}": value for name, value in w.items()}


def memory(w: Arrays) -> Arrays:
    """All that a pass in train mode moves: running statistics and batch counters."""
    counted = {name for name in counters(w) if name.partition(".")[0] in MODEL}
    return {name: w[name] for name in running(w) | counted}


def filled(w: Arrays, x: Array) -> Arrays:
    """The model after one pass in train mode without gradients."""
    after = dict(w)
    Pass(after, training=True).chain(ENCODER, x)
    return after


def logits(w: Arrays, x: Array) -> Array:
    """A model's scores in evaluation mode."""
    run = Pass(w, training=False)
    return run.linear("head", run.chain(ENCODER, x)[0])[0]


def loss(w: Arrays, x: Array, y: Array) -> float:
    """A model's cross entropy in evaluation mode."""
    return cross_entropy(logits(w, x), y)[0]


def proximal(w: Arrays, anchor: Arrays, strength: float) -> tuple[float, Arrays]:
    """strength/2 ‖w − anchor‖² over the anchor's names, and its gradient."""
    apart = {name: w[name] - value for name, value in anchor.items()}
    whole = sum(float((value**2).sum()) for value in apart.values())
    return strength / 2 * whole, {name: strength * value for name, value in apart.items()}


def mmd(h: Array, fixed: Array) -> tuple[float, Array]:
    """MMD² (2.2) between features, and its gradient for the first ones."""
    own, own_slope = kernel(h, h)
    cross, cross_slope = kernel(h, fixed)
    value = own.mean() + kernel(fixed, fixed)[0].mean() - 2 * cross.mean()
    # Each pair of own features is met twice, once from either side.
    return float(value), 2 * (own_slope - cross_slope).sum(1) / len(h) ** 2


def kernel(a: Array, b: Array) -> tuple[Array, Array]:
    """Σ_w exp(−‖a_p − b_q‖² / (2w)) for each pair, and its gradient for a_p."""
    apart = a[:, None, :] - b[None, :, :]
    square = (apart**2).sum(2)
    powers = {width: np.exp(-square / (2 * width)) for width in BANDWIDTHS}
    slope = sum(-power[:, :, None] * apart / width for width, power in powers.items())
    return sum(powers.values()), slope


def distil(scores: Array, teacher: Array, temperature: float) -> tuple[float, Array]:
    """Mean cross entropy against the teacher's tempered probabilities, and its gradient for the scores."""
    wanted, given = softmax(teacher / temperature), softmax(scores)
    return float(-(wanted * np.log(given)).sum(1).mean()), (given - wanted) / len(scores)
