"""A site behind a line that lies: nothing that is not the coordinator's own for this very task gets to the trainer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import pytest

from pfl_client.daemon import retry
from pfl_client.envelopes.sealed import SealedEnvelopes
from pfl_client.run_folder.folder import RunFolder
from pfl_client.run_folder.outbox import Outbox
from pfl_client.trainer_process.task_errors import Tampered
from pfl_common import sealing
from pfl_common.errors import Refused
from pfl_common.files import atomic
from pfl_common.identity import Keyring
from pfl_common.identity.cards import open_card
from pfl_common.spec.messages import Assignment, Joined, Mark, Offer, Over, Receipt, header_of_init, header_up
from pfl_common.spec.run import Header, Kind, RunSpec, Task
from tests.client.support.forged_downloads import FORGED
from tests.client.support.sealed_line import INIT, OTHER, PLAIN, SITE, Line, Place, Post, Sent, Trainer, pin
from tests.common.sealing.members import PATTERN, Members, find_bytes, vouch
from tests.common.support.parses import Parses, counted

KEY = "000001-1-train"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits here."""
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.0)


@pytest.fixture
def post(tmp_path: Path) -> Post:
    """A coordinator and two sites that have enrolled."""
    return Post(Members(tmp_path / "federation"))


@pytest.fixture
def place(post: Post, tmp_path: Path) -> Place:
    """One of the sites."""
    return Place(post, tmp_path / "state")


@pytest.fixture(params=["in memory", "as a file"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a download gets to the trainer."""
    if request.param == "as a file":
        monkeypatch.setattr("pfl_client.trainer_process.large_parcels.MESSAGE_LIMIT", 0)
    return request.param


@pytest.mark.parametrize("how", FORGED)
async def test_a_download_that_is_not_the_coordinators_for_this_task(
    place: Place, post: Post, way: str, how: str
) -> None:
    """Declined as tampered before the trainer sees a byte of it; the genuine one is trained on afterwards."""
    line, trainer = await place.live(FORGED[how](post), post.send(b"the genuine one"))
    assert [(KEY, "tampered")] == line.declined
    assert [b"the genuine one"] == trainer.seen
    assert [KEY] == [offer.key for offer, _ in line.submitted]
    assert [] == find_bytes(place.run, PATTERN * 2)
    assert "tampered" == Tampered.reason


async def test_a_phase_the_run_does_not_have(place: Place, post: Post) -> None:
    """A task of an unknown phase has no manifest: declined, and no other error."""
    assignment, raw = post.send()
    line, trainer = await place.live((replace(assignment, task=replace(assignment.task, phase="x")), raw))
    assert ([(KEY, "tampered")], []) == (line.declined, trainer.seen)


async def test_refusals_tell_nothing_of_content(place: Place, post: Post) -> None:
    """What the coordinator hears of it names no byte, no key and no file of the site."""
    line, _ = await place.live(*(forge(post) for forge in FORGED.values()))
    assert len(FORGED) == len(line.words)
    for words in line.words:
        assert PATTERN.hex() not in words
        assert str(place.state) not in words
        assert "ContentKey" not in words


async def test_the_plain_download_does_not_stay(place: Place, post: Post, way: str) -> None:
    """After its task nothing of it lies in the site's folder, neither sealed nor open."""
    line, trainer = await place.live(post.send(), post.send(task=Task(Kind.FINISH, 1, 3, since=1)))
    assert [PLAIN, PLAIN] == trainer.seen
    assert [] == line.declined
    assert [] == place.downloads()
    assert [] == find_bytes(place.run, PATTERN)


async def test_a_killed_daemon_leaves_nothing_open(
    place: Place, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while the trainer works on an opened file, as very large ones are: the next start takes it away first."""
    monkeypatch.setattr("pfl_client.trainer_process.large_parcels.MESSAGE_LIMIT", 0)
    monkeypatch.setattr("pfl_client.run_folder.handover.SHARED_LIMIT", 0)
    joined = post.join()
    working = asyncio.Event()

    class Stuck(Trainer):
        """Never ends."""

        async def work(self, *words: object) -> object:
            working.set()
            return await asyncio.Event().wait()

    life = asyncio.create_task(place.daemon(Line(joined, [post.send()], post), Stuck()).run())
    await asyncio.wait_for(working.wait(), 20)
    assert [".raw"] == [Path(name).suffix for name in place.downloads() if "." in name]
    life.cancel()
    await asyncio.gather(life, return_exceptions=True)
    await place.live(joined=joined)
    assert [] == find_bytes(place.run, PATTERN)


# -- joining


def test_a_coordinator_without_a_good_card(place: Place, post: Post, tmp_path: Path) -> None:
    """Of another authority, run out, not begun, a site's own, cut, or none: nobody is met."""
    authority, now = post.members.authority, post.members.now
    good = authority.coordinator_card(now=now)
    cards = {
        "another authority": Members(tmp_path / "other").authority.coordinator_card(now=now),
        "ended": authority.coordinator_card(now=now - timedelta(days=366)),
        "not begun": authority.coordinator_card(now=now + timedelta(days=2)),
        "a site's": post.members.card_file(OTHER).read_bytes(),
        "cut": good[:-1],
        "none": b"",
        "spaces": good + b"\n",
    }
    for how, card in cards.items():
        envelopes = SealedEnvelopes(post.keyrings[SITE])
        with pytest.raises(Refused) as refused:
            envelopes.meet(card)
        assert ("card", how) == (refused.value.code, how)
        assignment, _ = post.send()
        with pytest.raises(Refused, match="no card"):
            envelopes.receive(assignment.header, assignment.blob, assignment.seal)
    SealedEnvelopes(post.keyrings[SITE]).meet(good)


async def test_a_false_coordinator_gets_nothing(place: Place, post: Post, tmp_path: Path) -> None:
    """The site ends with the reason, and has fetched, opened and said nothing of the run."""
    joined, raw = post.join()
    false = Members(tmp_path / "other").authority.coordinator_card(now=datetime.now(UTC))
    line, trainer = Line((replace(joined, card=false), raw), [], post), Trainer()
    with pytest.raises(Refused, match="card"):
        await place.daemon(line, trainer).run()
    assert ([], [], False) == (line.fetched, trainer.first, place.run.exists())


Join: TypeAlias = Callable[[Post], tuple[Joined, bytes]]


def another_first_model(post: Post) -> tuple[Joined, bytes]:
    """Changed on its way."""
    joined, raw = post.join()
    return joined, raw[:-1] + bytes([raw[-1] ^ 1])


def another_specification(post: Post) -> tuple[Joined, bytes]:
    """Somebody between changed a setting of the run: the first model is bound to the specification's hash."""
    joined, raw = post.join()
    return replace(joined, spec=replace(post.spec, seed=8).to_json()), raw


def a_task_as_the_first_model(post: Post) -> tuple[Joined, bytes]:
    """A genuine download, but no first model."""
    joined, _ = post.join()
    assignment, raw = post.send()
    return replace(joined, init=assignment.blob, seal=assignment.seal), raw


def anothers_first_model(post: Post) -> tuple[Joined, bytes]:
    """The other site's wrap."""
    joined, raw = post.join()
    header = Header.from_json(header_of_init(post.spec).to_json())
    _, theirs, _ = post.seal(INIT, header, site=OTHER)
    return replace(joined, seal=theirs), raw


@pytest.mark.parametrize(
    "forge", [another_first_model, another_specification, a_task_as_the_first_model, anothers_first_model]
)
async def test_a_first_model_that_is_not_the_coordinators(place: Place, post: Post, forge: Join) -> None:
    """The site ends with the reason before the trainer sees it; started again with the genuine one, it works."""
    line, trainer = Line(forge(post), [], post), Trainer()
    with pytest.raises(Tampered):
        await place.daemon(line, trainer).run()
    assert [] == trainer.first
    assert [] == place.downloads()
    assert not (place.run / "init.raw").exists()
    _, trainer = await place.live(post.send())
    assert [INIT] == trainer.first


async def test_the_first_model_is_fetched_once(place: Place, post: Post) -> None:
    """A second start finds it; one made anew after the coordinator lost its own is fetched again."""
    joined = post.join()
    lines = [(await place.live(joined=one))[0] for one in (joined, joined, post.join())]
    assert [1, 0, 1] == [len(line.fetched) for line in lines]


@pytest.mark.parametrize("note", [b"", b'"', b"null"])
async def test_a_torn_note_of_the_first_model(place: Place, post: Post, note: bytes) -> None:
    """Killed while it was written: the model is fetched again, and no start fails."""
    joined = post.join()
    await place.live(joined=joined)
    (place.run / "init.json").write_bytes(note)
    line, trainer = await place.live(joined=joined)
    assert ([joined[0].init.digest], [INIT]) == (line.fetched, trainer.first)


async def test_the_first_model_lasts_before_its_note_says_so(
    place: Place, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note is believed for ever after: a power loss must not leave it beside a torn model."""
    synced = []
    sync = atomic.sync

    def watch(path: Path) -> None:
        if path.name == "init.raw":
            synced.append((path.read_bytes(), (path.parent / "init.json").exists()))
        sync(path)

    monkeypatch.setattr(atomic, "sync", watch)
    await place.live()
    await place.live(joined=post.join(b"another"))
    assert [(INIT, False), (b"another", False)] == synced


# -- what goes up


def forged_receipt(post: Post) -> Callable[[Offer], Receipt]:
    """Signed by another site."""
    return lambda offer: replace(
        post.receipt(offer),
        signature=sealing.sign_receipt(post.keyrings[OTHER].envelope_keys(), post.receipt(offer)),
    )


RECEIPTS: dict[str, Callable[[Post], Callable[[Offer], Receipt]]] = {
    "unsigned": lambda post: lambda offer: replace(post.receipt(offer), signature=b""),
    "by another site": forged_receipt,
    "for another site": lambda post: lambda offer: post.receipt(offer, site=OTHER),
    "for another task": lambda post: lambda offer: post.receipt(offer, key="000002-1-train"),
    "for another run": lambda post: lambda offer: post.receipt(offer, run="run-2"),
    "for other bytes": lambda post: lambda offer: post.receipt(offer, digest="ab" * 32),
    "renamed": lambda post: lambda offer: replace(post.receipt(offer, site=OTHER), site=SITE),
    "refitted": lambda post: (
        lambda offer: replace(post.receipt(offer, digest="ab" * 32), digest=offer.blob.digest)
    ),
}


@pytest.mark.parametrize("how", RECEIPTS)
async def test_a_receipt_that_is_not_the_coordinators_for_this_upload(
    place: Place, post: Post, how: str
) -> None:
    """It is no receipt: nothing is entered as taken, and the very same bytes are handed in again."""
    sent = post.send()
    line, trainer = await place.live(sent, answers=(RECEIPTS[how](post),))
    assert [] == place.audit()
    assert {f"{KEY}.json", f"{KEY}.parcel"} == {path.name for path in (place.run / "outbox").iterdir()}
    again, idle = await place.live(sent)
    assert (1, 0) == (len(trainer.seen), len(idle.seen))
    assert line.submitted == again.submitted
    assert [KEY] == [entry["task"] for entry in place.audit()]


async def test_a_receipt_is_kept_as_proof(place: Place, post: Post) -> None:
    """The list of what left the building has the coordinator's signature, which anybody can check."""
    line, _ = await place.live(post.send())
    (entry,), (offer, raw) = place.audit(), line.submitted[0]
    receipt = Receipt(entry["run"], entry["task"], SITE, entry["digest"], bytes.fromhex(entry["receipt"]))
    sealing.verify_receipt(post.members.coordinator, receipt, receipt.signature)
    assert (len(raw), offer.blob.digest) == (entry["bytes"], entry["digest"])


async def test_an_update_leaves_sealed_for_the_coordinator_alone(place: Place, post: Post) -> None:
    """Under the site's signature; the coordinator opens it, the other site does not; no plaintext stays."""
    line, _ = await place.live(post.send(b"down"))
    offer, raw = line.submitted[0]
    file = post.folder / "arrived"
    file.write_bytes(raw)
    envelope = sealing.Envelope(
        offer.header.to_json().encode(),
        offer.blob.digest,
        offer.blob.size,
        offer.seal.wrap,
        offer.seal.signature,
    )
    card = post.members.authority.card_of(SITE, now=post.members.now)
    vouched = sealing.verify_up(card, envelope)
    bound = vouched.binding.hash
    key = sealing.unwrap(offer.seal.wrap, post.keys, name="coordinator", header_hash=bound)
    assert PLAIN == sealing.open_to_bytes(file, key=key, vouched=vouched)
    other = post.keyrings[OTHER].envelope_keys()
    for name in (OTHER, "coordinator", SITE):
        with pytest.raises(sealing.Tampered):
            sealing.unwrap(offer.seal.wrap, other, name=name, header_hash=bound)
    assert [] == find_bytes(place.run, PATTERN)


@pytest.mark.parametrize("how", ["cut", "flipped", "longer", "another", "own wrap", "another site"])
async def test_an_outbox_that_is_torn_holds_nothing(place: Place, post: Post, how: str) -> None:
    """After a power loss an upload that is not to the last bit what was sealed counts as absent."""
    await place.live(post.send())
    folder, keyring = place.run / "outbox", post.keyrings[SITE]
    parcel, note = folder / f"{KEY}.parcel", folder / f"{KEY}.json"
    assert Outbox(folder, SealedEnvelopes(keyring)).entry(KEY) is not None
    raw = parcel.read_bytes()
    if how in ("cut", "flipped", "longer"):
        changed = {"cut": raw[:-1], "flipped": raw[:-1] + bytes([raw[-1] ^ 1]), "longer": raw + b"\0"}
        parcel.write_bytes(changed[how])
    elif how == "another":
        Outbox(folder, _met(post)).store(KEY, Outbox(folder, _met(post)).entry(KEY).offer.header, PLAIN)
        parcel.write_bytes(raw)
    elif how == "own wrap":
        note.write_text(note.read_text().replace('"own":"', '"own":"00', 1))
    else:
        keyring = post.keyrings[OTHER]
    assert None is Outbox(folder, SealedEnvelopes(keyring)).entry(KEY)


def test_nothing_is_sealed_for_a_stranger(place: Place, post: Post, tmp_path: Path) -> None:
    """Before the coordinator was met there is nobody to seal for, and nothing is left behind."""
    spec: RunSpec = pin()
    outbox = Outbox(tmp_path / "outbox", SealedEnvelopes(post.keyrings[SITE]))
    header = header_up(spec, Task(Kind.TRAIN, 1, 3), SITE, state="state")
    with pytest.raises(Refused, match="no card"):
        outbox.store(KEY, header, PLAIN)
    assert None is outbox.entry(KEY)


def test_the_same_update_twice_has_two_keys(post: Post, tmp_path: Path) -> None:
    """A task that was done again is sealed anew, never a second time under the first key."""
    envelopes = _met(post)
    header = header_up(post.spec, Task(Kind.TRAIN, 1, 3), SITE, state="state")
    closed = [envelopes.close(PLAIN, header, tmp_path / name) for name in "ab"]
    assert 2 == len({one.blob.digest for one in closed}) == len({one.seal.wrap for one in closed})
    assert (tmp_path / "a").read_bytes()[:64] != (tmp_path / "b").read_bytes()[:64]


def test_an_outbox_of_an_earlier_release_is_whole(
    post: Post, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was sealed by a program that made a wrap for itself."""
    envelopes, card = _met(post), post.members.authority.card_of(SITE, now=post.members.now)
    monkeypatch.setattr(
        sealing, "lock", lambda key, keys, header_hash: sealing.wrap(key, card, header_hash=header_hash)
    )
    header = header_up(post.spec, Task(Kind.TRAIN, 1, 3), SITE, state="state")
    closed = envelopes.close(PLAIN, header, tmp_path / "a")
    assert sealing.LOCK_BYTES != len(closed.own)
    assert envelopes.whole(Offer(KEY, header, closed.blob, closed.seal), closed.own, tmp_path / "a")


def test_a_tampered_word_beside_a_good_file(post: Post, tmp_path: Path) -> None:
    """Even with a signature over it, a header of another task does not open what lies there."""
    run = RunFolder(tmp_path / "run", post.spec, SITE, envelopes=_met(post))
    assignment, _ = post.send()
    other = replace(assignment.header, state="other")
    seal = vouch(post.keys, other, assignment.blob, wrap=assignment.seal.wrap)
    with pytest.raises(Tampered):
        run.letter(replace(assignment, header=other, seal=seal))
    run.close()


def _met(post: Post) -> SealedEnvelopes:
    envelopes = SealedEnvelopes(post.keyrings[SITE])
    envelopes.meet(post.members.authority.coordinator_card(now=post.members.now))
    return envelopes


async def test_the_coordinators_word_is_kept(place: Place, post: Post) -> None:
    """For each download that was accepted the site can show what the coordinator signed; for a forged one nothing."""
    await place.live(post.send(), next(iter(FORGED.values()))(post))
    (line,) = (place.run / "received.jsonl").read_text().splitlines()
    word = json.loads(line)
    envelope = sealing.Envelope(
        word["header"].encode(),
        word["digest"],
        word["bytes"],
        bytes.fromhex(word["wrap"]),
        bytes.fromhex(word["signature"]),
    )
    authority = post.members.authority
    card = open_card(authority.coordinator_card(now=post.members.now), authority.ca_pem)
    assert word["digest"] == sealing.verify_down(card, envelope).digest


async def test_certificates_are_not_parsed_for_tasks(place: Place, post: Post) -> None:
    """Its own and its authority's are parsed once: the tasks after the first cost no further look at them."""
    post.keyrings[SITE] = Keyring.open(post.members.folder / f"keys-{SITE}")
    tasks = [post.send(task=Task(Kind.TRAIN, number, 5, since=number - 1)) for number in range(1, 5)]
    joined = post.join()
    with counted() as parses:
        line = Counting(joined, tasks, post, parses)
        await asyncio.wait_for(place.daemon(line, Trainer()).run(), 20)
    assert 4 == len(line.submitted)
    assert [line.found[1]] * 4 == line.found[1:], "between the first task's update and the end"


class Counting(Line):
    """Notes how often certificates had been parsed at each call for work."""

    def __init__(self, joined: tuple[Joined, bytes], work: list[Sent], post: Post, parses: Parses) -> None:
        super().__init__(joined, work, post)
        self._parses, self.found = parses, list[int]()

    async def next_task(
        self, marks: tuple[Mark, ...], before: tuple[Mark, ...] = ()
    ) -> Assignment | Over | None:
        self.found.append(self._parses.count)
        return await super().next_task(marks)
