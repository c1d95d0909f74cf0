"""Verified updates on disk, as they came (sealed, if from another machine), until no checkpoint needs them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakSet

import structlog
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from pfl_common.errors import Refused
from pfl_common.files import atomic
from pfl_common.files.recycler import Blanks
from pfl_common.spec.manifest import Manifest, decode_manifest, manifest_hash
from pfl_common.spec.messages import Offer
from pfl_common.spec.run import ClientId, Header, RunSpec, parcel_key
from pfl_common.tensors import codec
from pfl_common.tensors.change_norm import measure_change
from pfl_common.tensors.encoded import open_plain
from pfl_common.tensors.layout import Source
from pfl_common.tensors.state import State
from pfl_common.tensors.update import SHOW, Up, unflatten
from pfl_common.tensors.update_check import Check, check_update
from pfl_server.envelopes import Envelopes, Letter
from pfl_server.store.arriving_update import ArrivingUpdate
from pfl_server.store.update_terms import UpdateTerms

log = structlog.get_logger("pfl.spool")

REUSED = 1 << 30
"""Bytes of updates that stay on the disk to be written over: their keys are gone with their notes."""

QUICK = 64 << 20
"""Uploads of up to so many bytes are checked while they come: what a larger one is compared with may have to be read
from a disk, for which nobody else should wait.
"""
WATCHED = 16
"""Uploads that are checked at the same time while they come: each needs memory for a few blocks."""

_OFFER: TypeAdapter[Offer] = TypeAdapter(Offer)


@dataclass(frozen=True)
class Update:
    """One site's verified update; its numbers are read from its file, and decoded, when needed."""

    id: str
    path: Path
    header: Header
    crossing: Manifest
    """As it lies in the file."""
    letter: Letter = field(repr=False)
    base: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    """What its changes are added to, by the names of its parcel."""

    @property
    def manifest(self) -> Manifest:
        """As it is read."""
        return decode_manifest(self.crossing)

    @contextmanager
    def source(self) -> Iterator[Source]:
        """Its content, to be read at any place."""
        with self.letter.source(self.path) as source:
            yield open_plain(source, self.crossing, self.header.groups, self.base)

    def up(self) -> Up:
        """The whole update, in memory of its own."""
        with self.source() as source:
            content = bytearray(source.size)
            source.read_into(0, memoryview(content))
        return unflatten(codec.decode(content, self.manifest, self.header.groups))

    def load(self) -> State:
        """The tensors that the site showed, which a server half may keep."""
        with self.source() as source:
            return codec.read(source, self.manifest, self.header.groups, SHOW)


class Spool:
    """A folder of updates: `<id>.raw` holds the bytes and `<id>.json` their description."""

    def __init__(
        self, folder: Path, spec: RunSpec, envelopes: Envelopes, terms: UpdateTerms | None = None
    ) -> None:
        self._folder, self._spec, self._envelopes = folder, spec, envelopes
        self.terms = terms or UpdateTerms(spec)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.blanks = Blanks(folder / "blanks", most=REUSED)
        """Updates that are not needed any more; the next ones are written over them."""
        self._watched: WeakSet[ArrivingUpdate] = WeakSet()
        self._held: dict[str, tuple[Offer, Letter]] = {}
        """Letters that are open until their update is, or the round is over; in memory only."""
        self._changes: dict[str, float] = {}
        """How far the updates went that came in this round, as far as it was measured when they came."""

    def watch(self, offer: Offer, letter: Letter) -> ArrivingUpdate | None:
        """Begin to check an upload while it comes; None where it is better read when it is all there."""
        header, manifest = offer.header, upward(self._spec, offer.header)
        if offer.blob.size > QUICK or decode_manifest(manifest) is not manifest:
            return None
        if len(self._watched) >= WATCHED or (frames := letter.arriving()) is None:
            return None
        try:
            size = codec.size_of(manifest, header.groups)
            watched = ArrivingUpdate(frames, Check(size, manifest, header.groups, self.terms.of(header)))
        except Refused:
            return None
        self._watched.add(watched)
        return watched

    def admit(
        self,
        site: ClientId,
        parcel: Path,
        offer: Offer,
        letter: Letter | None = None,
        watched: ArrivingUpdate | None = None,
    ) -> str:
        """Check a whole upload, unless it was while it came, and take its file over; gives the id it is counted
        under.
        """
        change = self._check(site, parcel, offer, letter, watched)
        name = _name(offer.header)
        self._note(name).write_bytes(_OFFER.dump_json(offer))
        os.replace(parcel, self._file(name))
        self._changes[name] = change
        return name

    def change_of(self, name: str) -> float:
        """How far an update went from what its site was sent; read once more if it came in an earlier life."""
        if name not in self._changes:
            update = self.open(name)
            with update.source() as source:
                sent = self.terms.compared(update.header.sender)
                self._changes[name] = measure_change(source, update.manifest, update.header.groups, sent)
        return self._changes[name]

    def open(self, name: str) -> Update:
        """An update by its id."""
        # What was just taken in is known here, to the letter; all else is read, and its seal opened.
        offer, letter = self._held.pop(name, (None, None))
        if offer is None or letter is None:
            offer = self._offer(name)
            letter = self._envelopes.keep(offer)
        header, crossing = offer.header, upward(self._spec, offer.header)
        is_plain = decode_manifest(crossing) is crossing
        base = {} if is_plain else self.terms.compared(header.sender)
        return Update(name, self._file(name), header, crossing, letter, base)

    def hold(self, name: str, offer: Offer, letter: Letter) -> None:
        """Keep the letter of an update for the next `open` of it."""
        self._held[name] = (offer, letter)

    def let_letters_go(self) -> None:
        """Let go of the letters of updates that nobody has opened, and of how far updates went: the round is over."""
        self._held.clear()
        self._changes.clear()

    def holds(self, name: str) -> bool:
        """Whether both files of an update are here."""
        return self._file(name).exists() and self._note(name).exists()

    def whole(self, name: str, digest: str) -> bool:
        """Whether an update is here as it was received: files are not synced, a power loss can tear them."""
        return self.intact(name) and self._offer(name).blob.digest == digest

    def intact(self, name: str) -> bool:
        """Whether both files of an update are here and belong together."""
        if not self.holds(name):
            return False
        try:
            self._envelopes.keep(self._offer(name)).check(self._file(name))
        except (ValidationError, Refused):
            return False
        return True

    def sync(self, names: Iterable[str]) -> None:
        """Make updates last: once a checkpoint refers to them nobody can be asked for them again."""
        files = [file for name in sorted(set(names)) for file in (self._file(name), self._note(name))]
        for file in (*files, *([self._folder] if files else [])):
            atomic.sync(file)

    def sweep(self, keep: Iterable[str]) -> int:
        """Let all updates go but those named; gives their bytes."""
        return self.free(self.unwanted(keep))

    def files(self) -> list[Path]:
        """The files of all updates, those that are about to be taken in among them."""
        # By their names: paths take as long to be sorted as all that is done to their files.
        return [
            self._folder / name
            for name in sorted(os.listdir(self._folder))
            if name.endswith((".raw", ".json"))
        ]

    def unwanted(self, keep: Iterable[str]) -> list[Path]:
        """The files of all updates but those named."""
        wanted = set(keep)
        return [path for path in self.files() if path.stem not in wanted]

    def free(self, files: Iterable[Path]) -> int:
        """Let files go, large ones to be written over; gives their bytes. One that can neither be kept for that nor
        removed stays, to be tried again.
        """
        freed = 0
        for path in files:
            try:
                size = path.stat().st_size
                if not self.blanks.give(path, size):
                    path.unlink()
                freed += size
            except OSError as error:
                log.warning("an update that is not needed any more stays", file=path.name, why=error.strerror)
        return freed

    def _offer(self, name: str) -> Offer:
        """The offer of an update, which has to be the one that the name says: another one, of the same site and as
        genuine, belongs to another round.
        """
        offer = _read(self._note(name))
        # Those taken along from another run have that run's name before theirs.
        run, _, own = name.rpartition("~")
        if _name(offer.header) != own or (not run and offer.header.run != self._spec.id):
            raise Refused("header", f"the update {name} holds {_name(offer.header)[:80]!r}; expected: itself")
        return offer

    def _check(
        self,
        site: ClientId,
        parcel: Path,
        offer: Offer,
        letter: Letter | None,
        watched: ArrivingUpdate | None,
    ) -> float:
        header = offer.header
        manifest = upward(self._spec, header)
        if header.sender != site or header.run != self._spec.id or header.direction != "up":
            raise Refused("header", f"the header says {header.sender} in run {header.run}: expected {site}")
        if header.manifest != manifest_hash(manifest):
            raise Refused("manifest", f"{site} wrote its update by another manifest than the run's")
        if watched is not None and (change := watched.find_change()) is not None:
            return change
        # Looked at as it is verified, in one pass; nothing of it is used before both have come to their end.
        with (letter or self._envelopes.keep(offer)).reading(parcel) as source:
            terms = self.terms.of(header)
            plain = open_plain(source, manifest, header.groups, terms.sent)
            return check_update(plain, decode_manifest(manifest), header.groups, terms)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.raw"

    def _note(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def _name(header: Header) -> str:
    """The id that an update with this header is counted under."""
    return f"{header.round:06d}-{header.attempt}-{header.sender}"


def _read(note: Path) -> Offer:
    return _OFFER.validate_json(note.read_bytes())


def upward(spec: RunSpec, header: Header) -> Manifest:
    """The tensors of an upload with this header; a header comes from a peer and may name groups that do not exist."""
    manifest = spec.manifests.get(parcel_key(header.kind, header.phase, "up"))
    if manifest is None:
        raise Refused("header", f"{header.sender} offers an upload of a {header.kind} task")
    return manifest
