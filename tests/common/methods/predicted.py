"""What the methods' specification predicts to cross in a round, as numbers of the network's parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from pfl_server.run.kept_figures import NETWORKS, Network

TINY = Network("cnn", (3, 64, 64), 200)
"""The network and pictures of FedCP's and GPFL's largest table."""
CONDITIONAL = 527_360
"""Parameters of FedCP's policy network and of GPFL's conditional module, both for 512 features."""
SLOTS = 5
"""Models that FedFomo sends down."""
SHARE, CONSTANT = 0.005, 4096
"""Bytes may lie this far from the prediction: weights of sums, counts of classes, statistics of batch norms."""


@dataclass(frozen=True)
class Sizes:
    """Numbers of a backbone's parts."""

    encoder: int
    head: int
    norm: int
    """Scales and shifts of batch norms."""
    prototypes: int
    """One feature vector for each class."""

    @property
    def model(self) -> int:
        """What FedAvg sends."""
        return self.encoder + self.head


SIZES = {
    TINY: Sizes(5_592_000, 102_600, 0, 102_400),
    NETWORKS[0]: Sizes(873_408, 5_130, 0, 5_120),
    NETWORKS[1]: Sizes(11_176_512, 5_130, 9_600, 5_120),
}
Count: TypeAlias = Callable[[Sizes], float]


def _model(of: Sizes) -> float:
    return of.model


def _encoder(of: Sizes) -> float:
    return of.encoder


def _plain(of: Sizes) -> float:
    """All but batch norm."""
    return of.model - of.norm


def _fedcp(of: Sizes) -> float:
    return of.model + CONDITIONAL


def _gpfl(of: Sizes) -> float:
    return of.encoder + of.prototypes + CONDITIONAL


def _nothing(of: Sizes) -> float:
    return 0


PREDICTED: dict[str, tuple[Count, Count]] = {
    "dualfed": (_model, _model),
    "fedcp": (_fedcp, _fedcp),
    # One bit for each parameter.
    "fedcac": (lambda of: of.model * (1 + 1 / 32), lambda of: 2 * of.model),
    "gpfl": (_gpfl, _gpfl),
    "fedpick": (_plain, _plain),
    "local": (_nothing, _nothing),
    "fedavg": (_model, _model),
    "fedprox": (_model, _model),
    "fedper": (_encoder, _encoder),
    "fedrep": (_encoder, _encoder),
    "lgfedavg": (lambda of: of.head, lambda of: of.head),
    "fedbn": (_plain, _plain),
    "fedproto": (lambda of: of.prototypes, lambda of: of.prototypes),
    "spherefed": (_encoder, _encoder),
    "fedrod": (_model, _model),
    "fedetf": (_model, _model),
    "perfedavg": (_model, _model),
    "pfedme": (_model, _model),
    "ditto": (_model, _model),
    "fedamp": (_model, _model),
    "fedfomo": (_model, lambda of: SLOTS * of.model),
    "fedphp": (_model, _model),
}
"""Numbers up and down in a round, each of four bytes."""
