"""Finds and reads a site's `policy.toml`: an unknown section or rule is an error that names the nearest one."""

from __future__ import annotations

import hashlib
import pkgutil
import tomllib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any  # what TOML may hold

from pfl_client.policy.rules import SECTIONS, Joining, Metrics, Policy, Runs, Uploads
from pfl_common.app import plugins
from pfl_common.app.config import settle
from pfl_common.errors import SettingError, nearest

FILE = "policy.toml"


def find(named: Path | None, *folders: Path) -> Path | None:
    """The file that was named, else that of the first of these folders that has one."""
    if named is not None:
        return named
    return next((folder / FILE for folder in folders if (folder / FILE).exists()), None)


def read(file: Path | None) -> Policy:
    """The rules of a file; without one, those that allow what was always done."""
    if file is None:
        return Policy()
    content = _read_bytes(file)
    given = _parse(file, content)
    for name, table in given.items():
        if not isinstance(table, Mapping):
            raise SettingError(
                f"{file}: {name[:80]} stands outside a section",
                expected=f"a rule below one of [{'], ['.join(SECTIONS)}]",
                advice=_place(name),
            )
        if name not in SECTIONS:
            raise SettingError(f"{file} has a section [{name[:80]}]", expected=nearest(name[:80], SECTIONS))
    told = {name: f"{file}, [{name}]" for name in SECTIONS}
    runs = settle(Runs, given.get("runs", {}), what=told["runs"])
    uploads = settle(Uploads, given.get("uploads", {}), what=told["uploads"])
    joining = settle(Joining, given.get("joining", {}), what=told["joining"])
    metrics = settle(Metrics, given.get("metrics", {}), what=told["metrics"])
    _check_methods(file, runs, named="methods" in given.get("runs", {}))
    return Policy(runs, uploads, joining, metrics, file.absolute(), hashlib.sha256(content).hexdigest())


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise SettingError(
            f"the policy {file} cannot be read: {error.strerror}",
            expected="a file that this user may read",
            advice="correct --policy, or mend the file's rights: without its policy the site does not start",
        ) from None


def _parse(file: Path, content: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"the policy {file} is not TOML: {error}") from None
    except RecursionError:
        raise SettingError(f"the policy {file} is not TOML: it is nested too deeply") from None


def _place(name: str) -> str:
    """The section that has a rule of this name."""
    owner = next((section for section, kind in SECTIONS.items() if name in kind.__dataclass_fields__), "")
    return f"write it below [{owner}]" if owner else ""


def _check_methods(file: Path, runs: Runs, *, named: bool) -> None:
    if named and not runs.methods:
        raise SettingError(
            f"{file}, [runs]: methods is an empty list: no run could ever begin here",
            expected="names of methods, or no such line to allow all",
        )
    known = list_methods()
    for name in runs.methods:
        if name not in known:
            raise SettingError(
                f"{file}, [runs]: there is no method {name[:80]!r}", expected=nearest(name[:80], known)
            )


def list_methods() -> tuple[str, ...]:
    """The methods there are, found without loading them: the daemon has no torch."""
    room = find_spec("pfl_common")
    folders = [f"{folder}/methods" for folder in (room.submodule_search_locations or ())] if room else []
    own = sorted(info.name for info in pkgutil.iter_modules(folders))
    return (*own, *plugins.names("method"))
