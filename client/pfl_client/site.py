"""One site process: its identity, its line, its trainer, its health port, until the run is over or a signal comes."""

from __future__ import annotations

import asyncio
import shutil
import signal
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from pathlib import Path

import structlog
from cryptography import x509

from pfl_client import clocks, enrolment
from pfl_client.bench import DataFolder, TrainerLost
from pfl_client.daemon import Daemon
from pfl_client.declined import NO_ROOM
from pfl_client.dialling import Stranger
from pfl_client.ipc import TrainerProcess
from pfl_client.link import NotAdmitted, Traffic, Unreachable
from pfl_client.metrics import HealthServer, SiteMetrics, Surroundings
from pfl_client.moving import MovingLink
from pfl_client.sealed import SealedEnvelopes
from pfl_client.settings import ClientSettings
from pfl_client.transport import GrpcLink
from pfl_client.vault import FolderLock
from pfl_common.errors import (
    DataError,
    PflError,
    RunFailed,
    SettingError,
    StateError,
    Unavailable,
    UserError,
)
from pfl_common.identity import IdentityError, Keyring, check_site_name, discovery, read_join_file, site_name
from pfl_common.messages import Over

log = structlog.get_logger("pfl.site")

RENEW_SECONDS = 3600.0
BEFORE_ANY_LAST_DAY = datetime.min.replace(tzinfo=UTC)


class Site:
    """Everything a site process has, put together."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._data = _data_folder(settings)
        self.name = check_site_name(settings.name) if settings.name else site_name(self._data)
        self._stopping = asyncio.Event()
        self._daemon: Daemon | None = None
        self._door: tuple[str, bytes] | None = None
        """Where the coordinator shows its certificate to everybody, and the authority that signed it."""
        self._was_let_in = False
        """Before this start: the address it has was right once."""

    async def serve(self) -> Over | None:
        """Take part until the end of the run; None when a signal ended it."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._stopping.set)
        # From a service manager or a cluster: this site comes back, here or elsewhere with the same state.
        loop.add_signal_handler(signal.SIGTERM, self._pause)
        stopped = asyncio.create_task(self._stopping.wait())
        story = asyncio.create_task(self._story())
        try:
            await asyncio.wait({story, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return await story if story.done() else None
        except NotAdmitted as refusal:
            raise _in_words(refusal) from None
        except UserError as error:
            raise await self._reconsider(error) from None
        except OSError as error:
            raise _lacks_room(error, self._settings.state_folder) from error
        except TrainerLost as lost:
            raise Unavailable(
                f"the trainer ended twice while it read the data: {lost}",
                expected="a trainer that comes up and reads the data folder",
                advice="look at its last words in the log above, and at this machine's free memory",
            ) from None
        finally:
            stopped.cancel()
            story.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await story

    def _pause(self) -> None:
        if self._daemon is not None:
            self._daemon.comes_back = True
        self._stopping.set()

    async def _story(self) -> Over:
        address, folder, keyring = await self._identify()
        lock = FolderLock(folder, "site.lock")
        self._claim(folder / "data.txt")
        folder_of_data = DataFolder(
            self._data, self.name, strict=self._settings.strict_data, device=self._settings.device
        )
        try:
            traffic = Traffic()
            async with aclosing(self._link(address, keyring, traffic)) as link:
                bench = TrainerProcess(folder / "trainer", warm=self._settings.trainer == "warm")
                envelopes = SealedEnvelopes(keyring)
                stays = self._settings.stay
                daemon = Daemon(
                    folder_of_data, link=link, bench=bench, envelopes=envelopes, state=folder, stays=stays
                )
                self._daemon = daemon
                numbers = SiteMetrics(daemon.watch, traffic, lambda: _look_around(keyring, folder))
                health = HealthServer(numbers, ready=lambda: not self._stopping.is_set())
                port = health.start(self._settings.http_host, self._settings.http_port)
                log.info(
                    "site", name=self.name, coordinator=address, metrics=f"http://127.0.0.1:{port}/metrics"
                )
                renewal = asyncio.create_task(_renew(link))
                try:
                    return await daemon.run()
                finally:
                    renewal.cancel()
                    health.stop()
        finally:
            lock.release()

    def _link(self, address: str, keyring: Keyring, traffic: Traffic) -> MovingLink:
        """The line to the coordinator; one of this user on this machine is found again at another address."""

        def look() -> str | None:
            if self._settings.join is not None:
                return None
            with suppress(UserError, OSError):
                return discovery.find(keyring.federation_id).addresses.control
            return None

        return MovingLink(address, dial=lambda at: GrpcLink(at, keyring).counting(traffic), look=look)

    async def _reconsider(self, error: UserError) -> UserError:
        """A certificate that is not taken may be the clocks' fault: then that is what has to be said. Else whoever
        was let in before only has to come again later.
        """
        if self._door is None or type(error) not in (UserError, IdentityError, Stranger):
            return error
        explained = await asyncio.to_thread(clocks.explain, *self._door, now=datetime.now(UTC))
        if explained is None and isinstance(error, Stranger) and self._was_let_in:
            return Unavailable(error.seen, expected=error.expected, advice=error.advice)
        return explained or error

    async def _identify(self) -> tuple[str, Path, Keyring]:
        """Who am I, and who is the coordinator: from an invitation, or from this machine's own coordinator."""
        now = datetime.now(UTC)
        if self._settings.join is not None:
            return await self._identify_invited(self._settings.join, now)
        found = await asyncio.to_thread(discovery.find, self._settings.server)
        self._door = (found.addresses.enrolment, found.ca_pem)
        folder = self._own_folder(found.federation_id)
        keyring = self._open_keys(folder)
        if not keyring.enrolled or keyring.expired(now):
            await _enrolled(enrolment.enrol_same_user(keyring, found, self.name))
        return found.addresses.control, folder, keyring

    async def _identify_invited(self, join: Path, now: datetime) -> tuple[str, Path, Keyring]:
        # An invitation opens the door once; what else it says stays true after its last day.
        invitation = read_join_file(join, now=BEFORE_ANY_LAST_DAY)
        self._check_invited(invitation.site)
        self.name = invitation.site
        self._door = (invitation.addresses.enrolment, invitation.ca_pem)
        folder = self._own_folder(invitation.federation_id)
        keyring = self._open_keys(folder)
        if not keyring.enrolled or keyring.expired(now):
            if keyring.enrolled and now > invitation.expires:
                keyring.check(now)
            await _enrolled(enrolment.enrol_invited(keyring, read_join_file(join, now=now)))
        return invitation.addresses.control, folder, keyring

    def _open_keys(self, folder: Path) -> Keyring:
        """The keys of this very site: with another one's it would speak, and leave, in that one's name."""
        keyring = Keyring.open(folder / "keys")
        if keyring.enrolled and keyring.name != self.name:
            raise StateError(
                f"the state folder {folder} holds the keys of the site {keyring.name}",
                expected=f"the keys of {self.name}, or none",
                advice="bring back this site's own folder, or move this one away: the site then enrols anew",
            )
        self._was_let_in = keyring.enrolled
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

    def _claim(self, note: Path) -> None:
        """A folder keeps its name: another one that happens to be called alike must not go on with its state."""
        before = Path(note.read_text()) if note.exists() else self._data
        named = bool(self._settings.name or self._settings.join)
        if before != self._data and before.is_dir() and not named:
            raise SettingError(
                f"another data folder is already called {self.name} here: {before}",
                expected=f"a name of its own for {self._data}",
                advice=f"give it one: --name {self.name}_2; if both are the same site: --name {self.name}",
            )
        note.write_text(str(self._data))

    def _check_invited(self, invited: str) -> None:
        if self._settings.name and self._settings.name != invited:
            raise SettingError(
                f"--name is {self._settings.name!r}, the invitation is for {invited!r}",
                expected="the name that was invited",
                advice="leave --name out, or ask the operator for: pfl invite " + self._settings.name,
            )


async def _enrolled(enrolling: object) -> None:
    try:
        await enrolling  # type: ignore[misc]  # a coroutine of either way of enrolling
    except NotAdmitted as refusal:
        # Its words say already what to do.
        raise UserError(f"the coordinator did not take this site: {refusal}") from None
    except Unreachable as down:
        raise Unavailable(
            f"the coordinator's enrolment port does not answer: {down}",
            expected="a running pfl-server, and a firewall that lets this machine out to it",
        ) from None


def _look_around(keyring: Keyring, folder: Path) -> Surroundings:
    """What a scrape shows beside the daemon's own numbers."""
    end = free = None
    with suppress(OSError, IdentityError):
        end = x509.load_pem_x509_certificate(keyring.certificate_pem).not_valid_after_utc.timestamp()
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
    return Surroundings(end, free)


async def _renew(link: MovingLink) -> None:
    """Short-lived certificates are renewed long before their end; a coordinator that is away is asked again."""
    while True:
        try:
            if await link.renew():
                log.info("certificate renewed")
        except (Unreachable, NotAdmitted, PflError, OSError) as error:
            # Also a disk that is full now: a renewal that is not tried again ends the site with its certificate.
            log.warning("the certificate was not renewed", why=str(error), again_in_seconds=RENEW_SECONDS)
        await asyncio.sleep(RENEW_SECONDS)


def _lacks_room(error: OSError, folder: Path) -> Exception:
    """Before the run nothing can be lost: a full disk ends the program in words."""
    if error.errno not in NO_ROOM:
        return error
    return StateError(
        f"no room is left on the disk of {folder}",
        expected="room for the site's keys, the model and one upload",
        advice="make room, or name another folder with --state, then start pfl-client again",
    )


def _in_words(refusal: NotAdmitted) -> PflError:
    """Why this site is not in the run, with the exit code that goes with it."""
    if refusal.code == "run_failed":
        return RunFailed(f"the coordinator has ended the run: {refusal}")
    return DataError(str(refusal)) if refusal.code in ("classes", "shape") else UserError(str(refusal))


def _data_folder(settings: ClientSettings) -> Path:
    if settings.data is None:
        raise SettingError(
            "no data folder was named", expected="--data FOLDER", advice="for example --data ./hospital_a"
        )
    folder = settings.data.resolve()
    if not folder.is_dir():
        raise DataError(
            f"--data {settings.data} is no folder",
            expected="a folder with train and test data",
            advice="check the path",
        )
    return folder
