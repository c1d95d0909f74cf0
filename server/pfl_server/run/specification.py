"""Turns the gathered sites into a specification that stays unchanged for the whole run."""

from __future__ import annotations

import asyncio
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version

import torch

from pfl_common import methods
from pfl_common.app import code_digest, plugins
from pfl_common.app.config import dump
from pfl_common.evaluation import REPORTS
from pfl_common.models.memory_format import check_arrangeable
from pfl_common.models.without_numbers import without_numbers
from pfl_common.spec.digests import NEWEST
from pfl_common.spec.manifest import Manifest
from pfl_common.spec.run import ClientId, Description, Model, RunSpec
from pfl_server.decisions import channel_scaling, input_choice, table_choice, weights_preprocessing
from pfl_server.decisions.input_choice import Wish
from pfl_server.decisions.model_choice import agree, explain_backbone
from pfl_server.decisions.weights_preprocessing import Prepared, standardise_as
from pfl_server.run.encoded_parcels import pin_encoding
from pfl_server.run.first_weights import Pretrained, begin_from, read_pretrained, take_weights
from pfl_server.run.frozen_checks import check_frozen_stays, explain_frozen
from pfl_server.run.memory_estimate import estimate, explain_end
from pfl_server.run.rehearsal import count_samples, rehearse
from pfl_server.settings import ServerSettings
from pfl_server.store.begin_from import Source
from pfl_server.store.run_store import Books, build_template
from pfl_server.store.state_folder import Runs

REHEARSED_HERE = 8 << 20
"""A model of so many bytes is rehearsed in the coordinator itself: a process of its own takes seconds to start."""
HELD_HERE = 256 << 20
"""If all that it holds meanwhile, layer by layer, is no more than this: pictures may be large and a network small."""
REHEARSAL = (sys.executable, "-P", "-m", "pfl_server.run.rehearsal")


def begin(runs: Runs, settings: ServerSettings, sites: Mapping[ClientId, Description]) -> Books:
    """Freeze a new run with these sites and begin it."""
    source = runs.source(settings.begin_from) if settings.begin_from else None
    spec = freeze(settings, sites, run=runs.next_id(settings, sites), source=source)
    if source is not None:
        source.check(spec)
        source.tell_changes(sites)
    return adopt(runs, settings, spec, sites)


def adopt(
    runs: Runs, settings: ServerSettings, spec: RunSpec, sites: Mapping[ClientId, Description]
) -> Books:
    """Begin the run that a specification pins, from the weights that it names."""
    return runs.adopt(spec, sites, settings, weights=take_weights(settings, spec))


class Beginning:
    """Begins a run with the sites that have gathered; after a full disk it can be asked once more."""

    def __init__(self, runs: Runs, settings: ServerSettings, pinned: RunSpec | None) -> None:
        self._runs, self._settings, self._pinned = runs, settings, pinned
        self._begun = False

    async def begin(self, sites: Mapping[ClientId, Description]) -> Books:
        """Freeze a new run, or take the specification that was given."""
        if self._pinned is not None:
            return await asyncio.to_thread(adopt, self._runs, self._settings, self._pinned, sites)
        if self._begun:
            # The disk was full in the middle: what has its name already is gone on with.
            found = await asyncio.to_thread(self._runs.unfinished, self._settings)
            if found is not None:
                return found
        self._begun = True
        return await asyncio.to_thread(begin, self._runs, self._settings, sites)


def freeze(
    settings: ServerSettings,
    sites: Mapping[ClientId, Description],
    *,
    run: str,
    source: Source | None = None,
) -> RunSpec:
    """Agree the model with the sites, or take that of the run to begin from; rehearse the method, pin everything."""
    pretrained = None if source is not None else read_pretrained(settings)
    wish = _wish(settings, pretrained)
    # A list that was fixed is every site's list: a site with another class was not let in.
    listed = {site: replace(one, classes=settings.classes or one.classes) for site, one in sites.items()}
    model = source.spec.model if source is not None else standardise_as(wish.prepared, agree(listed, wish))
    method = methods.load(settings.method)
    participation = settings.asks()
    participation.check_roster(sites)
    spec = RunSpec(
        id=run,
        method=method.name,
        settings=dump(method.settle(settings.set)),
        model=model,
        roster=tuple(sorted(sites)),
        **settings.pinned(),
        participation=participation,
        repeatable=settings.threads == 1 and settings.precision == "float32",
        versions=versions(model.backbone) | {REPORTS: "told"},
        chosen=_explain(model, wish, sites) if source is None else _explain_source(source),
        data={site: sites[site].data for site in sorted(sites) if sites[site].data},
        packages=plugins.pin(method.name, model.backbone),
        frozen=tuple(sorted(set(settings.freeze))) if source is None else source.spec.frozen,
        augment=channel_scaling.choose_steps(sites, wish, model),
        begins_from=None if source is None else source.beginning,
        digests=NEWEST,
    )
    spec = explain_frozen(spec)
    if pretrained is not None:
        spec = begin_from(pretrained, spec)
    _check_memory_format(spec)
    # One epoch shows every shape; a run of twenty must not cost its operator twenty before it begins.
    quick = replace(spec, settings={**spec.settings, "epochs": 1})
    spec = replace(spec, manifests=_rehearsed(quick))
    check_frozen_stays(spec)
    return pin_encoding(spec)


def _check_memory_format(spec: RunSpec) -> None:
    if spec.memory_format != "contiguous":
        with without_numbers():
            network = methods.build_participant(spec)
        check_arrangeable(network, spec.model.backbone, spec.memory_format)


def _wish(settings: ServerSettings, pretrained: Pretrained | None) -> Wish:
    """What the operator asks for; and where nothing is asked for, what the weights are for."""
    return Wish(
        settings.backbone or (pretrained.backbone if pretrained else ""),
        settings.image_size,
        settings.encoder_projector,
        pixel_range=settings.pixel_range,
        standardise=settings.standardise,
        words=settings.vocabulary,
        length=settings.length,
        prepared=_prepared(settings, pretrained),
        normalise=settings.normalise,
        augment=settings.augment,
        fewest_sites=settings.fewest_sites,
    )


def _prepared(settings: ServerSettings, pretrained: Pretrained | None) -> Prepared | None:
    """How pictures were prepared for the weights; another scaling that the operator names takes the place of theirs."""
    found = pretrained.prepared if pretrained else None
    if found is None or settings.normalise == "none":
        return found
    return replace(found, mean=(), deviation=())


def _explain(model: Model, wish: Wish, sites: Mapping[ClientId, Description]) -> dict[str, str]:
    """What was chosen by the sites' data, and why."""
    return (
        explain_backbone(model, wish)
        | input_choice.explain(sites, wish, shape=model.shape, features=len(model.mean))
        | weights_preprocessing.explain(wish.prepared, model)
        | channel_scaling.explain(sites, wish, model)
        | table_choice.explain(sites, model.table, standardise=wish.standardise == "agreed")
    )


def _explain_source(source: Source) -> dict[str, str]:
    run, number = source.spec.id, source.round
    return {"model": f"network, classes, input and first state are those of run {run} after round {number}"}


def _rehearsed(spec: RunSpec) -> dict[str, Manifest]:
    """The shape of every parcel. A rehearsal that takes much memory has a process of its own, whose end frees it."""
    method, samples = methods.load(spec.method), count_samples(spec)
    need = estimate(spec)
    if need.model <= REHEARSED_HERE and need.at(samples) <= HELD_HERE:
        return rehearse(method, spec, build_template(spec))
    done = subprocess.run(REHEARSAL, input=spec.to_json().encode(), stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise explain_end(spec, done.returncode, samples=samples)
    return RunSpec.from_json(done.stdout).manifests


def versions(backbone: str = "") -> dict[str, str]:
    """The versions that decide a result's bits besides the specification: equal bits are promised where they are equal.

    torchvision's version counts where the network is one of its own.
    """
    networks = {"torchvision": version("torchvision")} if backbone.startswith("torchvision:") else {}
    return networks | {
        "pfl": version("pfl-net"),
        "code": code_digest.digest(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }
