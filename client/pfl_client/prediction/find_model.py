"""Finds a serving model: by its file, by a folder above it, or by the name of a site of this user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from pfl_client.settings import ClientSettings
from pfl_common.errors import SettingError, nearest

Which: TypeAlias = Literal["last", "best"]
"""The model after a run's last round, or that of the round which was best on the site's validation part."""
FILES: Mapping[str, str] = {"last": "serving.safetensors", "best": "best.safetensors"}
_SITE_DEPTHS = ("", "*/", "*/*/", "*/*/*/")
"""From a site's own folder up to the user's state directory, as `pfl audit` looks for its lists."""


def find_model(place: str | Path, which: Which = "last") -> Path:
    """The file of a model: that of the last run, where a site has several. A file that is named is that model."""
    path = Path(place)
    if path.is_file():
        return _of_file(path, which)
    found = _below(path) if path.is_dir() else {}
    # A data folder is often called as its site, and lies where the user works.
    last = _choose(found, str(place)) if found else _by_name(str(place))
    return last if which == "last" else _beside(last)


def _of_file(path: Path, which: Which) -> Path:
    """Who names a file means it; only the last model of a site has the best one beside it."""
    if which == "last" or path.name == FILES["best"]:
        return path
    if path.name != FILES["last"]:
        raise SettingError(
            f"{path} is one model: there is no best one to choose",
            expected="a site, its folder or a run's with --which best, or the file of a model alone",
        )
    return _beside(path)


def _beside(last: Path) -> Path:
    """The best model of the same run: one of another run would be of another model, perhaps of another method."""
    best = last.with_name(FILES["best"])
    if not best.is_file():
        raise SettingError(
            f"beside {last} lies no {FILES['best']}: the run kept the last model alone",
            expected="a run with --keep best, and a site with a validation part",
            advice="take the last model (--which last); to have both, begin a run with pfl-server --keep best",
        )
    return best


def _below(folder: Path) -> dict[str, list[Path]]:
    """Models by site; all under an empty name if the folder belongs to one run or model."""
    last = FILES["last"]
    for own in (folder / last, folder / "serving" / last):
        if own.is_file():
            return {"": [own]}
    found: dict[str, list[Path]] = {}
    for depth in _SITE_DEPTHS:
        for file in folder.glob(f"{depth}runs/*/serving/{last}"):
            found.setdefault(_site_folder(file).name, []).append(file)
    return found


def _site_folder(file: Path) -> Path:
    return file.resolve().parents[3]


def _by_name(name: str) -> Path:
    state = ClientSettings().state_folder
    every = _below(state) if state.is_dir() else {}
    if name not in every:
        raise SettingError(
            f"there is no serving model at {name}, and no site of that name below {state}",
            expected=f"a file {FILES['last']}, the folder of a site or of its run, or a site: {nearest(name, every)}",
            advice="a site has its model when its run is over; its log says where the model lies",
        )
    return _choose({name: every[name]}, name)


def _choose(found: dict[str, list[Path]], place: str) -> Path:
    if len(found) > 1:
        raise SettingError(
            f"below {place} are models of {len(found)} sites: {', '.join(sorted(found))}",
            expected="one of them",
            advice="name the site's own folder, or the file of its model",
        )
    return _newest(next(iter(found.values())))


def _newest(files: Iterable[Path]) -> Path:
    return max(files, key=lambda file: (file.stat().st_mtime_ns, str(file)))
