"""Verified updates on disk, until no checkpoint that is kept refers to them."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pfl_common import codec
from pfl_common.errors import Refused
from pfl_common.halves import Up
from pfl_common.run import ClientId, Header, Manifest, RunSpec, manifest_hash, parcel_key
from pfl_common.tensors import State


@dataclass(frozen=True)
class Update:
    """One site's verified update, read from its file when it is needed and let go after."""

    id: str
    path: Path
    header: Header
    spec: RunSpec

    def up(self) -> Up:
        """The whole update; its tensors look into the mapped file."""
        manifest = self.spec.manifest(self.header.kind, self.header.phase, "up")
        return codec.unflatten(codec.decode(_mapped(self.path), manifest, self.header.groups))

    def load(self) -> State:
        """What the site showed: this is what a server half may keep."""
        return self.up().shown


class Spool:
    """A folder of updates: `<id>.raw` with the bytes and `<id>.json` with the header."""

    def __init__(self, folder: Path, spec: RunSpec) -> None:
        self._folder, self._spec = folder, spec
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def admit(self, site: ClientId, parcel: Path, header: Header) -> str:
        """Check a whole upload and take its file over; gives the id it is counted under."""
        self._check(site, parcel, header)
        name = f"{header.round:06d}-{header.attempt}-{site}"
        (self._folder / f"{name}.json").write_text(header.to_json())
        os.replace(parcel, self._folder / f"{name}.raw")
        return name

    def open(self, name: str) -> Update:
        """An update by its id."""
        header = Header.from_json((self._folder / f"{name}.json").read_text())
        return Update(name, self._folder / f"{name}.raw", header, self._spec)

    def holds(self, name: str) -> bool:
        """Whether both files of an update are here."""
        return all((self._folder / f"{name}.{end}").exists() for end in ("raw", "json"))

    def whole(self, name: str, digest: str) -> bool:
        """Whether an update is here as it was received: files are not synced, a power loss can tear them."""
        if not self.holds(name):
            return False
        try:
            Header.from_json((self._folder / f"{name}.json").read_bytes())
        except ValueError:
            return False
        with (self._folder / f"{name}.raw").open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == digest

    def sweep(self, keep: Iterable[str]) -> int:
        """Remove all updates but those named; gives the bytes freed."""
        wanted, freed = set(keep), 0
        for path in sorted(self._folder.iterdir()):
            if path.suffix in (".raw", ".json") and path.stem not in wanted:
                freed += path.stat().st_size
                path.unlink()
        return freed

    def _check(self, site: ClientId, parcel: Path, header: Header) -> None:
        manifest = upward(self._spec, header)
        if header.sender != site or header.run != self._spec.id or header.direction != "up":
            raise Refused("header", f"the header says {header.sender} in run {header.run}: expected {site}")
        if header.manifest != manifest_hash(manifest):
            raise Refused("manifest", f"{site} wrote its update by another manifest than the run's")
        state = codec.decode(_mapped(parcel), manifest, header.groups)
        codec.check_finite(state)
        try:
            codec.unflatten(state)
        except (KeyError, TypeError, ValueError) as error:
            raise Refused("manifest", str(error)) from None


def upward(spec: RunSpec, header: Header) -> Manifest:
    """What an upload with this header consists of; a header is a peer's word and may name what is not."""
    manifest = spec.manifests.get(parcel_key(header.kind, header.phase, "up"))
    if manifest is None:
        raise Refused("header", f"{header.sender} offers an upload of a {header.kind} task")
    return manifest


def _mapped(path: Path) -> memoryview:
    """A private mapping: pages come from the file when they are touched and cost no memory of their own."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            return memoryview(bytearray())
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
