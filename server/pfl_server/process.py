"""One coordinator process: certificate authority, ports and run, until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import structlog

from pfl_common import exit_codes
from pfl_common.errors import PflError, SettingError, StateError, UserError
from pfl_common.files.descriptors import raise_limit
from pfl_common.files.full import is_full
from pfl_common.identity import (
    Addresses,
    Authority,
    Found,
    Ledger,
    Lives,
    discovery,
    host_and_port,
    new_secret,
    split_port,
)
from pfl_common.identity.authority import read_brought
from pfl_common.identity.certificates import load_certificates
from pfl_common.identity.key_place import check_key_files, choose_place
from pfl_common.spec.run import ClientId
from pfl_server.envelopes.sealed import call_book, seal_with
from pfl_server.network.administration import Administration
from pfl_server.network.enrolment_port import EnrolmentServer
from pfl_server.network.port_limits import PortLimits, share_out
from pfl_server.network.proxies import Proxies
from pfl_server.network.renewal import Renewal
from pfl_server.network.rpc import REFUSALS, Callers
from pfl_server.network.server import LOOPBACK, GrpcServer
from pfl_server.run.host import RunHost
from pfl_server.settings import ServerSettings, read_life, read_proxies
from pfl_server.status.http import WebServer
from pfl_server.status.view import View
from pfl_server.store.state_folder import make_state_folder

log = structlog.get_logger("pfl.coordinator")

DRAIN_SECONDS = 5.0
FAREWELL_SECONDS = 10.0
"""How long sites that wait for a run may take to hear that there will be none."""


class Coordinator:
    """All parts of a coordinator process, put together."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self._stopping = asyncio.Event()
        try:
            self._set_up(settings, datetime.now(UTC))
        except OSError as error:
            if not is_full(error):
                raise
            raise StateError(
                f"no room is left on the disk of {settings.state.absolute()}",
                expected="room for the journal, two checkpoints and the sites' updates",
                advice="make room, then start with the same command: it goes on where it was",
            ) from None

    def _set_up(self, settings: ServerSettings, now: datetime) -> None:
        make_state_folder(settings.state)
        self.authority = _open_authority(settings, now)
        hybrid = settings.envelope == "hybrid"
        envelopes, federation = (
            seal_with(self.authority, now=now, hybrid=hybrid),
            self.authority.federation_id,
        )
        self.host = RunHost(settings, envelopes, federation=federation)
        self._secret = new_secret()
        ledger = Ledger(settings.state / "invitations", self.authority.ca_pem)
        self._limits = _share_out(max(settings.sites, ledger.count()))
        meter, notices = self.host.record.meter, self.host.notices
        # From the first scrape on there is a 0 to grow from: the first burst of refusals is seen as one.
        meter.refusals.update(dict.fromkeys(REFUSALS, 0))
        self._enrolment = EnrolmentServer(
            self.authority,
            ledger,
            local_secret=self._secret,
            meter=meter,
            approval=notices if settings.approve else None,
        )
        proxies, book = (
            Proxies(read_proxies(settings.proxied)),
            call_book(self.authority, now=now, hybrid=hybrid),
        )
        callers = Callers(book, proxied=bool(proxies), proxies=proxies)
        administration = Administration(
            self.authority, ledger, notices, rotated=lambda: self._renewal.change()
        )
        self._grpc = GrpcServer(
            callers, renew=self._enrolment.renew, meter=meter, administration=administration
        )
        self._renewal = Renewal(
            self.authority,
            # A name with a port is a proxy's, which has a certificate of its own.
            [*(name for name in settings.reachable_names if not split_port(name)[1]), settings.local_name],
            cards=(book, envelopes),
            ports=(self._grpc, self._enrolment),
            hybrid=hybrid,
        )
        self._ends: dict[str, float] = {"authority": _end(self.authority.ca_pem)}
        self.view = View(self.host, partial(find_ends, self.authority, self._ends))
        self._web = WebServer(self.view, ready=lambda: not self._stopping.is_set())

    async def serve(self) -> int:
        """Open the ports, play the run, and go on answering until a signal comes; gives the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        try:
            self._publish(await self._open())
            return await self._play()
        finally:
            await self._close()

    async def _play(self) -> int:
        story = asyncio.create_task(self.host.run())
        stopped = asyncio.create_task(self._stopping.wait())
        noting = asyncio.create_task(self.host.counter_journal.keep_noting())
        renewal = asyncio.create_task(self._renewal.keep())
        try:
            await asyncio.wait({story, stopped}, return_when=asyncio.FIRST_COMPLETED)
            failure = story.exception() if story.done() else None
            if failure is not None:
                await self._report(failure)
            # After the run the coordinator goes on serving: metrics, status, and sites that were away at the end.
            await self._stopping.wait()
            return getattr(failure, "exit_code", exit_codes.FAULT) if failure else exit_codes.DONE
        finally:
            story.cancel()
            stopped.cancel()
            noting.cancel()
            renewal.cancel()

    async def _open(self) -> Addresses:
        """Gives where programs of this machine find it; others come under the names it advertises."""
        settings = self.settings
        names, here = settings.reachable_names, settings.local_name
        pair, ca = self._renewal.pair, self.authority.ca_pem
        self._ends["coordinator"] = _end(pair.certificate_pem)
        limits = self._limits
        port = await self._grpc.start(
            self.host,
            host=settings.host,
            port=settings.port,
            pair=pair,
            ca_pem=ca,
            lines=limits.sites,
        )
        enrol = await self._enrolment.start(
            host=settings.host, port=settings.enrol_port, pair=pair, lines=limits.enrolling
        )
        http = await self._web.start(settings.http_host, settings.http_port, most=limits.readers)
        page = f"http://{host_and_port(settings.http_name, http)}"
        addresses = Addresses(host_and_port(here, port), host_and_port(here, enrol), page)
        told = addresses.under(names[0])
        also = {"also": ",".join(names[1:])} if names[1:] else {}
        log.info("listening", control=told.control, enrolment=told.enrolment, http=page, **also)
        return addresses

    def _publish(self, addresses: Addresses) -> None:
        found = Found(
            federation_id=self.authority.federation_id,
            addresses=addresses,
            ca_pem=self.authority.ca_pem,
            pid=os.getpid(),
            state_folder=self.settings.state.resolve(),
            secret=self._secret,
            names=self.settings.reachable_names,
            operator=self._renewal.operator,
            operator_address=self._operator_address(),
            hybrid=self.settings.envelope == "hybrid",
        )
        self._renewal.publish = lambda: self._republish(addresses)
        try:
            discovery.publish(found)
        except OSError as error:
            raise StateError(
                f"no file can be left in {discovery.coordinators_folder()}: {error.strerror}",
                expected="a place where this user may write: there sites and `pfl` find their coordinator",
                advice="name another state directory of the user with XDG_STATE_HOME",
            ) from None

    def _operator_address(self) -> str:
        """Behind a proxy the port for sites asks nobody for a certificate: the operator's calls come elsewhere."""
        port = self._grpc.operator_port
        return host_and_port(LOOPBACK, port) if port else ""

    def _republish(self, addresses: Addresses) -> None:
        self._ends["coordinator"] = _end(self._renewal.pair.certificate_pem)
        self._ends["authority"] = _end(self.authority.ca_pem)
        self._publish(addresses)

    async def _report(self, failure: BaseException) -> None:
        """Tell the sites; what a person can mend then ends the program, so that it can be started again."""
        self.host.fail(_in_one_line(failure))
        if isinstance(failure, UserError):
            await self.host.notices.farewell(FAREWELL_SECONDS)
            raise failure
        known = isinstance(failure, PflError)
        log.error("the run failed", why=str(failure), exc_info=None if known else failure)

    async def _close(self) -> None:
        """Readiness off first, then no new calls, then the rest."""
        discovery.withdraw(self.authority.federation_id, pid=os.getpid())
        self.host.reception.drain()
        await self._grpc.stop(DRAIN_SECONDS)
        await self._enrolment.stop(DRAIN_SECONDS)
        await self._web.stop()
        await self.host.counter_journal.note()
        self.host.runs.close()
        log.info("stopped")


def _share_out(sites: int) -> PortLimits:
    """Connections for each port, of as many descriptors as this process can have."""
    descriptors = raise_limit()
    limits = share_out(descriptors, sites)
    if limits.sites < sites:
        log.warning(
            "few descriptors: not all sites can be here at once",
            descriptors=descriptors,
            room_for=limits.sites,
            sites=sites,
            advice="raise this program's limit: LimitNOFILE in its unit, or ulimit -Hn",
        )
    return limits


def _open_authority(settings: ServerSettings, now: datetime) -> Authority:
    """The federation's authority, with its keys where the operator keeps them."""
    folder = settings.state / "federation"
    for kept in (folder, settings.state / "invitations"):
        check_key_files(kept)
    place = choose_place(folder, keys=settings.keys, passphrase=settings.passphrase)
    brought = None
    if settings.ca_cert is not None and settings.ca_key is not None:
        try:
            brought = read_brought(settings.ca_cert, settings.ca_key)
        except OSError as error:
            raise SettingError(
                f"{error.filename} cannot be read: {error.strerror}",
                expected="the certificate and the private key of an authority",
                advice="check --ca-cert and --ca-key",
            ) from None
    authority = Authority.open_or_create(folder, now=now, place=place, brought=brought)
    if settings.certificate_life:
        life = read_life(settings.certificate_life)
        authority.lives = Lives(site=life, server=life)
    return authority


def find_ends(
    authority: Authority, known: dict[str, float], sites: Sequence[ClientId]
) -> Mapping[str, float]:
    """When certificates end: those known, and the first of these sites' cards. One that has run out is not read any
    more, but what was read of it before is not forgotten.
    """
    now = datetime.now(UTC)
    for site in sites:
        # A card may be missing, damaged, or readable for others: a reason to act elsewhere, not to lose the rest.
        with suppress(PflError, OSError):
            known[f"site {site}"] = authority.card_of(site, now=now).ends.timestamp()
    cards = [known[name] for site in sites if (name := f"site {site}") in known]
    found = {name: end for name, end in known.items() if not name.startswith("site ")}
    return found | ({"site_soonest": min(cards)} if cards else {})


def _end(certificate_pem: bytes) -> float:
    certificate = load_certificates(certificate_pem, where="an own certificate")[0]
    return certificate.not_valid_after_utc.timestamp()


def _in_one_line(failure: BaseException) -> str:
    if not isinstance(failure, PflError):
        # What went wrong unexpectedly may name paths and values: sites and the page learn no more than its kind.
        return f"{type(failure).__name__}: see the coordinator's log"
    return "; ".join(line.strip() for line in str(failure).splitlines()) or type(failure).__name__
