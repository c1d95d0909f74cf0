"""Checks a comparison before anything is trained: data, methods, settings, networks, places to write to."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pfl_client import data as site_data
from pfl_client.trainer_process.api import DataFolder
from pfl_common import methods
from pfl_common.app.config import dump, settle
from pfl_common.errors import DataError, Refused, RunFailed, SettingError, UserError, nearest
from pfl_common.learning.method import LocalData
from pfl_common.models.without_numbers import without_numbers
from pfl_common.spec.run import ClientId, Description, RunSpec
from pfl_deploy.comparison.kept import Circumstances
from pfl_deploy.comparison.plan import Comparison, Contestant, Trial
from pfl_deploy.comparison.worker import run_settings
from pfl_deploy.simulation.simulate import find_sites, name_sites
from pfl_server.decisions.model_choice import fits
from pfl_server.run.setting_checks import check_words
from pfl_server.run.specification import freeze, versions
from pfl_server.settings import ServerSettings


@dataclass(frozen=True)
class Held:
    """The number of a site's training samples, and how many of them are held back for choosing."""

    back: int
    of: int


@dataclass(frozen=True)
class Checked:
    """A comparison that has passed all checks."""

    circumstances: Circumstances
    held: Mapping[ClientId, Held]
    """Sites without a validation part of their own; empty where nothing is to choose."""
    specs: Mapping[str, RunSpec]
    """What each contestant's runs will be, by name."""

    def say_held(self) -> str:
        """Words on the samples held back: how many, where, and that no run trains on them."""
        if not self.held:
            return ""
        share = f"{100 * self.circumstances.hold_out:g} %"
        sites = ", ".join(f"{site} {held.back} of {held.of}" for site, held in self.held.items())
        return (
            f"no validation part at {len(self.held)} of {len(self.circumstances.data)} sites: {share} of each class of "
            f"their training samples is held back for choosing, the same ones for every contestant and seed, and left "
            f"out of training in all runs, the reported ones too ({sites})"
        )


def check(plan: Comparison, data: Path) -> Checked:
    """Look at every site's data, build every contestant with every value to try; the first that cannot be is said."""
    sites = name_sites(find_sites(data))
    folders = {site: DataFolder(path, site, device="cpu") for site, path in sites.items()}
    described = {site: _describe(folder) for site, folder in folders.items()}
    specs = {
        contestant.name: _check_contestant(plan, contestant, described) for contestant in plan.contestants
    }
    first = specs[plan.contestants[0].name]
    share = plan.hold_out if plan.chooses else 0.0
    held: dict[ClientId, Held] = {}
    for site, folder in folders.items():
        local = _load(replace(folder, hold_out=share), first)
        if plan.chooses and (found := _check_parts(local, folder, first)):
            held[site] = found
    fingerprints = {site: description.data for site, description in described.items()}
    weights = first.weights.sha256 if first.weights else ""
    return Checked(Circumstances(fingerprints, versions(), share if held else 0.0, weights), held, specs)


def check_place(file: Path | None, option: str) -> None:
    """A result that has no place to lie is known before hours of training."""
    if file is None:
        return
    if file.is_dir() or not file.parent.is_dir():
        seen = "a folder" if file.is_dir() else f"below {file.parent}, which is no folder"
        raise SettingError(f"{option} {file} is {seen}", expected="a file in a folder that is there")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise SettingError(f"{option} {file} may not be written to", expected="a file this user may write to")


def check_folder(folder: Path | None, option: str) -> None:
    """The same of a folder, which is made."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(
            f"{option} {folder} cannot be made: {error.strerror}", expected="a folder this user may write to"
        ) from None
    if not os.access(folder, os.W_OK):
        raise SettingError(
            f"{option} {folder} may not be written to", expected="a folder this user may write to"
        )


def _describe(folder: DataFolder) -> Description:
    try:
        return site_data.describe(folder)
    except DataError as error:
        raise _at(folder.site, error) from None


def _load(folder: DataFolder, spec: RunSpec) -> LocalData:
    try:
        return site_data.load(folder, spec)
    except DataError as error:
        raise _at(folder.site, error) from None


def _at(who: str, error: UserError) -> UserError:
    is_named = re.search(rf"(?<!\w){re.escape(who)}(?!\w)", error.seen)
    seen = error.seen if is_named else f"{who}: {error.seen}"
    return type(error)(seen, expected=error.expected, advice=error.advice)


def _check_parts(local: LocalData, folder: DataFolder, spec: RunSpec) -> Held | None:
    """A site must have samples to be measured on; gives what is held back where it has no validation part."""
    if not len(local.test):
        raise DataError(
            f"{folder.site} has no test samples",
            expected="a test part at every site: its accuracy is what is compared",
            advice="divide its samples into train and test",
        )
    if not len(local.validation):
        raise DataError(
            f"{folder.site} has {len(local.train)} training samples and no validation part",
            expected="two samples of a class or more, so that some can be held back",
            advice="give it more samples, or a validation part of its own",
        )
    whole = len(_load(folder, spec).train)
    return Held(whole - len(local.train), whole) if len(local.train) < whole else None


def _check_contestant(
    plan: Comparison, contestant: Contestant, sites: Mapping[ClientId, Description]
) -> RunSpec:
    """The specification its runs will have, with its first settings."""
    try:
        candidates = plan.candidates(contestant)
        settings = [
            _settle(plan, Trial(contestant, one, plan.seeds[0], plan.rounds), sites) for one in candidates
        ]
        spec = freeze(settings[0], sites, run="check")
        for site, description in sites.items():
            fits(description, spec.model, site)
        for other in settings[1:]:
            _build(replace(spec, settings=dump(methods.load(spec.method).settle(other.set))))
    except UserError as error:
        raise _at(contestant.name, error) from None
    except (Refused, RunFailed) as error:
        raise DataError(f"{contestant.name}: {error}", expected="sites that can train together") from None
    return spec


def _settle(plan: Comparison, trial: Trial, sites: Mapping[ClientId, Description]) -> ServerSettings:
    server = {**run_settings(trial.server(plan.common)), "sites": len(sites)}
    settings = settle(ServerSettings, server, what="[common]")
    check_words(settings)
    for name in settings.asks().fixed:
        if name not in sites:
            raise SettingError(f"participation names {name!r}", expected=nearest(name, sites))
    return settings


def _build(spec: RunSpec) -> None:
    """Both halves, without their numbers."""
    with without_numbers():
        methods.build_participant(spec)
    methods.load(spec.method).build_server(spec)
