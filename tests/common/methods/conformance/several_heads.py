"""What is played of the methods with several heads or with fixed ones: their oracles, and settings worth their time."""

from __future__ import annotations

from pfl_common.spec.run import Json

from .oracle_fedcp import FedCp
from .oracle_fedetf import FedEtf
from .oracle_fedpick import FedPick
from .oracle_fedrod import FedRod
from .oracle_gpfl import Gpfl
from .oracle_spherefed import SphereFed
from .oracles import Oracle

HEADS_ORACLES: dict[str, type[Oracle]] = {
    "fedcp": FedCp,
    "fedetf": FedEtf,
    "fedpick": FedPick,
    "fedrod": FedRod,
    "gpfl": Gpfl,
    "spherefed": SphereFed,
}

_CHOICE: dict[str, Json] = {"tau": 1, "lambda_lce": 5, "lambda_ent": 0.01, "lambda_dis": 1}
"""With a weaker second head all samples of all sites would pick the same features to the end."""
_FOUR: dict[str, Json] = {"batch": 4, "epochs": 1, "lr": 0.05}
"""The site with nine samples folds the ninth into its second batch."""

HEADS_SMALL: dict[str, dict[str, Json]] = {
    "fedcp": {"lambda": 2},
    "fedpick": _CHOICE,
    "gpfl": {"lambda": 0.2, "mu": 0.05},
}

HEADS_FURTHER: tuple[tuple[str, dict[str, Json], str], ...] = (
    ("fedcp", {}, "as-it-comes"),
    ("fedcp", {"lambda": 50}, "held-tight"),
    ("fedcp", {"lambda": 5, "mmd_bandwidths": [0.5, 3]}, "two-kernels"),
    ("fedcp", {"cpn_input": "ss"}, "without-the-vector"),
    ("fedcp", {"cpn_input": "cs"}, "without-the-sample"),
    ("fedcp", {"cpn_input": "random"}, "without-either"),
    ("fedcp", {"cpn_act": "tanh", "cpn_fc": 2}, "two-layers-tanh"),
    ("fedcp", {"cpn_act": "sigmoid", "cpn_norm": "gn"}, "sigmoid-halves"),
    ("fedcp", {"cpn_act": "relu", "cpn_norm": "bn"}, "batch-norm"),
    ("fedcp", {"use_gfm": False}, "unguided"),
    ("fedcp", {"use_cpn": False, "lambda": 2}, "undivided"),
    ("fedcp", {"use_cpn": False, "use_gfm": False}, "undivided-unguided"),
    ("fedcp", {"use_cpn": False, "use_global_head": False, "lambda": 2}, "own-head"),
    ("fedcp", {"use_cpn": False, "use_global_head": False, "use_gfm": False}, "own-head-unguided"),
    ("fedcp", {"bn_policy": "share_all"}, "everybodys-statistics"),
    ("fedcp", {"bn_policy": "local_bn"}, "own-norms"),
    ("fedcp", {"policy": "gumbel_train", "lambda": 2}, "noisy"),
    ("fedcp", {**_FOUR, "policy": "gumbel_train", "epochs": 2}, "noisy-small-batches"),
    ("fedcp", {**_FOUR, "lambda": 2, "epochs": 2}, "small-batches"),
    ("fedetf", {"absent": "one"}, "absent-as-one"),
    ("fedetf", {"etf_finetune": True, "lr": 0.02}, "fitted-at-the-end"),
    ("fedetf", {"bn_policy": "share_all"}, "everybodys-statistics"),
    ("fedetf", {**_FOUR, "epochs": 2}, "small-batches"),
    ("fedpick", {**_CHOICE, "mask": "soft"}, "soft"),
    ("fedpick", {**_CHOICE, "mask": "soft", "tau": 5, "lambda_lce": 3}, "soft-and-warm"),
    ("fedpick", {**_CHOICE, "tau": 10, "lambda_lce": 10, "lambda_dis": 10, "lr": 0.01}, "digits"),
    ("fedpick", {**_CHOICE, "epsilon": 0.7}, "choosy"),
    ("fedpick", {**_CHOICE, "ensemble": "prob"}, "probabilities"),
    ("fedpick", {**_CHOICE, "ensemble": "global_only"}, "common-head-alone"),
    ("fedpick", {"use_pfsm": False}, "unpicked"),
    ("fedpick", {**_CHOICE, "share_pfsm": True}, "everybodys-choice"),
    ("fedpick", {**_CHOICE, "bn_policy": "share_all"}, "everybodys-norms"),
    ("fedpick", {**_CHOICE, "bn_policy": "local_stats"}, "own-statistics"),
    ("fedpick", {**_CHOICE, **_FOUR, "epochs": 2}, "small-batches"),
    (
        "fedpick",
        {**_CHOICE, "lambda_lce": 0, "lambda_ent": 0, "lambda_dis": 0},
        "nothing-but-the-common-loss",
    ),
    ("fedrod", {"bn_policy": "share_all"}, "everybodys-statistics"),
    ("fedrod", {"aggregation": "uniform"}, "all-alike"),
    ("fedrod", {**_FOUR, "epochs": 2}, "small-batches"),
    ("gpfl", {"p_norm": "sum", "mlg": "batch_frob", "reg": "weight_decay"}, "as-in-the-code"),
    ("gpfl", {"p_norm": "sum", "lambda": 0.2}, "undivided"),
    ("gpfl", {"cond_source": "stale", "lambda": 0.2}, "stale"),
    ("gpfl", {"cond_source": "stale", "p_norm": "sum", "reg": "weight_decay"}, "stale-sum"),
    ("gpfl", {"ablation": "wo_cov", "lambda": 0.2}, "unmodulated"),
    ("gpfl", {"ablation": "wo_pci", "lambda": 0.2}, "constant"),
    ("gpfl", {"ablation": "wo_gce", "lambda": 0.2}, "unguided"),
    ("gpfl", {"ablation": "wo_mlg", "lambda": 0.2}, "undrawn"),
    ("gpfl", {"ablation": "wo_cov_gce"}, "own-head"),
    ("gpfl", {"bn_policy": "share_all"}, "everybodys-statistics"),
    ("gpfl", {**_FOUR, "lambda": 0.2, "mlg": "batch_frob", "epochs": 2}, "small-batches"),
    ("spherefed", {"lr": 1}, "long-steps"),
    ("spherefed", {"loss": "ce", "scale": 4}, "cross-entropy"),
    ("spherefed", {"calibrate": True}, "calibrated"),
    ("spherefed", {"calibrate": True, "gamma": 0.5, "bn_policy": "share_all"}, "calibrated-gently"),
    ("spherefed", {**_FOUR, "epochs": 2}, "small-batches"),
)
