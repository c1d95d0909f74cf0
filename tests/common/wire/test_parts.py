"""Parts of messages: what no program of ours would have said is no word of ours."""

from __future__ import annotations

from dataclasses import replace

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


def test_the_hash_of_a_download_comes_along() -> None:
    """Older programs say none; a word that is not known is none of ours."""
    down = replace(HEADER, direction="down", digests="blake3", sent="ab")
    assert down == parts.hear_header(parts.say_header(down))
    assert ("", "blake3") == (parts.say_header(HEADER).digests, parts.say_header(down).digests)
    said = parts.say_header(down)
    said.digests = "blake9"
    with pytest.raises(ValueError, match="tuple"):
        parts.hear_header(said)


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
    with pytest.raises(ValueError, match="65 entries"):
        parts.hear_header(most)
    del most.groups[:]
    most.groups.append("g" * 256)
    with pytest.raises(ValueError, match="long name"):
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


@pytest.mark.parametrize(
    "said",
    [
        pb.JoinRequest(shape=[1] * 9),
        pb.JoinRequest(classes=[""] * 20_001),
        pb.JoinRequest(warnings=[""] * 65),
        pb.JoinRequest(sizes=[pb.PictureSize()] * 17),
        pb.JoinRequest(moments=pb.Moments(sums=[0.0] * 4097)),
        pb.JoinRequest(moments=pb.Moments(squares=[0.0] * 4097)),
        pb.JoinRequest(vocabulary=pb.Vocabulary(words=[""] * 100_001)),
        pb.JoinRequest(columns=[""] * 20_001),
        pb.JoinRequest(table=[pb.TableColumn()] * 4097),
    ],
    ids=lambda said: said.ListFields()[0][0].name,
)
def test_a_description_with_more_of_anything_than_any_has(said: pb.JoinRequest) -> None:
    """Seen by the count alone, before any of it becomes an object."""
    with pytest.raises(ValueError, match="entries; expected at most"):
        parts.check_counts(said)


def test_more_generations_scores_and_categories_than_there_are() -> None:
    """The last that is allowed is heard, the next is not."""
    assert 64 == len(parts.hear_marks([pb.Mark()] * 64))
    with pytest.raises(ValueError, match="65 entries"):
        parts.hear_marks([pb.Mark()] * 65)
    with pytest.raises(ValueError, match="1001 entries"):
        parts.hear_column(pb.TableColumn(categories=["a"] * 1001))
    many = pb.ReportRequest(scores={str(n): pb.Vector() for n in range(305)})
    with pytest.raises(ValueError, match="305 entries"):
        parts.hear_scores(many)
    with pytest.raises(ValueError, match="107 entries"):
        parts.hear_scores(pb.ReportRequest(scores={"pre/test/a": pb.Vector(values=[0.0] * 107)}))
