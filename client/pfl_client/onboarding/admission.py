"""Admits a site to a federation: by invitation, or as the same user on the coordinator's machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path

import structlog

from pfl_client.connection.link import NotAdmitted, Unreachable
from pfl_client.onboarding import enrolment
from pfl_client.run_folder.audit import Audit
from pfl_client.run_folder.folder_lock import FolderLock
from pfl_client.settings import ClientSettings
from pfl_common.errors import DataError, Refused, SettingError, StateError, Unavailable, UserError
from pfl_common.files import atomic
from pfl_common.identity import (
    IdentityError,
    Invitation,
    Keyring,
    check_site_name,
    discovery,
    keep_name,
    read_join_file,
    site_name,
    tell_fingerprint,
)
from pfl_common.identity.key_place import check_key_files
from pfl_common.spec.run import Json

log = structlog.get_logger("pfl.site")

_OTHER_NAME = "the invitation is for a site of another name than the data folder's"
_OTHER_SITES = (
    "nothing if both belong together; if not, stop pfl-client, start it with this site's own join file, "
    "and ask the operator for: pfl invite {name} --again"
)
_ONE_NAME = "stop the other one, or give this site another name with --name"
_ONE_INVITATION = "stop the other one; a second site needs an invitation of its own: pfl invite NAME"
_OTHER_KEYS = "other_keys"
_KEYS_NOT_TAKEN = (_OTHER_KEYS, "card", "revoked", "not_in_the_run")
"""Refusals that may mean: this site was let in with other keys since, its coordinator is an older copy, or the operator
has revoked its keys or removed it. A new invitation helps.
"""
_WAITING = "waiting"
ASK_SECONDS = 5.0
"""How often a site asks that waits to be approved."""
_KEYS, _NEW_KEYS = "keys", "keys.new"
_CLAIM = "data.txt"
"""In a site's folder: whose data its state is of."""
BEFORE_ANY_LAST_DAY = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Admitted:
    """A site with its certificate: its coordinator's address, its own folder for that federation, its keys."""

    address: str
    folder: Path
    keyring: Keyring


class Admission:
    """One site's admission, step by step."""

    def __init__(self, settings: ClientSettings, data: Path) -> None:
        self._settings, self._data = settings, data
        self.name = check_site_name(settings.name) if settings.name else site_name(data)
        self.door: tuple[str, bytes] | None = None
        """Where the coordinator shows its certificate to everybody, and the authority that signed it."""
        self._said: list[Callable[[Audit], None]] = []
        self.was_let_in = False
        """Before this start: the address it has was right once."""

    def _hear(self, call: str, body: bytes, size: int, fields: Callable[[], dict[str, Json]]) -> None:
        self._said.append(partial(_say_again, call, body, size, fields()))

    def list_said(self, audit: Audit) -> None:
        """List what was said to be let in, which is done before the site's folder is this process's own."""
        for again in self._said:
            again(audit)
        self._said.clear()

    def settle_name(self) -> str:
        """Settle this site's name before any call; an invitation determines it."""
        if self._settings.join is not None:
            invited = read_join_file(self._settings.join, now=BEFORE_ANY_LAST_DAY).site
            self._check_invited(invited)
            self.name = invited
        return self.name

    async def identify(self) -> Admitted:
        """Who am I, and who is the coordinator: from an invitation, or from this machine's own coordinator."""
        now = datetime.now(UTC)
        if self._settings.join is not None:
            return await self._identify_invited(self._settings.join, now)
        found = await asyncio.to_thread(discovery.find, self._settings.server)
        self.door = (found.addresses.enrolment, found.ca_pem)
        self._check_new(self._settings.state_folder / found.federation_id)
        folder = self._own_folder(found.federation_id)
        keyring = await asyncio.to_thread(self._open_keys, folder)
        if not keyring.enrolled or keyring.expired(now):
            await self._enrolled(
                keyring, lambda: enrolment.enrol_same_user(keyring, found, self.name, tell=self._hear)
            )
        return Admitted(found.addresses.control, folder, keyring)

    async def _identify_invited(self, join: Path, now: datetime) -> Admitted:
        # An invitation opens the door once; what else it says stays true after its last day.
        invitation = read_join_file(join, now=BEFORE_ANY_LAST_DAY)
        self._check_invited(invitation.site)
        self.name = invitation.site
        self.door = (invitation.addresses.enrolment, invitation.ca_pem)
        folder = self._own_folder(invitation.federation_id)
        keyring = await asyncio.to_thread(self._open_keys, folder)
        if not keyring.enrolled:
            self._compare_names()
        if not keyring.enrolled or keyring.expired(now):
            if keyring.enrolled and now > invitation.expires:
                keyring.check(now)
            redeemed = read_join_file(join, now=now)
            roots = self._settings.proxy_roots
            await self._enrolled(
                keyring, lambda: enrolment.enrol_invited(keyring, redeemed, tell=self._hear, roots=roots)
            )
        return Admitted(invitation.addresses.control, folder, keyring)

    def _open_keys(self, folder: Path) -> Keyring:
        """The keys of this very site: with another one's it would speak, and leave, in that one's name."""
        if not (folder / _KEYS).exists() and (folder / _NEW_KEYS).exists():
            os.rename(folder / _NEW_KEYS, folder / _KEYS)
        for kept in folder.glob(f"{_KEYS}*"):
            check_key_files(kept)
        keyring = Keyring.open(folder / _KEYS)
        if keyring.enrolled and keyring.name != self.name:
            raise StateError(
                f"the state folder {folder} holds the keys of the site {keyring.name}",
                expected=f"the keys of {self.name}, or none",
                advice="bring back this site's own folder, or move this one away: the site then enrols anew",
            )
        self.was_let_in = keyring.enrolled
        return keyring

    def _own_folder(self, federation: str) -> Path:
        folder = self._settings.state_folder / federation / self.name
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StateError(
                f"the state folder {folder} cannot be made: {error.strerror}",
                expected="a place where this user may write",
                advice="name another with --state",
            ) from None
        return folder

    def _check_new(self, sites: Path) -> None:
        """A folder has one name: who reaches it by another, as by a link to it, must not be a second site by that."""
        if self._settings.name or (sites / self.name / _CLAIM).exists():
            return
        for note in sorted(sites.glob(f"*/{_CLAIM}")):
            if _is_same(Path(note.read_text()), self._data):
                known = note.parent.name
                raise SettingError(
                    f"{self._data} takes part already, as the site {known}: it is the folder {self._data.resolve()}",
                    expected="one name for one data folder",
                    advice=f"to go on with that site's keys and model: --name {known}; "
                    f"to begin anew as another site: --name {self.name}",
                )

    def claim(self, folder: Path) -> None:
        """A folder keeps its name: another one that happens to be called alike must not go on with its state."""
        note = folder / _CLAIM
        before = Path(note.read_text()) if note.exists() else self._data
        named = bool(self._settings.name or self._settings.join)
        if not _is_same(before, self._data) and before.is_dir() and not named:
            raise SettingError(
                f"another data folder is already called {self.name} here: {before}",
                expected=f"a name of its own for {self._data}",
                advice=f"give it one: --name {self.name}_2; if both are the same site: --name {self.name}",
            )
        # What a link leads to, not the link: led elsewhere, it is another folder that is called alike.
        note.write_text(str(self._data.resolve()))

    async def enrol_anew(self, before: Admitted, refusal: NotAdmitted | Refused) -> Admitted:
        """Other keys for a site whose own are not taken, if its join file is one that these have not tried.

        Whatever goes wrong, the keys that are there stay; without such a file the refusal is raised again, in words
        that say how to come by one.
        """
        if refusal.code not in _KEYS_NOT_TAKEN:
            raise refusal
        invitation = self._find_untried(before.keyring)
        if invitation is None:
            raise _explain(refusal, self.name, before.folder) from None
        log.warning("the coordinator does not take this site's keys, enrolling anew", why=str(refusal))
        fresh = await asyncio.to_thread(Keyring.open, before.folder / _NEW_KEYS)
        await self._enrolled(fresh, lambda: self._redeem(invitation, fresh, before))
        aside = _exchange_keys(before.folder)
        log.warning("this site has new keys", old_keys_are_kept_in=str(aside))
        keyring = await asyncio.to_thread(self._open_keys, before.folder)
        return Admitted(invitation.addresses.control, before.folder, keyring)

    async def _redeem(self, invitation: Invitation, fresh: Keyring, before: Admitted) -> None:
        """Spend an invitation on new keys, which lie beside the old ones until they are taken."""
        roots = self._settings.proxy_roots
        try:
            await enrolment.enrol_invited(fresh, invitation, tell=self._hear, roots=roots)
        except NotAdmitted as refusal:
            # Ten wrong proofs lock the invitation that is in force: who is started again and again shows a file once.
            if refusal.code != _WAITING:
                before.keyring.note_tried(invitation.id)
            raise

    async def _enrolled(self, keyring: Keyring, enrol: Callable[[], Awaitable[None]]) -> None:
        """Enrol; while the operator has yet to approve these keys, ask again and again."""
        waiting = False
        while True:
            try:
                await enrol()
                return
            except NotAdmitted as refusal:
                if refusal.code != _WAITING:
                    # Its words say already what to do.
                    raise UserError(f"the coordinator did not take this site: {refusal}") from None
                if not waiting:
                    _tell_waiting(self.name, keyring)
                waiting = True
            except Unreachable as down:
                if not waiting:
                    raise Unavailable(
                        f"the coordinator's enrolment port does not answer: {down}",
                        expected="a running pfl-server, and a firewall that lets this machine out to it",
                    ) from None
            await asyncio.sleep(ASK_SECONDS)

    def _find_untried(self, keyring: Keyring) -> Invitation | None:
        """The invitation at hand, read anew; none if these keys came by it, or were refused with it already."""
        if self._settings.join is None:
            return None
        invitation = read_join_file(self._settings.join, now=BEFORE_ANY_LAST_DAY)
        fits = (invitation.federation_id, invitation.site) == (keyring.federation_id, self.name)
        if not fits or keyring.has_tried(invitation.id):
            return None
        return read_join_file(self._settings.join, now=datetime.now(UTC))

    def hold(self, admitted: Admitted) -> FolderLock:
        """Have the site's folder for oneself."""
        advice = _ONE_INVITATION if self._settings.join else _ONE_NAME
        return FolderLock(admitted.folder, "site.lock", advice=advice)

    def _compare_names(self) -> None:
        """Two sites' files are easily mixed up; but in a container every data folder is called alike."""
        shown = self._data.name
        if not self._settings.name and site_name(self._data) != self.name:
            advice = _OTHER_SITES.format(name=self.name)
            log.warning(_OTHER_NAME, site=self.name, data_folder=shown, what_to_do=advice)

    def _check_invited(self, invited: str) -> None:
        if self._settings.name and self._settings.name != invited:
            raise SettingError(
                f"--name is {self._settings.name!r}, the invitation is for {invited!r}",
                expected="the name that was invited",
                advice="leave --name out, or ask the operator for: pfl invite " + self._settings.name,
            )


def _say_again(call: str, body: bytes, size: int, fields: dict[str, Json], audit: Audit) -> None:
    audit.tell(call, body, size, lambda: fields)


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to one folder."""
    return one.resolve() == other.resolve()


def _tell_waiting(name: str, keyring: Keyring) -> None:
    log.warning(
        "waiting for the operator's approval",
        site=name,
        fingerprint=tell_fingerprint(keyring.fingerprint),
        what_to_do=f"read the fingerprint to the operator, who compares it and types: pfl approve {name}",
    )


def _exchange_keys(folder: Path) -> Path:
    """Put the new keys in force; gives where the old ones are now. A kill in between is mended by `_open_keys`."""
    aside = next(path for number in count(1) if not (path := folder / f"{_KEYS}.{number}").exists())
    os.rename(folder / _KEYS, aside)
    os.rename(folder / _NEW_KEYS, folder / _KEYS)
    atomic.settle(folder)
    return aside


def _explain(refusal: NotAdmitted | Refused, name: str, folder: Path) -> Exception:
    if refusal.code != _OTHER_KEYS:
        return refusal
    return IdentityError(
        f"the coordinator knows other keys of {name} than those in {folder / _KEYS}: {refusal}",
        expected="the keys that this site was last let in with",
        advice=f"if {name} runs elsewhere now, stop this one; if not, ask the operator for: "
        f"pfl invite {name} --again, and start pfl-client with that file: --join FILE",
    )


def find_data(settings: ClientSettings) -> Path:
    """The data folder that was named; it must be there."""
    if settings.data is None:
        raise SettingError(
            "no data folder was named", expected="--data FOLDER", advice="for example --data ./hospital_a"
        )
    folder = keep_name(settings.data)
    if not folder.is_dir():
        raise DataError(
            f"--data {settings.data} is no folder",
            expected="a folder with train and test data",
            advice="check the path",
        )
    return folder
