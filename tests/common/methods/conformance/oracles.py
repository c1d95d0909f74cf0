"""Every method once more, in numpy, from its specification alone: what the code must agree with.

An oracle is a whole federation without messages: `train` is a site's part of a round, `close` the
coordinator's. Arrays are never changed in place, so keeping a dictionary keeps its values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeAlias

import numpy as np

from .network import (
    COUNTER,
    ENCODER,
    PROJECTOR,
    STATISTICS,
    Array,
    Arrays,
    Descent,
    Layers,
    Pass,
    cross_entropy,
    descend,
    pull,
    softmax,
    supcon,
)

Setting: TypeAlias = float | str | None
Slopes: TypeAlias = Callable[[Array, Array], Arrays]
"""The gradients of one batch."""
Saved: TypeAlias = tuple[dict[str, Arrays], dict[str, int]]


@dataclass(frozen=True)
class SiteArrays:
    """A site's data as the oracle sees them."""

    x: Array
    y: Array
    validation_x: Array
    validation_y: Array
    test_x: Array


class Chance(Protocol):
    """Draws that an oracle cannot work out: its player hands them over as numbers."""

    def order(self, site: str, t: int, epoch: int, n: int) -> Array:
        """The places of n training samples in the order of this epoch of round t."""

    def noise(self, site: str, t: int, purpose: str, shapes: list[tuple[int, ...]]) -> list[Array]:
        """Uniform numbers from [0, 1) for one purpose of a round, one array after the other from one source."""

    def split(self, site: str, purpose: str, n: int) -> Array:
        """The places of n samples in an order that is the site's for the whole run."""


@dataclass(frozen=True)
class Upload:
    """What comes from one site: its whole trained model, of which the oracle takes what is shared."""

    weight: int
    w: Arrays


class Oracle:
    """Methods that average some of the names and keep the others: all differ in which."""

    uniform = False
    defaults: Mapping[str, Setting] = {}
    """The specification's values of what a case leaves open."""
    opaque: tuple[str, ...] = ()
    """Branches of the coordinator's state whose form is free; their effect shows in the models sites get."""
    by_rank = False
    """The specification says which class is predicted, not what the scores are."""
    calibrates = True
    """A site that never trained fills its running statistics before it is measured."""
    bn_policy = "local_stats"
    """What a method does with batch norm if the settings do not say."""
    encoder: Layers = ENCODER

    def __init__(
        self,
        init: Arrays,
        data: Mapping[str, SiteArrays],
        settings: Mapping[str, Setting],
        chance: Chance | None = None,
        late: frozenset[str] = frozenset(),
    ) -> None:
        self.init, self.data = init, data
        self.settings = {"bn_policy": self.bn_policy, **self.defaults, **settings}
        self.late, self._chance = late, chance
        self.shared = self.first_shared()
        self.vault: dict[str, Arrays] = {}
        self.since: dict[str, int] = {}

    @property
    def chance(self) -> Chance:
        """Where draws come from; hand-worked examples have none."""
        if self._chance is None:
            raise TypeError(f"{type(self).__name__} asks for a draw, and nobody hands any over")
        return self._chance

    def number(self, name: str) -> float:
        """A setting that is a number."""
        return float(self.settings.get(name) or 0)

    def first_shared(self) -> Arrays:
        """The shared state before round 1."""
        return {name: self.init[name] for name in self.shares(1)}

    def shares(self, t: int) -> set[str]:
        """Names averaged in round t."""
        raise TypeError(f"{type(self).__name__} does not say what it shares")

    def travelling(self, *modules: str) -> set[str]:
        """What is shared of some modules: parameters, with statistics or without a batch norm's as the policy says."""
        names, policy = below(self.init, *modules), self.settings["bn_policy"]
        if policy == "local_bn":
            return {name for name in names if name.rpartition(".")[0] not in norm_layers(self.init)}
        moving = {name for name in statistics(self.init) if name.partition(".")[0] in modules}
        return names | moving if policy == "share_all" else names

    def download(self, site: str, t: int) -> Arrays:
        """What a site overwrites at the start of round t."""
        return {name: self.shared[name] for name in self.shares(t)}

    def receive(self, site: str, t: int) -> Arrays:
        """The model a site starts round t with."""
        return self.init | self.vault.get(site, {}) | self.download(site, t)

    def predict(self, site: str, t: int) -> tuple[Arrays, Array]:
        """E-pre of round t: the model measured, and its scores on the site's test set."""
        w = self.receive(site, t)
        if site not in self.since and self.calibrates and self.settings["bn_policy"] != "share_all":
            self.fill_statistics(w, self.data[site].x)
        return w, self.scores(w, self.data[site].test_x)

    def serve(self, site: str, t: int) -> Arrays:
        """The complete model a site ends with, after the last round t."""
        return self.predict(site, t)[0]

    def train(self, site: str, t: int) -> tuple[Upload, Array]:
        """A site's round: its upload (the caller may lose it) and its scores after training."""
        w, data = self.receive(site, t), self.data[site]
        self.learn(w, data)
        self.keep(site, t, w)
        return Upload(self.weight(site), w), self.scores(w, data.test_x)

    def weight(self, site: str) -> int:
        """n_i, or 1 where sites count alike."""
        alike = self.uniform or self.settings.get("aggregation") == "uniform"
        return 1 if alike else len(self.data[site].y)

    def keep(self, site: str, t: int, w: Arrays) -> None:
        """What the site's vault holds after the round: all that is not shared."""
        self.vault[site] = {name: value for name, value in w.items() if name not in self.shares(t)}
        self.since[site] = t

    def close(self, t: int, uploads: Mapping[str, Upload]) -> None:
        """The coordinator's end of the round; without uploads nothing changes."""
        if uploads:
            mean = average(list(uploads.values()), self.shares(t))
            self.shared = self.shared | mean

    def learn(self, w: Arrays, data: SiteArrays) -> None:
        """Local training of everything on the cross entropy of the head."""
        self.descend(w, parameters(w), lambda: self.classify(w, data))

    def classify(self, w: Arrays, data: SiteArrays) -> Arrays:
        """Gradients of CE(head(encoder(x)), y)."""
        run = Pass(w, training=True)
        h, back = run.chain(self.encoder, data.x)
        o, back_head = run.linear("head", h)
        back(back_head(cross_entropy(o, data.y)[1]))
        return run.grads

    def descend(self, w: Arrays, names: set[str], gradients: Callable[[], Arrays]) -> None:
        """One local training phase with a fresh optimizer."""
        epochs, lr, momentum = (self.number(name) for name in ("epochs", "lr", "momentum"))
        descend(w, names, gradients, epochs=int(epochs), lr=lr, momentum=momentum)

    def batches(
        self, site: str, t: int, epochs: int, *, first_epoch: int = 0, samples: int | None = None
    ) -> list[Array]:
        """The places of each batch's samples, epoch after epoch, in their order: B at a time.

        A last batch under half of B joins the one before; a site with less than one batch uses all it has.
        """
        n, size = samples or len(self.data[site].y), int(self.number("batch"))
        edges = [*range(0, n, size), n] if n > size else [0, n]
        if len(edges) > 2 and 2 * (edges[-1] - edges[-2]) < size:
            del edges[-2]
        orders = [self.chance.order(site, t, first_epoch + epoch, n) for epoch in range(epochs)]
        return [order[start:end] for order in orders for start, end in pairwise(edges)]

    def walk(
        self,
        w: Arrays,
        names: set[str],
        slopes: Slopes,
        *,
        site: str,
        t: int,
        epochs: int | None = None,
        first_epoch: int = 0,
        **rates: float,
    ) -> None:
        """One local training phase, batch by batch, with a fresh optimizer; only the named tensors move.

        `rates` (lr, momentum, decay) stand in for the settings.
        """
        usual = {"lr": "lr", "momentum": "momentum", "decay": "weight_decay"}
        usual_rates = {name: self.number(setting) for name, setting in usual.items()}
        descent = Descent(w, names, **{**usual_rates, **rates})
        passes = int(self.number("epochs")) if epochs is None else epochs
        x, y = self.data[site].x, self.data[site].y
        for places in self.batches(site, t, passes, first_epoch=first_epoch):
            descent.step(slopes(x[places], y[places]))

    def fill_statistics(self, w: Arrays, x: Array) -> None:
        """One pass in train mode without gradients."""
        Pass(w, training=True).chain(self.encoder, x)

    def scores(self, w: Arrays, x: Array) -> Array:
        """The prediction's scores, in evaluation mode."""
        run = Pass(w, training=False)
        return run.linear("head", run.chain(self.encoder, x)[0])[0]

    def state(self) -> Arrays:
        """The shared state, under the coordinator's names."""
        return self.shared

    def kept(self, site: str) -> Arrays:
        """A site's vault, under its participant's names."""
        return self.vault.get(site, {})

    def save(self) -> Saved:
        """What an abandoned attempt must put back."""
        return dict(self.vault), dict(self.since)

    def roll_back(self, saved: Saved) -> None:
        """Every site is again where its last committed round left it."""
        self.vault, self.since = (dict(part) for part in saved)


def average(uploads: list[Upload], names: set[str]) -> Arrays:
    """Σ weight·w / Σ weight."""
    whole = sum(upload.weight for upload in uploads)
    return {name: sum(upload.weight * upload.w[name] for upload in uploads) / whole for name in names}


def parameters(w: Arrays) -> set[str]:
    """Names that training moves: weights and biases of layers, and a scale that is a single number."""
    return {name for name in w if name.rpartition(".")[2] in ("weight", "bias") or name == "scale"}


def norm_layers(w: Arrays) -> set[str]:
    """The layers that normalise over the batch; none of the encoder's says so in its name."""
    return {name.removesuffix(f".{COUNTER}") for name in w if name.endswith(f".{COUNTER}")}


def statistics(w: Arrays) -> set[str]:
    """Names of running means and variances."""
    return {f"{layer}.{key}" for layer in norm_layers(w) for key in STATISTICS}


def counters(w: Arrays) -> set[str]:
    """Names of the integer batch counters, which are always local."""
    return {f"{layer}.{COUNTER}" for layer in norm_layers(w)}


def below(w: Arrays, *modules: str) -> set[str]:
    """Parameters of whole modules."""
    return {name for name in parameters(w) if name.partition(".")[0] in modules}


class Local(Oracle):
    """Local: nothing is shared."""

    def shares(self, t: int) -> set[str]:
        return set()


class FedAvg(Oracle):
    """FedAvg with `share_all`: parameters and running statistics."""

    calibrates = False

    def shares(self, t: int) -> set[str]:
        return parameters(self.init) | statistics(self.init)


class FedBn(Oracle):
    """FedBN: all parameters but those of batch norms."""

    def shares(self, t: int) -> set[str]:
        norms = norm_layers(self.init)
        return {name for name in parameters(self.init) if name.rpartition(".")[0] not in norms}


class FedPer(Oracle):
    """FedPer under `local_stats`: the encoder's parameters; encoder and head are trained together."""

    def shares(self, t: int) -> set[str]:
        return below(self.init, "encoder")


class DualFed(Oracle):
    """DualFed, stage-wise or simultaneous, with the sum of probabilities as prediction."""

    uniform = True
    defaults: Mapping[str, Setting] = {"train_mode": "stagewise", "lambda": 1.0, "tau": 0.2}

    def shares(self, t: int) -> set[str]:
        return below(self.init, "encoder", "head_g")

    def learn(self, w: Arrays, data: SiteArrays) -> None:
        local, common = below(w, "encoder", "projector", "head_p"), below(w, "head_g")
        if self.settings["train_mode"] == "simultaneous":
            self.descend(w, local | common, lambda: self.slopes(w, data, both=True))
            return
        self.descend(w, local, lambda: self.slopes(w, data, both=False))
        self.descend(w, common, lambda: self.slopes(w, data, both=True))

    def slopes(self, w: Arrays, data: SiteArrays, *, both: bool) -> Arrays:
        """Gradients of L_pcls + λ L_con, on request with CE(head_g(z), y); statistics move in any case."""
        run = Pass(w, training=True)
        z, back_encoder = run.chain(ENCODER, data.x)
        u, back_projector = run.chain(PROJECTOR, z)
        o, back_head = run.linear("head_p", u)
        du = back_head(cross_entropy(o, data.y)[1])
        du = du + float(self.settings["lambda"]) * supcon(u, data.y, float(self.settings["tau"]))[1]
        dz = back_projector(du)
        if both:
            o, back_common = run.linear("head_g", z)
            dz = dz + back_common(cross_entropy(o, data.y)[1])
        back_encoder(dz)
        return run.grads

    def fill_statistics(self, w: Arrays, x: Array) -> None:
        Pass(w, training=True).chain(ENCODER + PROJECTOR, x)

    def scores(self, w: Arrays, x: Array) -> Array:
        run = Pass(w, training=False)
        z = run.chain(ENCODER, x)[0]
        u = run.chain(PROJECTOR, z)[0]
        return softmax(run.linear("head_g", z)[0]) + softmax(run.linear("head_p", u)[0])


class FedProto(Oracle):
    """FedProto with a clean pass, plain means and all classes; the model never travels."""

    defaults: Mapping[str, Setting] = {"lambda": 1.0}
    by_rank = True

    def first_shared(self) -> Arrays:
        classes, features = self.init["head.weight"].shape
        return {"prototypes": np.zeros((classes, features)), "known": np.zeros(classes, dtype=bool)}

    def shares(self, t: int) -> set[str]:
        return {"prototypes", "known"}

    def learn(self, w: Arrays, data: SiteArrays) -> None:
        self.descend(w, parameters(w), lambda: self.slopes(w, data))
        h = Pass(w, training=False).chain(ENCODER, data.x)[0]
        w["owned"] = owned = self.owned(data.y)
        w["means"] = np.stack([h[data.y == c].mean(0) if owned[c] else 0 * h[0] for c in range(len(owned))])

    def owned(self, y: Array) -> Array:
        """Classes a site has samples of."""
        return np.array([bool((y == c).any()) for c in range(len(self.shared["known"]))])

    def predict(self, site: str, t: int) -> tuple[Arrays, Array]:
        w, scores = super().predict(site, t)
        return w | {"owned": self.owned(self.data[site].y)}, scores

    def slopes(self, w: Arrays, data: SiteArrays) -> Arrays:
        """Gradients of CE + λ MSE(h, P_y)."""
        run = Pass(w, training=True)
        h, back = run.chain(ENCODER, data.x)
        o, back_head = run.linear("head", h)
        dh = float(self.settings["lambda"]) * pull(h, data.y, w["prototypes"], w["known"])[1]
        back(back_head(cross_entropy(o, data.y)[1]) + dh)
        return run.grads

    def keep(self, site: str, t: int, w: Arrays) -> None:
        super().keep(site, t, {name: value for name, value in w.items() if name != "means"})

    def close(self, t: int, uploads: Mapping[str, Upload]) -> None:
        known, prototypes = self.shared["known"].copy(), self.shared["prototypes"].copy()
        for c in range(len(known)):
            means = [upload.w["means"][c] for upload in uploads.values() if upload.w["owned"][c]]
            if means:
                prototypes[c], known[c] = np.mean(means, axis=0), True
        self.shared = {"prototypes": prototypes, "known": known}

    def scores(self, w: Arrays, x: Array) -> Array:
        """Minus the distance to each prototype, −∞ where there is none; at first the head's logits."""
        if not w["known"].any():
            return super().scores(w, x)
        h = Pass(w, training=False).chain(ENCODER, x)[0]
        apart = np.linalg.norm(h[:, None, :] - w["prototypes"][None], axis=2)
        return np.where(w["known"], -apart, -np.inf)
