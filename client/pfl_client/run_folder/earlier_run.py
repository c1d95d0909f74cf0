"""The site's own state of the run that another run begins from: it stays where it is, and is only read.

The coordinator names that run; the site alone decides whether it goes on with its own state of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import structlog
from pydantic import ValidationError

from pfl_client.run_folder.vault_generations import Pointer, read_pointer_of
from pfl_common.errors import StateError
from pfl_common.spec.beginning import find_misfit
from pfl_common.spec.messages import Mark
from pfl_common.spec.run import ClientId, RunSpec

log = structlog.get_logger("pfl.site")


@dataclass(frozen=True)
class EarlierRun:
    """A run that this site took part in, as its vault has it."""

    folder: Path
    pointer: Pointer

    def marks(self) -> tuple[Mark, ...]:
        """The generations there are, newest first."""
        return tuple(generation.mark for generation in self.pointer.generations)

    def at(self, number: int) -> Path:
        """The state after a committed round of that run."""
        for generation in self.pointer.generations:
            file = self.folder / "generations" / generation.file
            if generation.mark.round == number and file.is_file():
                return file
        raise StateError(
            f"the coordinator counts on this site's state of round {number} of run {self.folder.name}, which is not in "
            f"{self.folder}",
            expected="the state that this site had when it asked for work",
            advice="bring that folder back; without it this site begins as a new one",
        )


def find_earlier(runs: Path, spec: RunSpec, site: ClientId) -> EarlierRun | None:
    """What this site has of the run that a run begins from; None where it begins as a new site."""
    named = spec.begins_from
    if named is None or not (runs / named.run / "vault.json").exists():
        return None
    folder = runs / named.run
    try:
        pointer, before = read_pointer_of(folder), RunSpec.from_json((folder / "spec.json").read_bytes())
    except (OSError, ValidationError):
        _tell_unused(folder, "its files cannot be read")
        return None
    owner = pointer.owner
    if (owner.run, owner.spec, owner.site) != (named.run, named.spec, site) or before.hash != named.spec:
        _tell_unused(folder, "it is another run of that name")
        return None
    if misfit := find_misfit(before, spec):
        # The coordinator has looked too; but what stays at this site is for this site to see to.
        _tell_unused(folder, misfit)
        return None
    return EarlierRun(folder, pointer)


def _tell_unused(folder: Path, why: str) -> None:
    said = (
        "this site cannot go on with its state of the run that this one begins from, and begins as a new one"
    )
    log.warning(said, run=folder.name, why=why)
