"""Who was refused can be found out: over real sockets, in the coordinator's log and among its events."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any  # as structlog has the entries of a log

import grpc
import pytest
from grpc import aio
from structlog.testing import capture_logs

from pfl_client.connection.channel import open_channel
from pfl_client.connection.link import NotAdmitted, Unreachable
from pfl_client.connection.operator_link import OperatorLink
from pfl_client.onboarding.enrolment import enrol_invited
from pfl_common.errors import Refused
from pfl_common.identity import KeyPair, Keyring, new_secret
from pfl_common.spec.run import Description
from pfl_common.wire import convert
from pfl_server.network.rpc import forget_frames
from pfl_server.telemetry.event_log import Record
from tests.network.federation import HASTY, Federation
from tests.network.file_desk import upload

HORSES = Description((1, 28, 28), ("horse",))


@pytest.fixture
def told(federation: Federation) -> Record:
    """Both ports tell what they refuse to the same events, as in a coordinator."""
    record = Record(federation.office.meter)
    federation.server.meter.on_refusal = record.meter.on_refusal
    return record


@pytest.fixture
def log(told: Record) -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as lines:
        yield lines


def refused(log: list[MutableMapping[str, Any]]) -> list[tuple[str, str, str, str]]:
    """What the log says of refusals."""
    said = [line for line in log if line["event"].startswith("refused")]
    return [(line["log_level"], line["code"], line["site"], line["address"]) for line in said]


async def test_a_forged_secret(
    federation: Federation, told: Record, log: list[MutableMapping[str, Any]], tmp_path: Path
) -> None:
    """Code and address are said, the claimed name only in the words, and nothing that was sent as a proof."""
    invitation = federation.ledger.invite("hospital_a", federation.now, addresses=federation.addresses)
    forged, keyring = replace(invitation, secret=new_secret()), Keyring.open(tmp_path / "keys")
    for _ in range(3):
        with pytest.raises(NotAdmitted):
            await enrol_invited(keyring, forged, patience=HASTY)
    assert [("warning", "wrong_proof", "unknown", "127.0.0.1")] == refused(log)
    assert "a wrong proof for site 'hospital_a'" in log[0]["words"]
    (event,) = told.events.newest()
    assert event.words.startswith("refused (wrong_proof), unknown at 127.0.0.1: a wrong proof")
    assert event.words.endswith(" (3 times)")
    csr_pem = keyring.csr("hospital_a")
    for secret in (forged.secret, forged.prove(csr_pem), invitation.secret):
        assert secret.hex() not in str(log)
        assert repr(secret) not in str(log)
    assert str(tmp_path) not in str(log)


async def test_a_site_by_its_certificate(
    federation: Federation, tmp_path: Path, log: list[MutableMapping[str, Any]]
) -> None:
    """Its name is proven, whatever it says of itself."""
    (tmp_path / "up").write_bytes(b"update")
    (tmp_path / "nothing").touch()  # a refusal that meets a frame on its way may be lost
    async with federation.link("hospital_b") as link:
        with pytest.raises(Refused):
            await link.submit(upload("hospital_a", b"update"), tmp_path / "up")
        with pytest.raises(Refused):
            await link.carrier._store_rest("000001-1-train", tmp_path / "nothing", 0)
    assert [
        ("warning", "header", "hospital_b", "127.0.0.1"),
        ("warning", "not_offered", "hospital_b", "127.0.0.1"),
    ] == refused(log)


async def test_the_operator_and_a_site_in_each_others_place(
    federation: Federation, log: list[MutableMapping[str, Any]]
) -> None:
    """Both have a certificate, and the other one is asked for."""
    keyring = federation.keyring("hospital_a")
    as_site = KeyPair(keyring.key_pem, keyring.certificate_pem)
    async with OperatorLink(federation.addresses.control, as_site, ca_pem=keyring.ca_pem) as link:
        with pytest.raises(NotAdmitted):
            await link.status()
    operator = federation.authority.operator_certificate(now=federation.now)
    credentials = grpc.ssl_channel_credentials(keyring.ca_pem, operator.key_pem, operator.certificate_pem)
    async with open_channel(federation.addresses.control, credentials) as channel:
        with pytest.raises(aio.AioRpcError):
            await channel.unary_unary(f"/{convert.COORDINATOR}/Leave")(b"", timeout=10)
    assert [
        ("warning", "not_the_operator", "hospital_a", "127.0.0.1"),
        ("warning", "not_a_site", "the operator", "127.0.0.1"),
    ] == refused(log)


async def test_what_is_no_request(federation: Federation, log: list[MutableMapping[str, Any]]) -> None:
    """A stranger that sends junk to the enrolment port is refused like all others, counted and said."""
    credentials = grpc.ssl_channel_credentials(federation.authority.ca_pem)
    async with open_channel(federation.addresses.enrolment, credentials) as channel:
        with pytest.raises(aio.AioRpcError) as error:
            await channel.unary_unary(f"/{convert.ENROLMENT}/Enrol")(b"\xff\xff", timeout=10)
    assert "bad_request" == error.value.details()
    assert {"bad_request": 1} == federation.office.meter.refusals
    assert [("warning", "bad_request", "unknown", "127.0.0.1")] == refused(log)


async def test_a_code_that_is_not_in_the_list_is_counted_as_other(
    federation: Federation, log: list[MutableMapping[str, Any]]
) -> None:
    """No series begins with its first burst, and each code that is exposed is explained."""
    federation.desk.unfit = "moon_full"
    async with federation.link("hospital_a") as link:
        with pytest.raises(NotAdmitted, match="moon_full"):
            await link.join(HORSES)
    assert {"other": 1} == federation.server.meter.refusals
    assert log[0]["words"].startswith("moon_full: ")


async def test_an_unexpected_failure_is_in_the_log(
    federation: Federation, log: list[MutableMapping[str, Any]]
) -> None:
    """It is a line of the log like all others, in whatever format was asked for."""
    federation.desk.heartbeat = lambda site, key, progress: {}["secret path"]
    async with federation.link("hospital_a") as link:
        with pytest.raises(Unreachable):
            await link.heartbeat("000001-1-train", 1)
    failed = [line for line in log if line["event"] == "a call failed"]
    assert ("error", True) == (failed[0]["log_level"], failed[0]["exc_info"])


def test_a_refusal_does_not_hold_the_message_that_is_refused() -> None:
    """Neither by its own traceback nor by that of the error it was raised for: gRPC keeps it longer than the call."""
    seen = list[weakref.ref[object]]()

    def read(message: set[str]) -> None:
        seen.append(weakref.ref(message))
        raise ValueError("it cannot be read")

    def hear() -> None:
        message = {"a megabyte"}
        try:
            read(message)
        except ValueError:
            raise Refused("bad_request", "that is no message") from None

    with pytest.raises(Refused) as refused:
        hear()
    kept = forget_frames(refused.value)
    del refused
    gc.collect()
    assert ("bad_request", None) == (kept.code, seen[0]())
