"""Parcels to fetch: encoded once, named by their digest, never mixed up."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pfl_common.errors import Refused
from pfl_common.files.recycler import WORTH, Blanks
from pfl_common.models import catalogue
from pfl_common.spec.beginning import Beginning
from pfl_common.spec.manifest import Entry, changing_names, manifest_hash
from pfl_common.spec.messages import Blob, header_down
from pfl_common.spec.run import Header, Kind, Task
from pfl_common.tensors import codec
from pfl_common.tensors.state import State
from pfl_deploy.simulation.loopback import OpenEnvelopes
from pfl_server.envelopes import Posted
from pfl_server.run.encoded_parcels import pin_encoding
from pfl_server.sites import downloads as downloads_module
from pfl_server.sites.downloads import AT_ONCE, Ahead, Downloads
from pfl_server.store import shelf as shelf_module
from pfl_server.store.round_base import Base
from pfl_server.store.run_store import Books
from pfl_server.store.shelf import Shelf
from tests.server.support.federation import build_spec, open_run
from tests.server.support.learners import build_small, make_spec
from tests.server.support.lives import play

STATE = State({"w": torch.arange(3.0)})
MANIFEST = (Entry("w", "float32", (3,)),)
HEADER = Header("run-1", 3, 1, Kind.TRAIN, "train", "down", "coordinator", "m", state="hash")


def build_shelf(folder: Path) -> Shelf:
    return Shelf(folder / "shelf", OpenEnvelopes())


class Half:
    """Sends one thing to newcomers and another to the rest, and counts how often it is asked."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []

    def welcome(self, state: State) -> State:
        self.sent.append(("welcome", 0))
        return state

    def send(self, state: State, client: str, task: Task) -> State:
        self.sent.append((client, task.since))
        return state


def test_a_file_is_named_by_its_digest(tmp_path: Path) -> None:
    """What is fetched can be checked by its name alone."""
    posted = build_shelf(tmp_path).put(STATE, HEADER, MANIFEST)
    raw = build_shelf(tmp_path).path(posted.blob.digest).read_bytes()
    assert (12, 12, ()) == (posted.blob.size, len(raw), posted.header.groups)
    assert posted.blob.digest == hashlib.sha256(raw).hexdigest()


def test_a_restart_serves_the_same_bytes_on(tmp_path: Path) -> None:
    """Found again by header and recipient, as it was closed; a torn file or another header is made anew."""
    posted = build_shelf(tmp_path).put(STATE, HEADER, MANIFEST)
    shelf = build_shelf(tmp_path)
    other = State({"w": torch.ones(3)})
    assert posted == shelf.put(other, HEADER, MANIFEST)
    assert posted != shelf.put(other, HEADER, MANIFEST, who="a")
    assert posted != shelf.put(other, replace(HEADER, attempt=2), MANIFEST)
    shelf.path(posted.blob.digest).write_bytes(b"torn")
    assert posted.blob != shelf.put(other, HEADER, MANIFEST).blob


@pytest.mark.parametrize("digest", ["0" * 64, "../journal.sqlite", "", "0" * 63 + "/", "draft-0"])
def test_nothing_else_can_be_fetched(tmp_path: Path, digest: str) -> None:
    """Only what lies on the shelf, by its whole digest."""
    shelf = build_shelf(tmp_path)
    (shelf.folder / "draft-0").write_bytes(b"half written")
    with pytest.raises(Refused) as refused:
        shelf.path(digest)
    assert "unknown_blob" == refused.value.code


def test_clearing_spares_what_is_being_written(tmp_path: Path) -> None:
    """A draft belongs to a thread that is still writing; a new process has no such threads."""
    shelf = build_shelf(tmp_path)
    init = shelf.put(STATE, replace(HEADER, round=0, attempt=0), MANIFEST)
    kept = shelf.put(State({"w": torch.zeros(3)}), HEADER, MANIFEST)
    shelf.put(State({"w": torch.ones(3)}), replace(HEADER, attempt=2), MANIFEST)
    (shelf.folder / "drafts" / "7").write_bytes(b"half written")
    shelf.keep_only(3, 1)
    found = {path.name for path in shelf.folder.iterdir() if path.suffix != ".json"}
    assert {init.blob.digest, kept.blob.digest, "drafts"} == found
    assert (shelf.folder / "drafts" / "7").exists()
    assert 2 == len(list(shelf.folder.glob("*.json")))
    build_shelf(tmp_path)
    assert [] == list((shelf.folder / "drafts").iterdir())


@pytest.mark.parametrize("read", [False, True], ids=["unread", "read"])
def test_a_parcel_is_written_over_one_that_nobody_needs(tmp_path: Path, read: bool) -> None:
    """The very same file; whoever still reads the old one reads on what it was, and the new one is another file."""
    blanks, folder = Blanks(tmp_path / "blanks", most=8 * WORTH), tmp_path / "shelf"
    shelf, manifest = Shelf(folder, OpenEnvelopes(), blanks), (Entry("w", "float32", (WORTH // 4,)),)
    old = shelf.path(shelf.put(State({"w": torch.zeros(WORTH // 4)}), HEADER, manifest).blob.digest)
    number = old.stat().st_ino
    with old.open("rb") if read else nullcontext() as reader:
        shelf.keep_only(3, 2)
        new = State({"w": torch.ones(WORTH // 4)})
        posted = shelf.put(new, replace(HEADER, attempt=2), manifest)
        assert bytes(WORTH) == (reader.read() if reader else bytes(WORTH))
    assert (not read) == (number == shelf.path(posted.blob.digest).stat().st_ino)
    assert new["w"].numpy().tobytes() == shelf.path(posted.blob.digest).read_bytes()
    with pytest.raises(Refused):
        shelf.path(old.name)


def test_one_state_written_twice_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that encode the same state do not write into one another's file."""
    both, encode = threading.Barrier(2, timeout=10), codec.encode

    def meet(state: State, manifest: tuple[Entry, ...], out: object, changes: None) -> tuple[str, ...]:
        both.wait()
        groups = encode(state, manifest, out, changes)
        both.wait()
        return groups

    monkeypatch.setattr(codec, "encode", meet)
    shelf, blobs = build_shelf(tmp_path), []
    threads = [
        threading.Thread(target=lambda: blobs.append(shelf.put(STATE, HEADER, MANIFEST).blob))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 2 == len(blobs)
    assert [blobs[0]] * 2 == blobs
    assert 12 == shelf.path(blobs[0].digest).stat().st_size


@pytest.mark.parametrize(
    "per_client, expected", [(False, {"welcome", "*1", "*2"}), (True, {"welcome", "a1", "b1", "b2"})]
)
async def test_a_parcel_is_made_once_for_all_it_fits(
    tmp_path: Path, per_client: bool, expected: set[str]
) -> None:
    """What a method may say itself differs by how long a site was away; a reply of its own also by the site."""
    half, books = Half(), open_run(tmp_path, build_spec())
    spec = books.spec
    first = State({e.name: torch.zeros(e.shape) for e in spec.manifest(Kind.TRAIN, "train", "down")})
    books = replace(books, half=half, method=replace(books.method, per_client=per_client, server=Half))
    downloads = Downloads(books, "hash", Base(2, first))
    for site, since in [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("b", 2), ("a", 1)]:
        task = Task(Kind.TRAIN, 3, 9, attempt=2, since=since)
        assignment = await downloads.assignment(site, task)
        assert (task, header_down(spec, task, state="hash")) == (assignment.task, assignment.header)
    made = [("welcome" if who == "welcome" else f"{who if per_client else '*'}{n}") for who, n in half.sent]
    assert sorted(expected) == sorted(made)
    books.journal.close()


async def test_most_methods_send_everybody_the_same_parcel(tmp_path: Path) -> None:
    """However long a site was away, and if it is new: closed once, and found again after a restart."""
    books = open_run(tmp_path, build_spec())
    assert books.method.sends_alike
    before = set(books.shelf.folder.glob("*.json"))
    for _ in range(2):
        downloads = Downloads(books, "hash", Base(2, books.first))
        for site, since in [("a", 0), ("b", 1), ("c", 2)]:
            task = Task(Kind.TRAIN, 3, 9, attempt=2, since=since)
            assignment = await downloads.assignment(site, task)
            assert (task, header_down(books.spec, task, state="hash")) == (assignment.task, assignment.header)
        assert 1 == len(downloads._made)
        books = replace(books, shelf=Shelf(books.shelf.folder, books.shelf.envelopes))
    assert 1 == len(set(books.shelf.folder.glob("*.json")) - before)
    books.journal.close()


@pytest.fixture
def changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Books:
    """A run of small networks whose downloads cross as changes."""
    monkeypatch.setitem(catalogue._BACKBONES, "small", build_small)
    spec = pin_encoding(replace(make_spec(), encoding="int8", downlink="delta"))
    return open_run(tmp_path, spec)


async def read_parcels(downloads: Downloads, books: Books, sinces: dict[str, int]) -> dict[str, bytes]:
    """What each site is sent in round 3; all headers say the same of what they hold then."""
    found, said = {}, set()
    for site, since in sinces.items():
        assignment = await downloads.assignment(site, Task(Kind.TRAIN, 3, 5, since=since))
        found[site] = books.shelf.path(assignment.blob.digest).read_bytes()
        said.add(assignment.header.sent)
    assert 1 == len(said)
    return found


async def test_a_change_for_those_that_were_in_the_round_before(changes: Books) -> None:
    """And the whole for a newcomer, for one that was away, and for one that could not use its last download; each of
    the two is made once, and both lead to the same numbers.
    """
    delta, whole = changes.spec.delta("train"), changes.spec.manifest(Kind.TRAIN, "train", "down")
    names = changing_names(delta)
    before = changes.first.only(names)
    state = changes.first.apply(lambda value: value + 1 if value.is_floating_point() else value)
    downloads = Downloads(changes, "hash", Base(2, state, before))
    downloads.whole = frozenset("d")
    found = await read_parcels(downloads, changes, {"a": 2, "b": 2, "c": 1, "d": 2, "e": 0})
    assert found["a"] == found["b"] != found["c"] == found["d"] == found["e"]
    assert 2 == len(downloads._made)
    one = codec.decode(bytearray(found["a"]), delta, (), before)
    other = codec.decode(bytearray(found["c"]), whole, ())
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert not any(torch.equal(one[name], before[name]) for name in names)
    changes.journal.close()


async def test_no_change_after_a_fall(changes: Books) -> None:
    """Those that were in the round before are sent the older state whole, as it is."""
    downloads = Downloads(changes, "hash", Base(1, changes.first, changes.first))
    found = await read_parcels(downloads, changes, {"a": 2, "b": 0})
    assert found["a"] == found["b"]
    whole = codec.decode(bytearray(found["a"]), changes.spec.manifest(Kind.TRAIN, "train", "down"), ())
    assert all(torch.equal(changes.first[name], value) for name, value in whole.items())
    changes.journal.close()


@pytest.mark.parametrize("begun", [False, True])
async def test_the_first_download(changes: Books, begun: bool) -> None:
    """The change of the first model, which every site has; the whole where the run begins from another one's state."""
    source = Beginning("run-0", "0" * 64, 3, "0" * 64) if begun else None
    books = replace(changes, spec=replace(changes.spec, begins_from=source))
    downloads, task = Downloads(books, "hash", books.beginning), Task(Kind.TRAIN, 1, 5)
    assignment = await downloads.assignment("a", task)
    delta, whole = books.spec.delta("train"), books.spec.manifest(Kind.TRAIN, "train", "down")
    assert manifest_hash(whole if begun else delta) == assignment.header.manifest
    parcel = bytearray(books.shelf.path(assignment.blob.digest).read_bytes())
    found = codec.decode(parcel, whole if begun else delta, (), books.first)
    assert all(torch.equal(books.first[name], value) for name, value in found.items())
    changes.journal.close()


async def test_a_disk_that_was_full_is_asked_again(changes: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """What sites are sent could not be laid down: the next asking tries anew."""
    troubles, find = [OSError("full")], downloads_module.find_sent

    def fail_once(*words: object) -> object:
        if troubles:
            raise troubles.pop()
        return find(*words)

    monkeypatch.setattr(downloads_module, "find_sent", fail_once)
    downloads, task = Downloads(changes, "hash", Base(0, changes.first)), Task(Kind.TRAIN, 1, 5)
    with pytest.raises(OSError, match="full"):
        await downloads.assignment("a", task)
    assert (await downloads.assignment("a", task)).header.sent
    changes.journal.close()


async def test_few_replies_are_made_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten that are asked for at once two are being made: each holds models, and a thread that others need."""
    now, most = 0, 0

    async def in_a_thread(function: Callable[..., object], *words: object) -> object:
        nonlocal now, most
        now += 1
        most = max(most, now)
        # All others that may go on go on now.
        for _ in range(20):
            await asyncio.sleep(0)
        now -= 1
        return function(*words)

    monkeypatch.setattr(downloads_module.asyncio, "to_thread", in_a_thread)
    half, books = Half(), open_run(tmp_path, build_spec())
    first = State({e.name: torch.zeros(e.shape) for e in books.spec.manifest(Kind.TRAIN, "train", "down")})
    books = replace(books, half=half, method=replace(books.method, per_client=True))
    downloads, task = (
        Downloads(books, "hash", Base(2, first)),
        Task(Kind.TRAIN, 3, 9, attempt=2, since=2),
    )
    await asyncio.gather(*(downloads.assignment(f"s{number}", task) for number in range(10)))
    assert (10, AT_ONCE) == (len(half.sent), most)
    books.journal.close()


def test_clearing_waits_for_a_parcel_to_get_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its note and its bytes nothing is cleared: a parcel that was handed out can always be fetched."""
    shelf, replace_file, cleared = build_shelf(tmp_path), os.replace, []

    def slow(source: Path, target: Path) -> None:
        if len(Path(target).name) == 64 and not cleared:
            cleared.append(threading.Thread(target=lambda: shelf.keep_only(9, 9)))
            cleared[0].start()
            cleared[0].join(0.2)
            assert cleared[0].is_alive(), "the clearing had to wait"
        replace_file(source, target)

    monkeypatch.setattr(shelf_module.os, "replace", slow)
    monkeypatch.setattr(
        OpenEnvelopes, "post", lambda self, header, write, folder, over: _posted(header, write, folder)
    )
    posted = shelf.put(STATE, replace(HEADER, round=9, attempt=9), MANIFEST)
    cleared[0].join(10)
    assert 12 == shelf.path(posted.blob.digest).stat().st_size


def _posted(header: Header, write: Callable[[object], object], folder: Path) -> Posted:
    content = io.BytesIO()
    write(content)
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    (folder / digest).write_bytes(content.getvalue())
    return Posted(header, Blob(digest, len(content.getvalue())))


NEXT = Task(Kind.TRAIN, 2, 2)


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return open_run(tmp_path, build_spec())


async def test_what_was_prepared_is_handed_out(books: Books) -> None:
    """The download of the next round is made once, under the very digest of the state that was saved."""
    ahead = Ahead(books)
    base = await ahead.settle(Base(1, books.first), NEXT)
    digest = books.digest_after(1)
    await asyncio.sleep(0)
    downloads = ahead.downloads(NEXT, digest, base)
    assigned = await downloads.assignment("a", replace(NEXT, since=1))
    assert header_down(books.spec, NEXT, state=digest) == assigned.header
    assert 1 == len(downloads._made), "it was there already, under the same name"
    books.journal.close()


async def test_a_change_is_prepared_too(changes: Books) -> None:
    """What sites are sent is found once, while the last state is written; the checkpoint has what they hold now."""
    ahead, names = Ahead(changes), changing_names(changes.spec.delta("train"))
    state = changes.first.apply(lambda value: value + 1 if value.is_floating_point() else value)
    base = await ahead.settle(Base(1, state, changes.first.only(names)), NEXT)
    assert ahead._preparing is not None
    await ahead._preparing
    downloads = ahead.downloads(NEXT, changes.digest_after(1), base)
    assert [("delta", "train", "train")] == [*downloads._made]
    assigned = await downloads.assignment("a", replace(NEXT, since=1))
    assert header_down(changes.spec, NEXT, as_delta=True).manifest == assigned.header.manifest
    assert ([("delta", "train", "train")], changes.digest_after(1)) == (
        [*downloads._made],
        assigned.header.state,
    )
    kept = changes.read(1)
    assert set(names) == kept.sent.keys()
    assert all(torch.equal(changes.first[name], kept.sent[name]) for name in names)
    changes.journal.close()


@pytest.mark.parametrize("change", [{"attempt": 2}, {"round": 3}, {"kind": Kind.FINISH}])
async def test_what_does_not_fit_is_not_used(books: Books, change: dict[str, object]) -> None:
    """Another attempt, another round, the end of the run: made anew; so is a download of another state."""
    ahead = Ahead(books)
    base = await ahead.settle(Base(1, books.first), NEXT)
    await asyncio.sleep(0)
    assert {} == ahead.downloads(replace(NEXT, **change), books.digest_after(1), base)._made
    base = await ahead.settle(Base(1, books.first), NEXT)
    await asyncio.sleep(0)
    assert {} == ahead.downloads(NEXT, "of another state", base)._made
    books.journal.close()


async def test_replies_of_each_sites_own_are_not_prepared(books: Books) -> None:
    """What differs from site to site is made when the site asks."""
    ahead = Ahead(replace(books, method=replace(books.method, per_client=True)))
    base = await ahead.settle(Base(1, books.first), NEXT)
    await asyncio.sleep(0)
    assert {} == ahead.downloads(NEXT, books.digest_after(1), base)._made
    books.journal.close()


def test_in_a_run_each_broadcast_is_closed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all rounds: one for newcomers, one for each following round, one for the end; none twice."""
    closed: list[str] = []
    from pfl_deploy.simulation.loopback import OpenEnvelopes

    post = OpenEnvelopes.post

    def note(self: OpenEnvelopes, header: object, *rest: object, over: object) -> object:
        closed.append(header.to_json())
        return post(self, header, *rest, over=over)

    monkeypatch.setattr(OpenEnvelopes, "post", note)
    play(tmp_path, build_spec(rounds=4))
    assert len(set(closed)) == len(closed)
    assert 2 + 3 + 1 == len(closed)
