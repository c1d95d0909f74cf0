"""What of each method stays at a site and must change there, so that no equality of bytes comes from standing still."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file

_STATISTICS = "encoder.bn.running_mean"
SHARES_ALL = ("fedavg", "fedprox")
"""Methods whose sites keep nothing but counters."""
PERSONAL: Mapping[str, str] = {
    "ditto": "personal.head.weight",
    "dualfed": "head_p.weight",
    "fedamp": "head.weight",
    "fedbn": "encoder.bn.weight",
    "fedcac": "mask",
    "fedcp": "head_p.weight",
    "fedetf": _STATISTICS,
    "fedfomo": "head.weight",
    "fedper": "head.weight",
    "fedphp": "own.head.weight",
    "fedpick": "pfsm.select.fc1.weight",
    "fedproto": "head.weight",
    "fedrep": "head.weight",
    "fedrod": "head_p.weight",
    "gpfl": "head_p.weight",
    "lgfedavg": "encoder.conv.weight",
    "local": "head.weight",
    "perfedavg": _STATISTICS,
    "pfedme": "theta.head.weight",
    "spherefed": _STATISTICS,
}
WORDS: Mapping[str, tuple[str, ...]] = {
    # Two batches of eight go into each step, and the smaller site has 22 samples.
    "perfedavg": ("--set", "batch=8"),
    # Three rounds: one of the first phase, two of the second.
    "lgfedavg": ("--set", "pretrain_rounds=1"),
}
"""What a method needs beside its defaults on a few dozen samples and three rounds."""


def assert_personal_state_is_real(method: str, runs: Mapping[str, Path]) -> None:
    """The personal tensor differs between a site's last two rounds and between sites; `runs` are sites' run folders."""
    if method in SHARES_ALL:
        return
    states = {site: read(PERSONAL[method], sorted(run.glob("generations/*"))) for site, run in runs.items()}
    for before, after in states.values():
        assert not torch.equal(before, after)
    first, second = states.values()
    assert not torch.equal(first[-1], second[-1])


def read(name: str, files: Iterable[Path]) -> list[torch.Tensor]:
    """One tensor out of several files."""
    return [load_file(file)[name] for file in files]
