"""What is played of the baselines: their oracles, and settings worth an oracle's time."""

from __future__ import annotations

from pfl_common.spec.run import Json

from .oracle_fedamp import FedAmp
from .oracle_fedfomo import FedFomo
from .oracle_fedphp import FedPhp
from .oracle_perfedavg import PerFedAvg
from .oracle_pfedme import PFedMe
from .oracle_pulled import Ditto, FedProx
from .oracle_split import FedRep, LgFedAvg
from .oracles import Oracle

BASELINE_ORACLES: dict[str, type[Oracle]] = {
    "ditto": Ditto,
    "fedamp": FedAmp,
    "fedfomo": FedFomo,
    "fedphp": FedPhp,
    "fedprox": FedProx,
    "fedrep": FedRep,
    "lgfedavg": LgFedAvg,
    "perfedavg": PerFedAvg,
    "pfedme": PFedMe,
}

_NEAR: dict[str, Json] = {"alpha_k": 0.06, "lambda": 0.04, "sigma": 0.3}
_PAIRS: dict[str, Json] = {"batch": 3, "momentum": 0}
_INNER: dict[str, Json] = {"momentum": 0}
_TAUGHT: dict[str, Json] = {"lambda": 0.3}
_CUT: dict[str, Json] = {"batch": 4}
"""Real batches in their order, of which the last may be short: what each epoch's number is can be seen."""

BASELINE_SMALL: dict[str, dict[str, Json]] = {
    # The square distances of the schedule's models are 0.01 to 1: each weighs something with each other.
    "fedamp": _NEAR,
    "fedfomo": {"M": 2},
    "fedphp": _TAUGHT,
    "fedprox": {"mu": 0.3},
    "lgfedavg": {"pretrain_rounds": 2},
    # Pairs of small batches: the smallest site that trains has eight samples.
    "perfedavg": _PAIRS,
    "pfedme": _INNER,
}

BASELINE_FURTHER: tuple[tuple[str, dict[str, Json], str], ...] = (
    ("ditto", {**_CUT, "personal_epochs": 2}, "batches"),
    ("ditto", {"mu": 0, "personal_epochs": 2}, "alone"),
    ("ditto", {"mu": 3, "personal_epochs": 3}, "near"),
    ("ditto", {"bn_policy": "share_all"}, "everybodys-statistics"),
    ("ditto", {"bn_policy": "local_bn"}, "own-norms"),
    ("fedamp", {**_NEAR, **_CUT}, "batches"),
    ("fedamp", {"alpha_k": 1, "lambda": 0.5, "sigma": 0.3}, "nothing-left-for-itself"),
    ("fedamp", {**_NEAR, "bn_policy": "local_bn"}, "own-norms"),
    ("fedamp", {}, "as-published-later"),
    ("fedfomo", {**_CUT, "M": 2}, "batches"),
    ("fedfomo", {}, "wide"),
    ("fedfomo", {"M": 1, "val_ratio": 0.5}, "half-held-out"),
    ("fedfomo", {"M": 3, "bn_policy": "local_bn"}, "own-norms"),
    ("fedfomo", {"M": 2, "bn_policy": "share_all"}, "everybodys-statistics"),
    ("fedphp", {**_TAUGHT, **_CUT}, "batches"),
    ("fedphp", {**_TAUGHT, **_CUT, "variant": "original"}, "batches-taught-logits"),
    ("fedphp", {"lambda": 0, "mu": 0.5}, "blended-only"),
    ("fedphp", {**_TAUGHT, "bn_policy": "share_all"}, "everybodys-statistics"),
    ("fedphp", {**_TAUGHT, "variant": "original"}, "taught-logits"),
    ("fedphp", {**_TAUGHT, "variant": "original", "reg": "mmd", "rho": 0.5}, "taught-features"),
    ("fedphp", {**_TAUGHT, "variant": "original", "rho": 0.2, "mu": 0.6}, "soon-at-its-cap"),
    ("fedphp", {**_TAUGHT, "variant": "lib2024"}, "library"),
    ("fedprox", {**_CUT, "mu": 0.3}, "batches"),
    ("fedprox", {"mu": 0}, "free"),
    ("fedprox", {"mu": 1, "bn_policy": "local_bn"}, "own-norms"),
    ("fedrep", {**_CUT, "head_epochs": 2}, "batches"),
    ("fedrep", {"head_epochs": 0}, "same-heads"),
    ("fedrep", {"head_epochs": 1, "body_epochs": 2}, "more-of-the-encoder"),
    ("fedrep", {"bn_policy": "share_all"}, "everybodys-statistics"),
    ("lgfedavg", {**_CUT, "pretrain_rounds": 2}, "batches"),
    ("lgfedavg", {"pretrain_rounds": 0}, "never-full"),
    ("lgfedavg", {"pretrain_rounds": 3}, "switch-at-the-empty-round"),
    ("lgfedavg", {"pretrain_rounds": 2, "bn_policy": "local_stats"}, "own-statistics"),
    ("perfedavg", {**_PAIRS, "passes": 2}, "twice"),
    ("perfedavg", {**_PAIRS, "batch": 4, "alpha": 0.3, "beta": 0.05}, "rates"),
    ("perfedavg", {**_PAIRS, "bn_policy": "share_all"}, "everybodys-statistics"),
    ("pfedme", {**_INNER, **_CUT}, "batches"),
    ("pfedme", {**_INNER, "beta": 0.5}, "half-way"),
    ("pfedme", {**_INNER, "K_in": 2, "lambda": 5, "eta_p": 0.05}, "few-large-steps"),
    ("pfedme", {**_INNER, "eval_model": "w_local"}, "as-published"),
    ("pfedme", {**_INNER, "bn_policy": "share_all", "beta": 0.5}, "everybodys-statistics"),
)
