"""A site's task follows from events alone: races as lists of what came and what follows, and laws for any order."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from pfl_common.spec.messages import Blob, Offer
from pfl_common.spec.run import Header, Kind
from pfl_server.decisions.lease import Lease
from pfl_server.decisions.task_events import (
    Answer,
    Asked,
    Discarded,
    Effect,
    Event,
    Excused,
    Fetched,
    GivenUp,
    Grown,
    Lost,
    Offered,
    Prepared,
    Progressed,
    Recalled,
    ReceiptAsked,
    ReceiptFailed,
    ReceiptWritten,
    Receive,
    Rejected,
    Remove,
    Reported,
    Reserved,
    Stored,
    Took,
    TooLate,
    Unprepared,
    Unverified,
    Verified,
    Withdrawn,
    WriteReceipt,
)
from pfl_server.decisions.task_state import FOLLOWING, STEPS, TaskState, WrongStep

SIZE = 100
HEADER = Header("run-1", 1, 1, Kind.TRAIN, "train", "down", "coordinator", "manifest", "state")
FIRST, OTHER = (Offer("000001-1-train", HEADER, Blob(digest, SIZE)) for digest in ("first", "other"))
PARTS = {FIRST: Path("first.part"), OTHER: Path("other.part")}


def offered(offer: Offer = FIRST, *, offset: int = 0, now: float = 0) -> Offered:
    return Offered(offer, PARTS[offer], offset, SIZE, SIZE - offset, now)


def receive(offer: Offer = FIRST, offset: int = 0) -> Receive:
    return Receive(PARTS[offer], offset, SIZE)


def begin(*, uploads: bool = True) -> TaskState:
    """A site was heard at 0, and is called."""
    return TaskState(uploads, Lease(0))


def check(state: TaskState) -> None:
    """What holds in each state, whatever came before."""
    step, upload, spooled = state.step, state.upload, state.spooled
    assert step in STEPS
    assert state.reserved >= 0 and state.making >= 0 and state.lacking(0) >= 0
    assert state.uploads or (upload, spooled, state.offer, state.reserved) == (None, "", None, state.reserved)
    if step == "called":
        assert (False, 0, None, None, "") == (state.asked, state.making, state.offer, upload, spooled)
    if step == "handed":
        assert (None, "") == (upload, spooled)
    if step == "offered":
        assert state.offer is not None
        assert (upload is None) == bool(spooled), "an upload is on its way or in the spool"
    if step == "verifying":
        assert upload is not None and not spooled
    if step == "promised":
        assert upload is None and spooled
    if step in ("verifying", "promised", "settled"):
        assert 0 == state.reserved
    assert state.can_be_lost == (step not in ("promised", "settled"))
    if step in ("verifying", "promised") or (state.making and not state.made):
        assert not state.is_silent(1e9, lease_seconds=1), "the coordinator's time is charged to no site"


def play(state: TaskState, events: list[Event]) -> list[Effect]:
    """What follows from all of them; the state is looked at after each."""
    effects: list[Effect] = []
    for event in events:
        effects += state.handle(event)
        check(state)
    return effects


HANDED: list[Event] = [Asked(1), Prepared(HEADER, "d0", 2)]
OFFERED: list[Event] = [*HANDED, Fetched("d0", 5), Progressed(10, 6), Reserved(SIZE), offered(now=9)]
STORED: list[Event] = [*OFFERED, Grown(SIZE, 11), Stored(12)]
PROMISED: list[Event] = [*STORED, Verified("u")]
SETTLED: list[Event] = [*PROMISED, ReceiptWritten(15)]
LOST: list[Event] = [*OFFERED, Lost("deadline")]

RACES: dict[str, tuple[list[Event], list[tuple[Event, str, list[Effect]]]]] = {
    "the whole way": (
        [],
        [
            (Asked(1), "handed", []),
            (Prepared(HEADER, "d0", 2), "handed", []),
            (Fetched("d0", 5), "handed", [Took("download", 3)]),
            (Reserved(SIZE), "handed", []),
            (offered(now=9), "offered", [receive(), Took("work", 4)]),
            (Stored(12), "verifying", [Took("upload", 3)]),
            (Verified("u"), "promised", [WriteReceipt()]),
            (ReceiptWritten(15), "settled", [Took("verify", 3), Answer("u")]),
        ],
    ),
    "the deadline comes while it verifies": (
        STORED,
        [
            (Lost("deadline"), "settled", [GivenUp("deadline", "uploading")]),
            (Verified("u"), "settled", [TooLate()]),
        ],
    ),
    "wrong bytes, found after the deadline": (
        STORED,
        [
            (Lost("deadline"), "settled", [GivenUp("deadline", "uploading")]),
            (Rejected("digest"), "settled", [Remove(PARTS[FIRST])]),
        ],
    ),
    "the disk is full while it verifies, after the deadline": (
        STORED,
        [
            (Lost("deadline"), "settled", [GivenUp("deadline", "uploading")]),
            (Unverified(20), "settled", [Remove(PARTS[FIRST])]),
        ],
    ),
    "wrong bytes": (
        STORED,
        [
            (
                Rejected("digest"),
                "settled",
                [Remove(PARTS[FIRST]), GivenUp("refused:digest", "uploading")],
            ),
            (Lost("lease"), "settled", []),
        ],
    ),
    "promise, then the deadline in the same moment": (
        STORED,
        [
            (Verified("u"), "promised", [WriteReceipt()]),
            (Lost("deadline"), "promised", []),
            (ReceiptWritten(15), "settled", [Took("verify", 3), Answer("u")]),
        ],
    ),
    "the site leaves, declines and is refused while its receipt is written": (
        PROMISED,
        [
            (Lost("left"), "promised", []),
            (Lost("policy"), "promised", []),
            (Lost("refused:scores"), "promised", []),
            (ReceiptWritten(15), "settled", [Took("verify", 3), Answer("u")]),
        ],
    ),
    "a second offer of the same bytes while the first arrive": (
        OFFERED,
        [
            (Grown(40, 10), "offered", []),
            (Reserved(60), "offered", []),
            (offered(offset=30, now=11), "offered", [receive(offset=30)]),
            (Stored(12), "verifying", [Took("upload", 3)]),
        ],
    ),
    "a second offer of other bytes while the first arrive": (
        OFFERED,
        [
            (Grown(40, 10), "offered", []),
            (Discarded(), "handed", [Remove(PARTS[FIRST])]),
            (Reserved(SIZE), "handed", []),
            (offered(OTHER, now=11), "offered", [receive(OTHER)]),
            (Lost("lease"), "settled", [Remove(PARTS[OTHER]), GivenUp("lease", "uploading")]),
        ],
    ),
    "given up while room is made": (
        HANDED,
        [
            (Reserved(SIZE), "handed", []),
            (Lost("deadline"), "settled", [GivenUp("deadline", "working")]),
            (offered(now=9), "settled", [Remove(PARTS[FIRST]), TooLate()]),
        ],
    ),
    "given up while room is made for other bytes": (
        OFFERED,
        [
            (Lost("lease"), "settled", [Remove(PARTS[FIRST]), GivenUp("lease", "uploading")]),
            (Discarded(), "settled", []),
            (Reserved(SIZE), "settled", []),
            (offered(OTHER, now=9), "settled", [Remove(PARTS[OTHER]), TooLate()]),
        ],
    ),
    "given up just before the last byte": (
        LOST,
        [(Grown(SIZE, 20), "settled", []), (Stored(20), "settled", [TooLate()])],
    ),
    "an upload is cut while it verifies, and begun again": (
        STORED,
        [
            (Unverified(20), "offered", []),
            (Reserved(0), "offered", []),
            (offered(offset=SIZE, now=21), "offered", [receive(offset=SIZE)]),
            (Stored(22), "verifying", [Took("upload", 10)]),
            (Verified("u"), "promised", [WriteReceipt()]),
        ],
    ),
    "declined after being handed": (
        HANDED,
        [
            (Lost("disk_full"), "settled", [GivenUp("disk_full", "working")]),
            (Lost("disk_full"), "settled", []),
        ],
    ),
    "drawn to drop out": (HANDED, [(Lost("dropped"), "settled", [GivenUp("dropped", "drawn")])]),
    "declined before it came": ([], [(Lost("policy"), "settled", [GivenUp("policy", "called")])]),
    "given up while its download is made": (
        [Asked(1)],
        [
            (Lost("deadline"), "settled", [GivenUp("deadline", "working")]),
            (Prepared(HEADER, "d0", 9), "settled", []),
            (Fetched("d0", 10), "settled", []),
        ],
    ),
    "the site asks again while its download is made": (
        [Asked(1)],
        [
            (Asked(2), "handed", []),
            (Unprepared(3), "handed", []),
            (Prepared(HEADER, "d0", 4), "handed", []),
            (Fetched("d0", 5), "handed", [Took("download", 1)]),
            (Fetched("d0", 6), "handed", []),
        ],
    ),
    "the site is started again while it uploads": (
        OFFERED,
        [
            (Asked(20), "offered", []),
            (Prepared(HEADER, "d0", 21), "offered", []),
            (Reserved(70), "offered", []),
            (offered(offset=30, now=22), "offered", [receive(offset=30)]),
        ],
    ),
    "the site asks again while its update verifies": (
        STORED,
        [
            (Asked(20), "verifying", []),
            (Verified("u"), "promised", [WriteReceipt()]),
            (Prepared(HEADER, "d0", 21), "promised", []),
            (ReceiptWritten(22), "settled", [Took("verify", 1), Answer("u")]),
        ],
    ),
    "its receipt is not written, and asked for again": (
        PROMISED,
        [
            (ReceiptFailed(20), "offered", []),
            (ReceiptAsked(), "promised", [WriteReceipt()]),
            (ReceiptAsked(), "promised", []),
            (ReceiptWritten(30), "settled", [Answer("u")]),
        ],
    ),
    "its receipt is not written, and the lease ends": (
        PROMISED,
        [
            (ReceiptFailed(20), "offered", []),
            (Lost("lease"), "settled", [GivenUp("lease", "uploading")]),
            (ReceiptAsked(), "settled", [TooLate()]),
        ],
    ),
    "its receipt is not written, and it comes with other bytes": (
        PROMISED,
        [
            (ReceiptFailed(20), "offered", []),
            (Reserved(SIZE), "offered", []),
            (offered(OTHER, now=21), "offered", [receive(OTHER)]),
            (Stored(25), "verifying", []),
            (Verified("u"), "promised", [WriteReceipt()]),
        ],
    ),
    "an upload goes on after a restart": (
        [],
        [
            (Recalled(HEADER), "called", []),
            (Reserved(70), "called", []),
            (offered(offset=30, now=5), "offered", [receive(offset=30)]),
            (Stored(7), "verifying", [Took("upload", 2)]),
        ],
    ),
    "an answer after it is settled": (
        SETTLED,
        [
            (Lost("left"), "settled", []),
            (ReceiptWritten(16), "settled", []),
            (ReceiptAsked(), "settled", [TooLate()]),
            (Reported(), "settled", []),
            (Withdrawn(), "settled", []),
        ],
    ),
    "nobody waits any more while its receipt is written": (
        PROMISED,
        [(Withdrawn(), "settled", []), (ReceiptWritten(15), "settled", [])],
    ),
    "nobody waits any more: what has come stays": (
        OFFERED,
        [(Withdrawn(), "settled", []), (Lost("left"), "settled", [])],
    ),
    "nobody waits any more while it verifies: what has come stays": (
        STORED,
        [(Withdrawn(), "settled", []), (Unverified(20), "settled", [])],
    ),
}


@pytest.mark.parametrize(("before", "steps"), RACES.values(), ids=RACES.keys())
def test_a_race(before: list[Event], steps: list[tuple[Event, str, list[Effect]]]) -> None:
    """Each event leads to this state and gives exactly these effects."""
    state = begin()
    play(state, before)
    for event, step, effects in steps:
        assert (effects, step) == (state.handle(event), state.step), event
        check(state)


def test_a_task_that_asks_for_no_update() -> None:
    """It ends with its report, and what a site only measures is not timed; nothing can be uploaded for it."""
    state = begin(uploads=False)
    assert [] == play(state, [*HANDED, Fetched("d0", 5), Progressed(1, 6)])
    with pytest.raises(WrongStep, match="Offered cannot come while a task is handed: it asks for no update"):
        state.handle(offered())
    assert [Answer("")] == state.handle(Reported())
    assert [] == state.handle(Reported())


@pytest.mark.parametrize(
    ("before", "event", "words"),
    [
        ([], Stored(1), "Stored cannot come while a task is called"),
        ([], Prepared(HEADER, "d0", 1), "cannot come while a task is called"),
        (HANDED, Prepared(HEADER, "d0", 1), "handed: no download of it is being made"),
        (HANDED, Reported(), "handed: it asks for an update"),
        (HANDED, Stored(9), "Stored cannot come while a task is handed"),
        (OFFERED, offered(OTHER), "offered: the upload under way was not discarded"),
        (OFFERED, ReceiptAsked(), "offered: nothing of it was verified"),
        ([*PROMISED, ReceiptFailed(20)], Stored(21), "offered: no upload of it is under way"),
        ([*PROMISED, ReceiptFailed(20)], Discarded(), "offered: no upload of it is under way"),
        (STORED, offered(), "Offered cannot come while a task is verifying"),
        (STORED, Discarded(), "Discarded cannot come while a task is verifying"),
        (PROMISED, Verified("v"), "Verified cannot come while a task is promised"),
        (LOST, Unprepared(20), "settled: no download of it is being made"),
    ],
)
def test_what_cannot_come_is_said(before: list[Event], event: Event, words: str) -> None:
    """It is a mistake of the program: nothing changes, and the words say what came where."""
    state = begin()
    play(state, before)
    known = deepcopy(state)
    with pytest.raises(WrongStep, match=words):
        state.handle(event)
    assert known == state


def test_the_table_has_each_event_and_each_state() -> None:
    """An event that the table forgot would end in a KeyError when it comes, which is seldom."""
    assert {event.__name__ for event in get_args(Event)} == FOLLOWING.keys()
    assert set(STEPS) == {step for row in FOLLOWING.values() for step in (*row, *row.values())}
    assert all("settled" == row["settled"] for row in FOLLOWING.values()), "whatever comes after the end"


def test_only_progress_renews_a_lease() -> None:
    """Numbers and bytes that were seen before are those of a site that hangs."""
    state = begin()
    for event, renewed in [
        (Progressed(0, 1), 1),
        (Progressed(0, 2), 1),
        (Asked(3), 3),
        (Progressed(0, 4), 4),
        (Prepared(HEADER, "d0", 5), 5),
        (Progressed(0, 6), 5),
        (Excused(7), 7),
        (Asked(8), 7),
        (Prepared(HEADER, "d0", 8), 7),
        (offered(offset=10, now=8), 7),
        (Grown(10, 9), 9),
        (Grown(10, 10), 9),
        (offered(offset=5, now=11), 9),
        (Grown(5, 12), 9),
        (Grown(11, 13), 13),
    ]:
        play(state, [event])
        assert renewed == state.lease.renewed, event
    assert [False, True] == [state.is_silent(now, lease_seconds=15) for now in (28, 28.1)]


def test_what_the_coordinator_takes_is_charged_to_no_site() -> None:
    """While it makes a download, verifies or writes a receipt; and the lease counts from the end of that."""
    state = begin()
    silent = []
    for event in (Asked(1), Unprepared(100), offered(now=100), Stored(100), Unverified(200), Stored(200)):
        state.handle(event)
        silent.append(state.is_silent(210, lease_seconds=15))
    assert [False, True, True, False, False, False] == silent
    play(state, [Verified("u"), ReceiptFailed(300)])
    assert [False, True] == [state.is_silent(now, lease_seconds=15) for now in (315, 316)]


def test_room_is_promised_until_it_is_taken() -> None:
    """Before the file is begun all of it; then what is lacking; nothing once all bytes are here, or none will be."""
    state = begin()
    seen = []
    for event in (Reserved(90), offered(offset=30), Discarded(), Reserved(80), offered(OTHER), Stored(1)):
        state.handle(event)
        seen.append([state.lacking(reached) for reached in (0, 30, 60, 100)])
    all_of = {size: [size] * 4 for size in (0, 80, 90)}
    assert [all_of[90], [70, 70, 40, 0], all_of[0], all_of[80], [100, 70, 40, 0], all_of[0]] == seen


@pytest.mark.parametrize(
    ("events", "stage"),
    [([], "called"), (HANDED, "working"), (OFFERED, "uploading"), (PROMISED, "uploading")],
)
def test_the_stage_for_people(events: list[Event], stage: str) -> None:
    """They are told what the site does."""
    state = begin()
    play(state, events)
    assert stage == state.stage


clocks = st.integers(0, 50).map(float)
offers = st.sampled_from([FIRST, OTHER])
steps = st.one_of(
    st.builds(Asked, clocks),
    st.builds(Prepared, st.just(HEADER), st.sampled_from(["d0", "d1"]), clocks),
    st.builds(Unprepared, clocks),
    st.builds(Recalled, st.just(HEADER)),
    st.builds(Fetched, st.sampled_from(["d0", "d1"]), clocks),
    st.builds(Progressed, st.integers(-1, 5), clocks),
    st.builds(Excused, clocks),
    st.builds(Grown, st.integers(0, SIZE), clocks),
    st.builds(Reserved, st.integers(0, SIZE)),
    st.builds(offered, offers, offset=st.integers(0, SIZE), now=clocks),
    st.just(Discarded()),
    st.builds(Stored, clocks),
    st.builds(Verified, st.sampled_from(["u", "v"])),
    st.builds(Rejected, st.just("digest")),
    st.builds(Unverified, clocks),
    st.just(ReceiptAsked()),
    st.builds(ReceiptWritten, clocks),
    st.builds(ReceiptFailed, clocks),
    st.just(Reported()),
    st.builds(Lost, st.sampled_from(["lease", "dropped", "refused:size"])),
    st.just(Withdrawn()),
)


class Outside:
    """What the world outside of a task has seen of it, and what must never be seen."""

    def __init__(self) -> None:
        self.receiving: Path | None = None
        self.writing = False
        self.ended = False

    def see(self, event: Event, effects: list[Effect], *, over: bool) -> None:
        """An event with its effects; `over`: the task was settled before."""
        assert not over or all(isinstance(effect, Remove | TooLate) for effect in effects), (
            "settled is the end"
        )
        if isinstance(event, Verified):
            self.receiving = None
        if isinstance(event, ReceiptFailed):
            self.writing = False
        for effect in effects:
            self._see(event, effect)

    def _see(self, event: Event, effect: Effect) -> None:
        match effect:
            case Receive(path):
                assert self.receiving in (None, path), "two files of one upload"
                self.receiving = path
            case Remove(path):
                assert path == self.receiving or isinstance(event, Offered), "a file that is not its own"
                self.receiving = None
            case WriteReceipt():
                assert not self.writing, "two receipts at once"
                self.writing = True
            case Answer(update):
                assert not self.ended and (self.writing or not update), "counted without a receipt"
                self.ended = True
            case GivenUp():
                assert not self.ended and not self.writing, "given up although its receipt is being written"
                self.ended = True


@given(
    uploads=st.booleans(),
    before=st.sampled_from([[], HANDED, OFFERED, STORED, PROMISED]),
    story=st.lists(steps, max_size=50),
)
def test_whatever_comes_in_whatever_order(uploads: bool, before: list[Event], story: list[Event]) -> None:
    """The invariants hold after each event, what cannot come changes nothing, and nobody is told two ends.

    Hypothesis prints the shortest story that breaks one of them, with what followed from each event.
    """
    state, outside = begin(uploads=uploads), Outside()
    for event in [*before, *story]:
        known = deepcopy(state)
        try:
            effects = state.handle(event)
        except WrongStep:
            assert known == state, f"{event} cannot come and changes something"
            continue
        note(f"{event} → {state.step}: {effects}")
        assert FOLLOWING[type(event).__name__][known.step] == state.step
        outside.see(event, effects, over=known.step == "settled")
        check(state)
