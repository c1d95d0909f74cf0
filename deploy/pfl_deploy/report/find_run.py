"""Finds a run by folder or id, and its sites' folders if they are at hand."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pfl_common.errors import SettingError
from pfl_common.identity import IdentityError, discovery

JOURNAL = "journal.sqlite"


@dataclass(frozen=True)
class Place:
    """A run's folder, and folders in which its sites' histories may lie."""

    run: Path
    sites: tuple[Path, ...] = ()


def find_run(word: str) -> Place:
    """A run's folder, a coordinator's state folder, a simulation's folder, or a run's id."""
    path = Path(word)
    folder = _inside(path) if path.is_dir() else _by_id(word)
    if folder is None:
        raise SettingError(
            f"there is no run {word}",
            expected="a run's folder (pfl-state/runs/RUN), its id, or the folder of a simulation",
            advice=f"known here: {', '.join(sorted(_known())) or 'no run'}",
        )
    return Place(folder, _sites_beside(folder))


def _inside(path: Path) -> Path | None:
    """The run a folder means: itself, the last one begun in a state folder, the one of a simulation."""
    if (path / JOURNAL).is_file():
        return path.resolve()
    for state in (path, path / "coordinator"):
        with suppress(OSError):
            run = state / "runs" / (state / "current").read_text().strip()
            if (run / JOURNAL).is_file():
                return run.resolve()
    return None


def _by_id(word: str) -> Path | None:
    return next((run.resolve() for name, run in _known().items() if name == word), None)


def _known() -> dict[str, Path]:
    """Runs below the state folder here, and those of this user's coordinator on this machine."""
    states = [Path("pfl-state")]
    with suppress(IdentityError, OSError):
        states.append(discovery.find(None).state_folder)
    return {
        file.parent.name: file.parent
        for state in reversed(states)
        for file in state.glob(f"runs/*/{JOURNAL}")
    }


def _sites_beside(run: Path) -> tuple[Path, ...]:
    """A simulation keeps its sites beside its coordinator: they have one owner."""
    kept = run.parents[1].parent / "sites"
    return (kept,) if run.parents[1].name == "coordinator" and kept.is_dir() else ()
