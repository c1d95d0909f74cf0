"""Finds a serving model: by its file, by a folder above it, or by the name of a site of this user."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pfl_client.settings import ClientSettings
from pfl_common.errors import SettingError, nearest

FILE = "serving.safetensors"
_SITE_DEPTHS = ("", "*/", "*/*/", "*/*/*/")
"""From a site's own folder up to the user's state directory, as `pfl audit` looks for its lists."""


def find_model(place: str | Path) -> Path:
    """The file of a model: that of the last run, where a site has several."""
    path = Path(place)
    if path.is_file():
        return path
    found = _below(path) if path.is_dir() else {}
    # A data folder is often called as its site, and lies where the user works.
    return _choose(found, str(place)) if found else _by_name(str(place))


def _below(folder: Path) -> dict[str, list[Path]]:
    """Models by site; all under an empty name if the folder belongs to one run or model."""
    for own in (folder / FILE, folder / "serving" / FILE):
        if own.is_file():
            return {"": [own]}
    found: dict[str, list[Path]] = {}
    for depth in _SITE_DEPTHS:
        for file in folder.glob(f"{depth}runs/*/serving/{FILE}"):
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
            expected=f"a file {FILE}, the folder of a site or of its run, or a site: {nearest(name, every)}",
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
