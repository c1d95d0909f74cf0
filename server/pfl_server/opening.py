"""From a gathered federation to a frozen specification: nothing of it changes while the run lasts."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version

import torch

from pfl_common import methods, sources
from pfl_common.config import dump
from pfl_common.errors import RunFailed
from pfl_common.run import ClientId, Description, Manifest, Participation, RunSpec
from pfl_server import inputs
from pfl_server.agreement import agree
from pfl_server.books import build_template
from pfl_server.inputs import Wish
from pfl_server.rehearsal import rehearse
from pfl_server.settings import ServerSettings

REHEARSED_HERE = 8 << 20
"""A model of so many bytes is rehearsed in the coordinator itself: a process of its own takes seconds to start."""


def freeze(settings: ServerSettings, sites: Mapping[ClientId, Description], *, run: str) -> RunSpec:
    """Agree the model with the sites, rehearse the method, pin everything."""
    wish = Wish(
        settings.backbone,
        settings.image_size,
        settings.encoder_projector,
        pixel_range=settings.pixel_range,
        standardise=settings.standardise,
    )
    model = agree(sites, wish)
    method = methods.load(settings.method)
    participation = Participation.parse(settings.participation, drop=settings.drop)
    participation.check_roster(sites)
    spec = RunSpec(
        id=run,
        method=method.name,
        settings=dump(method.settle(settings.set)),
        model=model,
        rounds=settings.rounds,
        seed=settings.seed,
        roster=tuple(sorted(sites)),
        participation=participation,
        candidates=settings.candidates,
        quorum=settings.quorum,
        round_seconds=settings.round_seconds,
        lease_seconds=settings.lease_seconds,
        evaluate_every=settings.evaluate_every,
        largest_norm=settings.largest_norm,
        threads=settings.threads,
        repeatable=settings.threads == 1,
        versions=versions(),
        chosen=inputs.explain(sites, wish, shape=model.shape, features=len(model.mean)),
        data={site: sites[site].data for site in sorted(sites) if sites[site].data},
    )
    # One epoch shows every shape; a run of twenty must not cost its operator twenty before it begins.
    quick = replace(spec, settings={**spec.settings, "epochs": 1})
    return replace(spec, manifests=_rehearsed(quick))


def _rehearsed(spec: RunSpec) -> dict[str, Manifest]:
    """The shape of every parcel; a large model is rehearsed in a process that takes its memory along when it ends."""
    method = methods.load(spec.method)
    if _size(spec) <= REHEARSED_HERE:
        return rehearse(method, spec, build_template(spec))
    command = [sys.executable, "-P", "-m", "pfl_server.rehearsal"]
    done = subprocess.run(command, input=spec.to_json().encode(), stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise RunFailed(f"the rehearsal of {spec.method} ended with {done.returncode}: see the log above")
    return RunSpec.from_json(done.stdout).manifests


def _size(spec: RunSpec) -> int:
    """Bytes of the first model, without making it."""
    with torch.device("meta"):
        return sum(value.nbytes for value in methods.build_participant(spec).state_dict().values())


def versions() -> dict[str, str]:
    """What decides a result's bits besides the specification: they are promised within one such class."""
    return {
        "pfl": version("pfl-net"),
        "code": sources.digest(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }
