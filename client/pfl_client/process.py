"""One site process (identity, line, trainer, health port) until the run is over or a signal comes."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import shutil
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any  # a site's parts, which both kinds of site are made of

import structlog

from pfl_client.connection import certificate_renewal, clock_check
from pfl_client.connection.channel import Stranger
from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.connection.link import NotAdmitted, Traffic
from pfl_client.daemon.exporter import HealthServer, SiteMetrics, Surroundings
from pfl_client.daemon.loop import Daemon
from pfl_client.daemon.newcomer import Newcomer
from pfl_client.daemon.run_check import ADVICE
from pfl_client.envelopes.sealed import SealedEnvelopes
from pfl_client.onboarding import preflight
from pfl_client.onboarding.admission import Admission, Admitted, find_data
from pfl_client.policy import policy_file
from pfl_client.policy.rules import Policy
from pfl_client.run_folder.audit import Audit
from pfl_client.run_folder.serving_model import ServingModel
from pfl_client.settings import ClientSettings
from pfl_client.trainer_process.api import DataFolder, TrainerLost
from pfl_client.trainer_process.process import Share, TrainerProcess
from pfl_common.errors import (
    DataError,
    Distrusted,
    PflError,
    Refused,
    RunFailed,
    StateError,
    Unavailable,
    UserError,
)
from pfl_common.files import private
from pfl_common.files.full import is_full
from pfl_common.identity import IdentityError, Keyring, discovery
from pfl_common.spec.messages import Over
from pfl_common.spec.run import Description, Json

log = structlog.get_logger("pfl.site")

CACHE = "cache"
"""In a site's folder: its samples as its run takes them."""


class Site:
    """All parts of a site process, put together."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._data = find_data(settings)
        self._share = Share(settings.nice, settings.threads)
        self._bench = TrainerProcess(
            settings.state_folder,
            warm=settings.trainer == "warm",
            share=self._share,
            memory_limit=settings.memory_bytes,
        )
        self._admission = Admission(settings, self._data)
        self._stopping, self._ended_by = asyncio.Event(), "Ctrl-C"
        self._daemon: Daemon | Newcomer | None = None
        self._description: Description | None = None
        self._folder: Path | None = None
        # Read before anybody is called: with a policy that cannot be read nothing is said to anybody.
        self._policy = self._read_policy()

    def _read_policy(self, *folders: Path) -> Policy:
        """The rules in force: of the file that was named, of this site's own folder, or of that of all its user's."""
        settings = self._settings
        return policy_file.read(policy_file.find(settings.policy, *folders, settings.state_folder))

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
        except Refused as refused:
            raise _not_understood(refused) from None
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
            if self._stopping.is_set():
                self._tell_stopped()

    def _tell_stopped(self) -> None:
        """Say what this site did until a signal ended it, where its state lies, and how to continue."""
        told: dict[str, Json] = {}
        if self._daemon is not None and self._folder is not None:
            told, run = self._daemon.progress.account(), self._folder / "runs" / self._daemon.watch.run.id
            if self._daemon.watch.run.id:
                serving = ServingModel(run / "serving").current
                told |= {"own_state": str(run)}
                told |= {"model": str(serving) if serving.exists() else "none before the run's end"}
        log.info(f"ended by {self._ended_by}", **told, go_on_with=typed())

    def _pause(self) -> None:
        self._ended_by = "SIGTERM"
        if isinstance(self._daemon, Daemon):
            self._daemon.comes_back = True
        self._stopping.set()

    async def _story(self) -> Over:
        # Beside what is said to be let in: its imports take longer than that.
        ahead = asyncio.create_task(self._bench.start())
        try:
            return await self._live()
        finally:
            ahead.cancel()
            await asyncio.wait({ahead})
            await self._bench.close()

    async def _live(self) -> Over:
        admitted = await self._identify()
        lock = self._admission.hold(admitted)
        try:
            self._admission.claim(admitted.folder)
            while True:
                try:
                    return await self._take_part(admitted)
                except (NotAdmitted, Refused) as refusal:
                    admitted = await self._admission.enrol_anew(admitted, refusal)
        finally:
            lock.release()

    async def _identify(self) -> Admitted:
        """Get in. While the coordinator is not there the data are looked at first: nobody waits with wrong ones."""
        try:
            return await self._admission.identify()
        except Unavailable as absent:
            folder = self._data_folder(self._admission.settle_name())
            self._description = await preflight.look_at(folder, self._settings.state_folder, self._bench)
            return await preflight.wait(self._admission.identify, absent, seconds=self._settings.wait_seconds)

    def _data_folder(self, name: str) -> DataFolder:
        settings, limit = self._settings, self._settings.memory_bytes
        held = DataFolder(
            self._data,
            name,
            strict=settings.strict_data,
            device=settings.device,
            threads=settings.threads,
            validation=settings.validation,
            most_bad=settings.most_bad,
            follow_links=settings.follow_links,
        )
        if settings.cache_bytes:
            # Read whole an array takes several times its bytes for a moment.
            most = min(held.in_memory, limit // 16) if limit else held.in_memory
            held = replace(held, cache_bytes=settings.cache_bytes, in_memory=most)
        return held

    async def _take_part(self, admitted: Admitted) -> Over:
        folder, keyring, traffic = admitted.folder, admitted.keyring, Traffic()
        self._policy = self._read_policy(folder)
        audit = await asyncio.to_thread(Audit, folder)
        self._admission.list_said(audit)
        async with self._link(admitted, traffic, audit) as link:
            daemon = self._put_together(admitted, link, traffic, audit)
            numbers = SiteMetrics(daemon.watch, traffic, lambda: _look_around(keyring, folder))
            health = HealthServer(numbers, ready=lambda: not self._stopping.is_set())
            port = health.start(self._settings.http_host, self._settings.http_port)
            seen = {"coordinator": admitted.address, "metrics": f"http://127.0.0.1:{port}/metrics"}
            log.info("site", name=self._admission.name, **seen, **self._limits())
            tell_policy(self._policy)
            going_on = certificate_renewal.keep_renewed(link), daemon.progress.live()
            beside = [asyncio.create_task(work) for work in going_on]
            try:
                over = await daemon.run()
                # Decoded for this run: the next may want another size.
                await asyncio.to_thread(shutil.rmtree, folder / CACHE, ignore_errors=True)
                return over
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)
                health.stop()

    def _limits(self) -> dict[str, Json]:
        """What the machine's owner allows the training, where that is not all."""
        told = {"most_threads": self._share.threads, "niceness": self._share.niceness}
        return {name: value for name, value in told.items() if value}

    def _put_together(
        self, admitted: Admitted, link: GrpcLink, traffic: Traffic, audit: Audit
    ) -> Daemon | Newcomer:
        settings, folder = self._settings, admitted.folder
        made: dict[str, Any] = {
            "link": link,
            "bench": self._bench,
            "envelopes": SealedEnvelopes(admitted.keyring, secret=own_secret(folder / "data.secret")),
            "state": folder,
            "description": self._description,
            "traffic": traffic,
            "audit": audit,
            "policy": self._policy,
        }
        held, self._folder = self._data_folder(self._admission.name), folder
        data = replace(held, cache=folder / CACHE) if held.cache_bytes else held
        if settings.personalize_only:
            self._daemon = Newcomer(data, **made)
        else:
            self._daemon = Daemon(data, **made, stays=settings.stay, tells=settings.tell_diagnostics)
        return self._daemon

    def _link(self, admitted: Admitted, traffic: Traffic, audit: Audit) -> GrpcLink:
        """The line to the coordinator; one of this user on this machine is found again at another address."""
        keyring = admitted.keyring

        def look() -> str | None:
            if self._settings.join is not None:
                return None
            with suppress(UserError, OSError):
                return discovery.find(keyring.federation_id).addresses.control
            return None

        link = GrpcLink(admitted.address, keyring, roots=self._settings.proxy_roots)
        return link.counting(traffic).telling(audit.tell).following(look)

    async def _reconsider(self, error: UserError) -> UserError:
        """Explain a refused certificate by the clocks, if they differ. Otherwise a site that was admitted before takes
        the refusal for temporary.
        """
        if self._admission.door is None or type(error) not in (UserError, IdentityError, Stranger):
            return error
        explained = await asyncio.to_thread(clock_check.explain, *self._admission.door, now=datetime.now(UTC))
        if explained is None and isinstance(error, Stranger) and self._admission.was_let_in:
            return Unavailable(error.seen, expected=error.expected, advice=error.advice)
        return explained or error


def tell_policy(policy: Policy) -> None:
    """Log the rules that are in force and differ from what was always done."""
    if policy.file is not None:
        log.info("policy", file=str(policy.file), **policy.changed())


def own_secret(file: Path) -> bytes:
    """The key for the fingerprint of this site's data; made once."""
    if not file.exists():
        private.write(file, secrets.token_bytes(32))
    return private.read(file)


def typed() -> str:
    """The command that started this program: the same one goes on where it was."""
    return shlex.join(["pfl-client", *sys.argv[1:]])


def _look_around(keyring: Keyring, folder: Path) -> Surroundings:
    """The values of a scrape beside the daemon's own numbers."""
    end = free = None
    with suppress(OSError, IdentityError):
        end = keyring.ends.timestamp()
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
    return Surroundings(end, free)


def _lacks_room(error: OSError, folder: Path) -> Exception:
    """Before the run nothing can be lost: a full disk ends the program in words."""
    if not is_full(error):
        return error
    return StateError(
        f"no room is left on the disk of {folder}",
        expected="room for the site's keys, the model and one upload",
        advice="make room, or name another folder with --state, then start pfl-client again",
    )


def _not_understood(refused: Refused) -> Distrusted:
    """One side did not take what the other said, and trying again would not help."""
    return Distrusted(
        f"site and coordinator do not understand each other: {refused}",
        expected="calls and answers of one release",
        advice=ADVICE,
    )


def _in_words(refusal: NotAdmitted) -> PflError:
    """Why this site is not in the run, with the exit code that goes with it."""
    if refusal.code == "run_failed":
        return RunFailed(f"the coordinator has ended the run: {refusal}")
    return (
        DataError(str(refusal))
        if refusal.code in ("classes", "shape", "unprintable")
        else UserError(str(refusal))
    )
