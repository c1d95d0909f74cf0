"""What is said is heard as the same value, and what nobody of ours would say is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from pfl_common.errors import Refused
from pfl_common.spec.messages import (
    Assignment,
    Blob,
    Gathering,
    Joined,
    Mark,
    Offer,
    Over,
    Receipt,
    one_line,
)
from pfl_common.spec.run import Description, Header, InputKind, Kind, Moments, Task, Values
from pfl_common.spec.table_schema import SeenColumn
from pfl_common.wire import convert, refusal_pb2
from pfl_common.wire import coordinator_pb2 as pb
from tests.common.support.terminal_attacks import ATTACKS, list_obeyed

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(0, 2**32 - 1)
sizes = st.integers(0, 2**64 - 1)
blobs = st.builds(Blob, st.text("0123456789abcdef", min_size=64, max_size=64), sizes)
kinds = st.sampled_from(Kind)
tasks = st.builds(Task, kinds, numbers, numbers, numbers, words, numbers, st.booleans())
names = st.lists(words, max_size=3).map(tuple)
directions = st.sampled_from(["down", "up"])
headers = st.builds(Header, words, numbers, numbers, kinds, words, directions, words, words, names)
work = st.one_of(
    st.none(),
    st.builds(Over, st.sampled_from(["finished", "stopped", "failed"]), words.map(one_line)),
    st.builds(Assignment, tasks, headers, blobs),
)
anything = st.floats(allow_nan=False)
descriptions = st.builds(
    Description,
    st.lists(numbers, max_size=3).map(tuple),
    names,
    st.none() | sizes,
    st.sampled_from(get_args(InputKind)),
    names,
    st.lists(st.tuples(numbers, numbers, sizes), max_size=3).map(tuple),
    st.sampled_from(get_args(Values)),
    anything,
    anything,
    st.none() | st.builds(Moments, sizes, st.lists(anything).map(tuple), st.lists(anything).map(tuple)),
    words,
)
texts = st.builds(
    replace,
    descriptions,
    numbering=st.sampled_from(["words", "withheld", "hashed", "numbers"]),
    words=names,
    tokens=numbers,
    columns=names,
)
reals = st.floats(allow_nan=False)
columns = st.builds(SeenColumn, words, st.booleans(), st.booleans(), sizes, reals, reals, names, numbers)
tables = st.builds(replace, descriptions, table=st.lists(columns, max_size=3).map(tuple))


def over_the_wire(said: Message) -> Message:
    """The message as the other side gets it."""
    return type(said).FromString(said.SerializeToString())


@given(work)
def test_work_is_heard_as_said(value: Assignment | Over | None) -> None:
    """A task with its header and bytes, the end, or nothing yet."""
    assert value == convert.hear_work(over_the_wire(convert.say_work(value)))


@given(descriptions | texts | tables)
def test_a_description_is_heard_as_said(value: Description) -> None:
    """Not knowing the number of samples is not the same as none."""
    assert value == convert.hear_description(over_the_wire(convert.say_description(value)))


@pytest.mark.parametrize(("given", "values"), [("INPUT_IMAGE", "bytes"), ("INPUT_ARRAY", "numbers")])
def test_an_older_site_says_nothing_of_its_numbers(given: str, values: str) -> None:
    """What all sites of its release had is taken for it."""
    heard = convert.hear_description(pb.JoinRequest(input=given, shape=[4]))
    assert (values, 0.0, 0.0, None, ()) == (
        heard.values,
        heard.low,
        heard.high,
        heard.moments,
        heard.sizes,
    )


@given(
    st.none()
    | st.builds(Joined, words, blobs)
    | st.builds(Gathering, st.just(("the run does not begin",)), st.booleans())
    | st.just(Gathering((), sums=True))
)
def test_an_admission_is_heard_as_said(value: Joined | Gathering | None) -> None:
    """The specification's text arrives as it was hashed."""
    assert value == convert.hear_joined(over_the_wire(convert.say_joined(value)))


@given(st.builds(Offer, words, headers, blobs))
def test_an_offer_is_heard_as_said(value: Offer) -> None:
    """An upload with its header, name and size."""
    assert value == convert.hear_offer(over_the_wire(convert.say_offer(value)))


@given(st.builds(Receipt, words, words, words, words))
def test_a_receipt_is_heard_as_said(value: Receipt) -> None:
    """The confirmation of an upload, also as the answer of a stream."""
    assert value == convert.read_receipt(convert.say_receipt(value).SerializeToString())


@given(st.lists(st.builds(Mark, numbers, numbers), max_size=2).map(tuple))
def test_marks_are_heard_in_their_order(value: tuple[Mark, ...]) -> None:
    """The newest vault generation stays first."""
    assert value == convert.hear_marks(over_the_wire(convert.say_marks(value, wait_seconds=1.0)))


@given(st.dictionaries(words, st.lists(reals, max_size=3), max_size=3))
def test_scores_are_heard_to_the_last_bit(value: dict[str, list[float]]) -> None:
    """Sums of scores must not depend on the way they came."""
    assert value == convert.hear_scores(over_the_wire(convert.say_scores("key", value)))


@given(words, sizes)
def test_the_heads_of_streams_are_heard_as_said(key: str, offset: int) -> None:
    """Where a stream begins, and of what."""
    assert (key, offset) == convert.hear_store(convert.say_store(key, offset))
    assert ("0" * 64, offset) == convert.hear_fetch(convert.say_fetch("0" * 64, offset))


@pytest.mark.parametrize("code", sorted(convert.REASONS - {"other"}))
def test_each_reason_is_heard_as_said(code: str) -> None:
    """A refusal keeps its code and its words."""
    heard = convert.hear_refusal(convert.say_refusal(Refused(code, "seen, expected, to do")))
    assert (code, "seen, expected, to do") == (heard.code, heard.words)


def test_reasons_outside_the_list_keep_their_words() -> None:
    """A code nobody listed, and one from a newer release, arrive as `other`."""
    heard = convert.hear_refusal(convert.say_refusal(Refused("moon_full", "come back later")))
    assert ("other", "moon_full: come back later") == (heard.code, heard.words)
    newer = refusal_pb2.Refusal(reason=999, words="because").SerializeToString()
    assert ("other", "because") == (convert.hear_refusal(newer).code, convert.hear_refusal(newer).words)


def test_long_words_of_a_refusal_are_cut() -> None:
    """The place for refusals is small, and what is quoted in one may be long or no text at all."""
    assert len(convert.say_refusal(Refused("bad_request", "é\udcff" * 9000))) < 2100


@pytest.mark.parametrize(
    "hear",
    [
        lambda: convert.hear_work(pb.NextTaskAnswer()),
        lambda: convert.hear_work(pb.NextTaskAnswer(over=pb.Over())),
        lambda: convert.hear_work(pb.NextTaskAnswer(assignment=pb.Assignment())),
        lambda: convert.hear_joined(pb.JoinAnswer()),
        lambda: convert.hear_joined(pb.JoinAnswer(joined=pb.Joined(spec=b"\xff"))),
        lambda: convert.hear_description(pb.JoinRequest()),
        lambda: convert.hear_offer(pb.OfferRequest()),
        lambda: convert.hear_offer(pb.OfferRequest(header=pb.Header(kind=77, direction=1))),
        lambda: convert.hear_blob(pb.Blob(digest="../../etc/passwd", size=1)),
        lambda: convert.hear_blob(pb.Blob(digest="A" * 64, size=1)),
        lambda: convert.hear_fetch(b"\xff"),
        lambda: convert.hear_store(b"\xff"),
        lambda: convert.hear_store(None),
        lambda: convert.read_receipt(b"\xff"),
        lambda: convert.hear_refusal(b"\xff"),
    ],
)
def test_what_nobody_would_say_is_refused(hear: Callable[[], object]) -> None:
    """Unset, unknown and unreadable parts are refused as a bad request and nothing else."""
    with pytest.raises(Refused) as refused:
        hear()
    assert "bad_request" == refused.value.code


@pytest.mark.parametrize("groups", [[f"g{number}" for number in range(65)], ["g" * 256]])
def test_more_groups_than_any_method_has(groups: list[str]) -> None:
    """Nor longer names: whatever is done with them later is done with a few words."""
    header = Header("run-1", 1, 1, Kind.TRAIN, "train", "up", "a", "m", tuple(groups))
    said = convert.say_offer(Offer("key", header, Blob("0" * 64, 1)))
    with pytest.raises(Refused, match=r"^bad_request: an offer"):
        convert.hear_offer(said)
    del said.header.groups[:]
    said.header.groups.extend(group[:255] for group in groups[:64])
    assert len(groups[:64]) == len(convert.hear_offer(said).header.groups)


@pytest.mark.parametrize("words", ATTACKS.values(), ids=ATTACKS)
def test_a_refusals_words_are_one_printable_line(words: str) -> None:
    """The other side may be anybody: what it says reaches logs and terminals."""
    said = refusal_pb2.Refusal(reason="REASON_LATE", words=words.replace("\ud800", "\x1b"))
    heard = convert.hear_refusal(said.SerializeToString())
    assert ("late", []) == (heard.code, list_obeyed(heard.words))
    assert len(heard.words.splitlines()) == 1
