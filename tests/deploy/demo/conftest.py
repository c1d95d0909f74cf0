"""Small data folders cut from the sample, and one short demo with real processes that several tests look at."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pfl_deploy.demo.findings import Findings
from pfl_deploy.demo.make import play
from pfl_deploy.demo.plan import SAMPLE, Plan

ROUNDS = 2


def cut(out: Path, *, sites: tuple[str, ...], train: int, test: int) -> Path:
    """Folders with the first pictures of some of the sample's sites."""
    for site in sites:
        (out / site).mkdir(parents=True)
        for part, count in (("train", train), ("test", test), ("shifted", test)):
            if not (SAMPLE / site / f"{part}.npz").exists():
                continue
            with np.load(SAMPLE / site / f"{part}.npz") as arrays:
                np.savez(out / site / f"{part}.npz", x=arrays["x"][:count], y=arrays["y"][:count])
        (out / site / "classes.json").write_text((SAMPLE / site / "classes.json").read_text())
    return out


@dataclass(frozen=True)
class Played:
    """A demo that is over, with what it said."""

    plan: Plan
    findings: Findings
    said: str


@pytest.fixture(scope="package")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Four sites with a few pictures each, two rounds of each method; the state is kept to compare with."""
    place = tmp_path_factory.mktemp("demo")
    data = cut(place / "data", sites=("mnist", "mnist_m", "optdigits", "synth"), train=40, test=30)
    plan = Plan(data, place / "out", ROUNDS, keep=True)
    plan.out.mkdir()
    said = io.StringIO()
    findings = play(plan, Console(file=said, width=200))
    return Played(plan, findings, said.getvalue())
