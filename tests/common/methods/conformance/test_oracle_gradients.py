"""Each oracle's hand-derived gradients are what a small step of a number does to its loss.

A hard mask has no such quotient: the soft one, which lends it its gradient, is asked instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from .network import Array, Arrays
from .oracle_fedcp import FedCp
from .oracle_fedetf import VECTORS, FedEtf
from .oracle_fedpick import FedPick
from .oracle_fedrod import FedRod
from .oracle_gpfl import Gpfl
from .oracle_spherefed import SphereFed
from .oracles import Oracle, Setting
from .schedule import CLASSES, FEATURES, HIDDEN, INPUTS

DRAW = np.random.default_rng(6)
X, Y = DRAW.standard_normal((9, INPUTS)), np.array([0, 0, 1, 1, 1, 2, 3, 3, 2])
G, P, V, FROZEN, NOISE = (
    DRAW.standard_normal(shape)
    for shape in (FEATURES, FEATURES, FEATURES, (CLASSES, FEATURES), (9, FEATURES))
)
COUNTS = np.array([4, 3, 2, 1])
POLICY: dict[str, tuple[int, ...]] = {"cpn.fc": (2 * FEATURES, FEATURES), "cpn.norm": (2 * FEATURES,)}
HEADS: dict[str, tuple[int, ...]] = {"head_g": (CLASSES, FEATURES), "head_p": (CLASSES, FEATURES)}
MODULATION: dict[str, tuple[int, ...]] = {
    "cov.gamma.fc": (FEATURES, FEATURES),
    "cov.gamma.norm": (FEATURES,),
    "cov.beta.fc": (FEATURES, FEATURES),
    "cov.beta.norm": (FEATURES,),
    "gce": (CLASSES, FEATURES),
}
SELECTION: dict[str, tuple[int, ...]] = {
    "pfsm.select.fc1": (2, FEATURES),
    "pfsm.select.fc2": (FEATURES, 2),
    "head_u": (CLASSES, FEATURES),
}


@dataclass(frozen=True, eq=False)
class Trial:
    """A loss with its gradients, the layers it needs, and who does not move although it takes part."""

    label: str
    kind: type[Oracle]
    loss: Callable[[Oracle, Arrays], tuple[float, Arrays]]
    layers: Mapping[str, tuple[int, ...]]
    settings: Mapping[str, Setting] = field(default_factory=dict)
    untouched: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.label


def fedcp(label: str, **settings: Setting) -> Trial:
    """FedCP with some of its options; the frozen encoder is another one."""

    def loss(oracle: Oracle, w: Arrays) -> tuple[float, Arrays]:
        assert isinstance(oracle, FedCp)
        return oracle.slopes(w, network({}, seed=8), V, X, Y)

    extra = {"cpn.before1": (FEATURES, FEATURES)} if "cpn_fc" in settings else {}
    untouched = () if settings.get("use_cpn", 1) else ("cpn",)
    untouched += () if settings.get("use_global_head", 1) else ("head_g",)
    return Trial(f"fedcp-{label}", FedCp, loss, {**HEADS, **POLICY, **extra}, settings, untouched)


def gpfl(label: str, **settings: Setting) -> Trial:
    """GPFL with some of its options; the frozen table is another one."""

    def loss(oracle: Oracle, w: Arrays) -> tuple[float, Arrays]:
        assert isinstance(oracle, Gpfl)
        return oracle.slopes(w, FROZEN, G, P, X, Y)

    own = {name: shape for name, shape in HEADS.items() if name == "head_p"}
    untouched = {"wo_cov": ("cov",), "wo_cov_gce": ("cov", "gce")}.get(str(settings.get("ablation")), ())
    return Trial(f"gpfl-{label}", Gpfl, loss, {**own, **MODULATION}, settings, untouched)


def fedpick(label: str, **settings: Setting) -> Trial:
    """FedPick with the mask that can be differentiated."""

    def loss(oracle: Oracle, w: Arrays) -> tuple[float, Arrays]:
        assert isinstance(oracle, FedPick)
        return oracle.slopes(w, NOISE, X, Y)

    untouched = () if settings.get("use_pfsm", 1) else ("pfsm", "head_p", "head_u")
    chosen = {"mask": "soft", **settings}
    return Trial(f"fedpick-{label}", FedPick, loss, {**HEADS, **SELECTION}, chosen, untouched)


def spherefed(oracle: Oracle, w: Arrays) -> tuple[float, Arrays]:
    """Either loss."""
    assert isinstance(oracle, SphereFed)
    return oracle.slopes(w | {"frame.rows": FROZEN}, X, Y)


def fedetf(oracle: Oracle, w: Arrays) -> tuple[float, Arrays]:
    """The balanced loss."""
    assert isinstance(oracle, FedEtf)
    return oracle.slopes(w, COUNTS, X, Y)


def generic(oracle: Oracle, w: Arrays) -> tuple[float, Arrays]:
    """Fed-RoD's first loss, which moves all but the personal head."""
    assert isinstance(oracle, FedRod)
    (loss, _), grads = oracle.slopes(w, COUNTS, X, Y)
    return loss, {name: grad for name, grad in grads.items() if not name.startswith("head_p")}


def personal(oracle: Oracle, w: Arrays) -> tuple[float, Arrays]:
    """Fed-RoD's second loss, which moves the personal head alone."""
    assert isinstance(oracle, FedRod)
    (_, loss), grads = oracle.slopes(w, COUNTS, X, Y)
    return loss, {name: grad for name, grad in grads.items() if name.startswith("head_p")}


TRIALS = (
    fedcp("plain", **{"lambda": 3.0}),
    fedcp("features-alone", cpn_input="ss", cpn_act="tanh"),
    fedcp("vector-alone", cpn_input="cs", cpn_norm="gn", cpn_act="sigmoid"),
    fedcp("batch-norm", cpn_norm="bn", cpn_fc=2, use_gfm=0),
    fedcp("two-heads", use_cpn=0),
    fedcp("one-head", use_cpn=0, use_global_head=0),
    gpfl("plain", mu=0.3, **{"lambda": 0.5}),
    gpfl("one-norm", mlg="batch_frob"),
    gpfl("no-modulation", ablation="wo_cov"),
    gpfl("plain-net", ablation="wo_cov_gce"),
    fedpick("soft", tau=0.7, lambda_ent=0.4),
    fedpick("no-selection", use_pfsm=0),
    Trial("spherefed-mse", SphereFed, spherefed, {}),
    Trial("spherefed-ce", SphereFed, spherefed, {}, {"loss": "ce", "scale": 4.0}),
    Trial("fedetf", FedEtf, fedetf, {"projection": (CLASSES, FEATURES), VECTORS: (), "scale": ()}),
    Trial("fedrod-generic", FedRod, generic, HEADS, {}, ("head_p",)),
    Trial("fedrod-personal", FedRod, personal, HEADS, {}, ("head_g", "encoder")),
)


@pytest.mark.parametrize("trial", TRIALS, ids=str)
def test_the_oracles_gradients_are_difference_quotients(trial: Trial) -> None:
    """Two places of every tensor; what has no part in the loss has no gradient."""
    w, draw = network(trial.layers, seed=7), np.random.default_rng(5)
    oracle = trial.kind(w, {}, trial.settings)
    grads = trial.loss(oracle, dict(w))[1]
    learning = {name for name in w if "running" not in name and "num_batches" not in name}
    assert {name for name in learning if name.partition(".")[0] not in trial.untouched} == grads.keys()
    for name, grad in [(name, np.asarray(grad)) for name, grad in grads.items()] * 2:
        place = tuple(int(draw.integers(size)) for size in grad.shape)
        up, down = (trial.loss(oracle, stepped(w, name, place, step))[0] for step in (1e-6, -1e-6))
        assert (up - down) / 2e-6 == pytest.approx(grad[place], rel=1e-5, abs=1e-8), (name, place)


def stepped(w: Arrays, name: str, place: tuple[int, ...], step: float) -> Arrays:
    """The same tensors with one number moved."""
    value = np.array(w[name])
    value[place] += step
    return {**w, name: value}


def network(layers: Mapping[str, tuple[int, ...]], *, seed: int) -> Arrays:
    """Numbers of no meaning for the encoder and further layers; one width alone is a layer that normalises."""
    draw, w = np.random.default_rng(seed), {}
    encoder = {"encoder.mix": (HIDDEN, INPUTS), "encoder.scale": (HIDDEN,), "encoder.out": (FEATURES, HIDDEN)}
    for name, shape in {**encoder, **layers}.items():
        if name in ("scale", VECTORS):
            w[name] = np.array(1.7) if name == "scale" else draw.standard_normal((CLASSES, CLASSES))
            continue
        w[f"{name}.weight"] = draw.standard_normal(shape)
        if name != "gce":
            w[f"{name}.bias"] = draw.standard_normal(shape[0])
    for name in ("encoder.scale", *(("cpn.norm",) if "cpn.norm" in layers else ())):
        w |= moving(draw, len(w[f"{name}.weight"]), name)
    return w


def moving(draw: np.random.Generator, width: int, name: str) -> dict[str, Array]:
    """What a batch norm remembers."""
    return {
        f"{name}.running_mean": draw.standard_normal(width),
        f"{name}.running_var": 1 + draw.random(width),
        f"{name}.num_batches_tracked": np.array(0),
    }
