"""Parts of messages: what no program of ours would have said is no word of ours."""

from __future__ import annotations

import pytest

from pfl_common.spec.run import Header, Kind, Task
from pfl_common.wire import coordinator_pb2 as pb
from pfl_common.wire import parts

HEADER = Header("r", 3, 2, Kind.TRAIN, "head", "up", "a", "m", ("body",), "s")


def test_a_task_and_a_header_come_back() -> None:
    """Every field of both has another value, so that none stands in another's place."""
    task = Task(Kind.EVALUATE, 3, 9, 2, "head", 4, True)
    assert task == parts.hear_task(parts.say_task(task))
    assert HEADER == parts.hear_header(parts.say_header(HEADER))


def test_an_enumeration_says_something() -> None:
    """Zero is what an older program, or a stranger, leaves out."""
    with pytest.raises(ValueError, match="KIND_UNSPECIFIED"):
        parts.hear_task(pb.Task(round=1))
    with pytest.raises(KeyError):
        parts.hear_header(pb.Header(kind=pb.KIND_TRAIN))
    with pytest.raises(ValueError, match="99"):
        parts.hear_kind(99)


def test_a_few_groups_with_names() -> None:
    """64 of them, each of 255 letters; one more of either is none of ours."""
    most = parts.say_header(HEADER)
    del most.groups[:]
    most.groups.extend(["g" * 255] * 64)
    assert 64 == len(parts.hear_header(most).groups)
    most.groups.append("g")
    with pytest.raises(ValueError, match="65 groups"):
        parts.hear_header(most)
    del most.groups[:]
    most.groups.append("g" * 256)
    with pytest.raises(ValueError, match="1 groups"):
        parts.hear_header(most)


def test_what_an_older_site_does_not_say() -> None:
    """Its images were bytes and all else numbers; it had no words to number."""
    said = [parts.hear_values(pb.VALUES_UNSPECIFIED, kind) for kind in ("image", "array")]
    assert ["bytes", "numbers"] == said
    assert "numbers" == parts.hear_values(pb.VALUES_NUMBERS, "image")
    assert "" == parts.hear_numbering(pb.NUMBERING_UNSPECIFIED)


def test_an_end_that_counted_nobody_says_so() -> None:
    """No number is another word than 0."""
    ending = pb.Ending.values()[1]
    counts = [
        parts.hear_over(said).counted for said in (pb.Over(ending=ending), pb.Over(ending=ending, counted=0))
    ]
    assert [None, 0] == counts
