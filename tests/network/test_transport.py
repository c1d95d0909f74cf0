"""What a site and the coordinator say to each other arrives, over real sockets and mutual TLS."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from pfl_client.connection.channel import Patience, open_channel
from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.connection.link import NotAdmitted, Unreachable
from pfl_client.connection.operator_link import OperatorLink
from pfl_common.errors import Refused, SettingError, UserError
from pfl_common.identity import KeyPair, Keyring
from pfl_common.spec import status_json
from pfl_common.spec.data_description import MOST_BYTES
from pfl_common.spec.messages import Mark, Over
from pfl_common.spec.run import Description, Moments
from pfl_common.wire import convert
from pfl_common.wire import coordinator_pb2 as pb
from pfl_server.network.server import GrpcServer
from tests.common.support.parses import counted
from tests.network.cutting_proxy import CuttingProxy
from tests.network.federation import HASTY, Federation
from tests.network.file_desk import FileDesk, train, upload

DIGITS = Description((1, 28, 28), ("0", "1"), 120)


async def test_a_task_from_joining_to_its_receipt(federation: Federation, tmp_path: Path) -> None:
    """A site joins, gets the model, gets a task with its bytes, and hands in an update for a receipt."""
    desk = federation.desk
    async with federation.link("hospital_a") as link:
        joined = await link.join(DIGITS)
        assert joined is not None
        await link.fetch(joined.init, tmp_path / "init")
        work = train(desk.lay(b"shared state"))
        desk.assign("hospital_a", work)
        assert work == await link.next_task((Mark(2, 1), Mark(1, 1)))
        await link.fetch(work.blob, tmp_path / "down")
        offer = upload("hospital_a", b"update")
        (tmp_path / "up").write_bytes(b"update")
        receipt = await link.submit(offer, tmp_path / "up")
        assert receipt == await link.submit(offer, tmp_path / "up")
    assert DIGITS == desk.joined["hospital_a"]
    assert (Mark(2, 1), Mark(1, 1)) == desk.marks["hospital_a"]
    assert b"first model" == (tmp_path / "init").read_bytes()
    assert b"shared state" == (tmp_path / "down").read_bytes()
    assert b"update" == desk.kept("hospital_a", offer.key)
    assert ("hospital_a", offer.key, offer.blob.digest) == (receipt.site, receipt.key, receipt.digest)


async def test_each_call_goes_to_the_desk_of_the_moment(federation: Federation, tmp_path: Path) -> None:
    """When a run begins the sites are answered by another desk, on the lines that are open already."""
    (tmp_path / "later").mkdir()
    later, parcel = FileDesk(tmp_path / "later"), tmp_path / "parcel"
    parcel.write_bytes(b"update")
    async with federation.link("hospital_a") as link:
        await link.leave()
        federation.desk.desk = later
        await link.join(DIGITS)
        await link.fetch(later.lay(b"shared state"), tmp_path / "down")
        await link.submit(offer := upload("hospital_a", b"update"), parcel)
    assert ([("leave", "hospital_a")], {}) == (federation.desk.said, federation.desk.joined)
    assert {"hospital_a": DIGITS} == later.joined
    assert b"update" == later.kept("hospital_a", offer.key)


async def test_small_words_arrive(federation: Federation) -> None:
    """Gathering, evaluation, refusal of a task, heartbeat, the end and goodbye reach the other side."""
    federation.desk.gathering = True
    federation.desk.assign("hospital_a", Over("failed", "no quorum"))
    async with federation.link("hospital_a") as link:
        assert await link.join(DIGITS) is None
        await link.report("000001-1-evaluate", {"pre/test/main": [0.1, 3.0]})
        await link.decline("000001-1-train", "data_changed", "scan \udcff.png has gone")
        assert await link.heartbeat("000001-1-train", 7)
        assert not await link.heartbeat("000001-1-train", 100)
        assert Over("failed", "no quorum") == await link.next_task(())
        await link.pause()
        await link.leave()
    assert [
        ("report", "hospital_a", "000001-1-evaluate", {"pre/test/main": [0.1, 3.0]}),
        ("decline", "hospital_a", "000001-1-train", "data_changed", "scan ?.png has gone"),
        ("heartbeat", "hospital_a", "000001-1-train", 7),
        ("heartbeat", "hospital_a", "000001-1-train", 100),
        ("pause", "hospital_a"),
        ("leave", "hospital_a"),
    ] == federation.desk.said


async def test_everything_declared_has_its_handler(federation: Federation) -> None:
    """No call of the protocol is answered with "unknown"."""
    keyring = federation.keyring("hospital_a")
    credentials = grpc.ssl_channel_credentials(keyring.ca_pem, keyring.key_pem, keyring.certificate_pem)
    async with open_channel(federation.addresses.control, credentials) as channel:
        for service in pb.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                call = channel.unary_unary(f"/{service.full_name}/{method.name}")(b"", timeout=10)
                assert grpc.StatusCode.UNIMPLEMENTED is not await call.code(), method.full_name


async def test_a_refusal_keeps_its_code_and_words(federation: Federation, tmp_path: Path) -> None:
    """What the desk refuses, the site hears with the same code and words; the refusal is counted."""
    (tmp_path / "up").write_bytes(b"update")
    async with federation.link("hospital_a") as link:
        await link.submit(upload("hospital_a", b"update"), tmp_path / "up")
        (tmp_path / "up").write_bytes(b"UPDATE")
        with pytest.raises(Refused, match="another update is there for 000001-1-train") as refused:
            await link.submit(upload("hospital_a", b"UPDATE"), tmp_path / "up")
    assert "different" == refused.value.code
    assert {"different": 1} == federation.server.meter.refusals


@pytest.mark.parametrize("code", ["classes", "shape", "bad_request", "moon_full"])
async def test_a_site_that_is_not_taken_hears_why(federation: Federation, code: str) -> None:
    """Whatever the reason for not taking a site, its exception says that trying again is useless."""
    federation.desk.unfit = code
    async with federation.link("hospital_a") as link:
        with pytest.raises(NotAdmitted, match="hospital_a has the class horse"):
            await link.join(Description((1, 28, 28), ("horse",)))


@pytest.mark.parametrize(
    ("lie", "code"),
    [
        (replace(DIGITS, low=float("nan")), "bad_request"),
        (replace(DIGITS, sizes=((28, 28, 0),)), "bad_request"),
        (replace(DIGITS, kind="array", moments=Moments(2, (3.0,), (1.0,)), high=3), "bad_request"),
        (replace(DIGITS, warnings=("w" * MOST_BYTES,)), "too_large"),
    ],
)
async def test_a_lie_about_data_reaches_no_desk(federation: Federation, lie: Description, code: str) -> None:
    """A description that cannot be true, or that is longer than any, ends at the port with a code."""
    async with federation.link("hospital_a") as link:
        with pytest.raises(NotAdmitted, match="expected: ") as refused:
            await link.join(lie)
    assert code == refused.value.code
    assert {} == federation.desk.joined


async def test_a_fault_of_the_coordinator_tells_nothing(federation: Federation) -> None:
    """An unexpected error at the coordinator reaches the site without its text, as something to try again."""
    async with federation.link("hospital_a") as link:
        federation.desk.heartbeat = lambda site, key, progress: {}["secret path"]
        with pytest.raises(Unreachable) as error:
            await link.heartbeat("000001-1-train", 1)
    assert "secret" not in str(error.value)


async def test_sites_are_kept_apart(federation: Federation, tmp_path: Path) -> None:
    """A site gets only its own tasks, and cannot send under another's name or into another's upload."""
    federation.desk.assign("hospital_a", train(federation.desk.lay(b"for a")))
    (tmp_path / "up").write_bytes(b"update")
    (tmp_path / "nothing").touch()  # a refusal that meets a frame on its way may be lost
    offer = upload("hospital_a", b"update")
    async with federation.link("hospital_a") as a, federation.link("hospital_b") as b:
        await a._offer(offer)
        with pytest.raises(Refused, match=r"^header"):
            await b.submit(offer, tmp_path / "up")
        with pytest.raises(Refused, match=r"^not_offered"):
            await b.carrier._store_rest(offer.key, tmp_path / "nothing", 0)
        assert 0 == await a._offer(offer)
        short = Patience(wait_seconds=0.05)
        async with federation.link("hospital_b", patience=short) as hasty_b:
            assert await hasty_b.next_task(()) is None
        assert train(federation.desk.lay(b"for a")) == await a.next_task(())
        assert "hospital_a" == (await a.submit(offer, tmp_path / "up")).site


async def test_who_asks_for_a_path_gets_nothing(federation: Federation, tmp_path: Path) -> None:
    """A digest that is no digest is refused before anything looks for a file of that name."""
    (federation.desk.folder.parent / "outside").write_bytes(b"secret")
    async with federation.link("hospital_a") as link:
        await link.leave()
        asked = convert.say_fetch("../outside", 0)
        fetch = link._line.channel.unary_stream(f"/{convert.BULK}/Fetch")
        call = fetch(asked, metadata=link._line.sign("Fetch", asked), timeout=10)
        assert grpc.StatusCode.FAILED_PRECONDITION is await call.code()
        assert "bad_request" == await call.details()


async def test_site_and_operator_have_their_own_calls(federation: Federation) -> None:
    """A site cannot ask for the status or stop the run, and the operator cannot pose as a site."""
    ca_pem, address = federation.authority.ca_pem, federation.addresses.control
    operator = federation.authority.operator_certificate(now=federation.now)
    keyring = federation.keyring("hospital_a")
    site = KeyPair(keyring.key_pem, keyring.certificate_pem)
    async with OperatorLink(address, operator, ca_pem=ca_pem, patience=HASTY) as link:
        assert status_json.write(federation.desk.status()) == await link.status()
        with pytest.raises(NotAdmitted, match="a call by the operator"):
            await link._line.ask(f"{convert.COORDINATOR}/Leave", pb.LeaveRequest(), pb.Done, seconds=10)
        async with OperatorLink(address, site, ca_pem=ca_pem, patience=HASTY) as wrong:
            with pytest.raises(NotAdmitted, match="a call by the site hospital_a"):
                await wrong.status()
            with pytest.raises(NotAdmitted):
                await wrong.stop()
        assert not federation.desk.stopped
        await link.stop()
    assert federation.desk.stopped
    assert [] == federation.desk.said


async def test_a_status_that_cannot_be_carried_or_read(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is too large is refused in words and not by the line; so is an answer that is no message at all."""
    operator = federation.authority.operator_certificate(now=federation.now)
    address, told = federation.addresses.control, federation.desk.status()
    async with OperatorLink(address, operator, ca_pem=federation.authority.ca_pem, patience=HASTY) as link:
        most = len(status_json.write(told))
        monkeypatch.setattr(
            federation.desk, "status", lambda: replace(told, words="x" * status_json.MOST_BYTES)
        )
        with pytest.raises(
            Refused, match=rf"^too_large: {status_json.MOST_BYTES + most} bytes in the status"
        ):
            await link.status()
        room = status_json.MOST_BYTES - most
        monkeypatch.setattr(federation.desk, "status", lambda: replace(told, words="x" * room))
        assert status_json.MOST_BYTES == len(await link.status())
        garbage = SimpleNamespace(SerializeToString=lambda: b"\xff")
        monkeypatch.setattr("pfl_server.network.server.pb", SimpleNamespace(StatusAnswer=lambda **_: garbage))
        with pytest.raises(Refused, match=r"^bad_request: an answer to Status that cannot be read"):
            await link.status()


async def test_the_port_is_closed_to_whom_the_authority_does_not_know(
    federation: Federation, tmp_path: Path
) -> None:
    """No certificate, an expired one, one of a foreign authority: TLS ends before a word is heard."""
    other = tmp_path / "other"
    other.mkdir()
    foreign, ours = Federation(other).keyring("hospital_a"), federation.authority.ca_pem
    keyring = federation.keyring("hospital_a", since=federation.now - timedelta(days=60))
    for credentials in (
        grpc.ssl_channel_credentials(ours),
        grpc.ssl_channel_credentials(ours, keyring.key_pem, keyring.certificate_pem),
        grpc.ssl_channel_credentials(ours, foreign.key_pem, foreign.certificate_pem),
    ):
        async with open_channel(federation.addresses.control, credentials) as channel:
            call = channel.unary_unary(f"/{convert.COORDINATOR}/Leave")(b"", timeout=10)
            assert grpc.StatusCode.UNAVAILABLE is await call.code()
    assert [] == federation.desk.said


async def test_a_site_says_what_is_wrong_with_certificates(federation: Federation, tmp_path: Path) -> None:
    """An expired certificate and a coordinator of another federation are named with what to do."""
    address = federation.addresses.control
    old = federation.keyring("hospital_a", since=federation.now - timedelta(days=60))
    with pytest.raises(UserError, match=r"of hospital_a expired (.|\n)*pfl invite hospital_a --again"):
        GrpcLink(address, old)
    other = tmp_path / "other"
    other.mkdir()
    async with GrpcLink(address, Federation(other).keyring("hospital_a"), patience=HASTY) as link:
        with pytest.raises(UserError, match="not of our federation"):
            await link.join(DIGITS)


async def test_a_certificate_is_renewed_before_its_end(federation: Federation) -> None:
    """Near its end a certificate is exchanged for a new one of the same name, and the line goes on."""
    keyring = federation.keyring("hospital_a", since=federation.now - timedelta(days=25))
    async with GrpcLink(federation.addresses.control, keyring, patience=HASTY) as link:
        assert await link.renew()
        assert not await link.renew()
        await link.leave()
    kept = Keyring.open(federation.folder / "keys-hospital_a")
    assert not kept.expired(datetime.now(UTC) + timedelta(days=29))
    assert [("leave", "hospital_a")] == federation.desk.said


async def test_a_call_without_an_answer_parses_no_certificate(federation: Federation) -> None:
    """Each such call asks whether the site's own certificate is at fault: that is known without another look."""
    patience = replace(HASTY, call_seconds=5, wait_seconds=1)
    async with GrpcLink("127.0.0.1:1", federation.keyring("hospital_a"), patience=patience) as link:
        with counted() as parses:
            for progress in range(3):
                with pytest.raises(Unreachable):
                    await link.heartbeat("000001-1-train", progress)
    assert 0 == parses.count


async def test_a_renewed_certificate_is_stored_beside_the_event_loop(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parsing and a slow disk hold up no heartbeat."""
    keyring = federation.keyring("hospital_a", since=federation.now - timedelta(days=25))
    store, where = Keyring.store, list[int]()

    def stored(self: Keyring, *words: bytes) -> None:
        where.append(threading.get_ident())
        store(self, *words)

    async with GrpcLink(federation.addresses.control, keyring, patience=HASTY) as link:
        monkeypatch.setattr(Keyring, "store", stored)
        assert await link.renew()
    assert 1 == len(where)
    assert threading.get_ident() not in where


async def test_a_renewal_that_is_given_up_while_it_is_stored(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line shows the new certificate all the same: otherwise it would end with the old one."""
    keyring = federation.keyring("hospital_a", since=federation.now - timedelta(days=25))
    store, storing, go_on = Keyring.store, threading.Event(), threading.Event()

    def stored(self: Keyring, *words: bytes) -> None:
        storing.set()
        go_on.wait(20)
        store(self, *words)

    async with GrpcLink(federation.addresses.control, keyring, patience=HASTY) as link:
        monkeypatch.setattr(Keyring, "store", stored)
        before, renewing = link._line.channel, asyncio.create_task(link.renew())
        await asyncio.to_thread(storing.wait, 20)
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        go_on.set()
        async with asyncio.timeout(20):
            while link._line.channel is before:  # noqa: ASYNC110  # a thread's end goes unannounced
                await asyncio.sleep(0.01)
        assert not keyring.needs_renewal(federation.now)
        await link.leave()


async def test_a_port_in_use_is_named(federation: Federation) -> None:
    """A second coordinator on the same port says so instead of sharing it."""
    with pytest.raises(
        SettingError, match=rf"port {federation.port}: another program is listening there"
    ) as error:
        await GrpcServer(federation.callers()).start(
            federation.desk,
            host="127.0.0.1",
            port=federation.port,
            pair=federation.pair,
            ca_pem=federation.authority.ca_pem,
        )
    assert "--port" in error.value.advice


async def test_an_address_of_another_machine(federation: Federation) -> None:
    """A name that nobody knows is an error about the host, and not about the port."""
    with pytest.raises(SettingError, match=r"nowhere\.invalid port 0") as error:
        await GrpcServer(federation.callers()).start(
            federation.desk,
            host="nowhere.invalid",
            port=0,
            pair=federation.pair,
            ca_pem=federation.authority.ca_pem,
        )
    assert "--host" in error.value.advice


async def test_a_closing_port_lets_waiting_sites_go(federation: Federation) -> None:
    """A site that waits for work is answered at once when the coordinator stops, then finds nobody."""
    async with federation.link("hospital_a", patience=Patience(wait_seconds=25)) as link:
        waiting = asyncio.create_task(link.next_task(()))
        await federation.desk.asked.wait()
        async with asyncio.timeout(10):
            await federation.server.stop(25)
            assert await waiting is None
        with pytest.raises(Unreachable):
            await link.leave()


async def test_a_line_that_is_hung_up_ends_its_calls(federation: Federation) -> None:
    """Closing a line ends a waiting call as unreachable, not as if its task were cancelled."""
    link = federation.link("hospital_a")
    waiting = asyncio.create_task(link.next_task(()))
    await federation.desk.asked.wait()
    await link.close()
    with pytest.raises(Unreachable):
        await waiting


async def test_a_coordinator_that_was_restarted_is_found_again(
    federation: Federation, tmp_path: Path
) -> None:
    """After a stop and a start on the same port the same line works, and a transfer waits for it."""
    patient = Patience(attempts=100, first_pause_seconds=0.05, longest_pause_seconds=0.1)
    async with federation.link("hospital_a", patience=patient) as link:
        await link.leave()
        await federation.server.stop(0)
        with pytest.raises(Unreachable):
            await link.leave()
        await federation.start_control(federation.port)
        await link.fetch(federation.desk.lay(b"model"), tmp_path / "model")
        await link.leave()
    assert [("leave", "hospital_a")] * 2 == federation.desk.said


async def test_this_machine_is_dialled_directly(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A company's proxy in the environment does not stand between two programs of one machine."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    async with federation.link("hospital_a") as link:
        await link.leave()
    assert [("leave", "hospital_a")] == federation.desk.said


async def test_other_machines_are_dialled_through_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site that may only use its HTTP proxy reaches the coordinator through it, TLS end to end."""
    one = Federation(tmp_path, hosts=("coordinator.example",))
    await one.start()
    proxy = CuttingProxy(one.port, connect=True)
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{await proxy.start()}")
    async with GrpcLink("coordinator.example:7443", one.keyring("hospital_a"), patience=HASTY) as link:
        await link.leave()
    await proxy.stop()
    await one.stop()
    assert ["CONNECT coordinator.example:7443 HTTP/1.1"] == proxy.asked
    assert [("leave", "hospital_a")] == one.desk.said
