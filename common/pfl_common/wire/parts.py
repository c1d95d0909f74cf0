"""Converts the parts that several messages of `wire` share; `convert` puts them together.

What no program of ours would have said raises ValueError or KeyError here, which `convert` refuses.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import TypeVar, get_args

from pfl_common.evaluation import MOST, MOST_TOLD, WIDTH
from pfl_common.spec import data_description as bounds
from pfl_common.spec.digests import DIGESTS, FIRST
from pfl_common.spec.messages import Mark, Over, Scores, Seal, one_line
from pfl_common.spec.run import (
    Description,
    Direction,
    Header,
    InputKind,
    Kind,
    Moments,
    Numbering,
    Task,
    Values,
)
from pfl_common.spec.table_schema import SeenColumn
from pfl_common.wire import coordinator_pb2 as pb

VALUES: tuple[Values, ...] = get_args(Values)
NUMBERINGS: tuple[Numbering, ...] = get_args(Numbering)

MOST_GROUPS, LONGEST_GROUP = 64, 255
"""A group is a branch of what a method sends: it has a few, with names of its own."""
MOST_MARKS = 64
"""Generations of a vault: a site keeps two."""

_DIRECTIONS: dict[int, Direction] = {pb.DIRECTION_DOWN: "down", pb.DIRECTION_UP: "up"}

Word = TypeVar("Word", bound=str)


def hear_over(said: pb.Over) -> Over:
    """The end of a run."""
    counted = said.counted if said.HasField("counted") else None
    return Over(word(pb.Ending.Name(said.ending), "ENDING_"), one_line(said.words), counted)


def choose(word: str, known: tuple[Word, ...]) -> Word:
    """The word, if it is one of those known."""
    return known[known.index(word)]  # any other word raises ValueError


def say_task(task: Task) -> pb.Task:
    """One request to one site."""
    return pb.Task(
        kind=f"KIND_{task.kind.upper()}",
        round=task.round,
        rounds=task.rounds,
        attempt=task.attempt,
        phase=task.phase,
        since=task.since,
        drop=task.drop,
        before=task.before,
    )


def hear_task(said: pb.Task) -> Task:
    """One request to one site."""
    return Task(
        kind=hear_kind(said.kind),
        round=said.round,
        rounds=said.rounds,
        attempt=said.attempt,
        phase=said.phase,
        since=said.since,
        drop=said.drop,
        before=said.before,
    )


def say_header(header: Header) -> pb.Header:
    """A parcel's header, as a message."""
    return pb.Header(
        run=header.run,
        round=header.round,
        attempt=header.attempt,
        kind=f"KIND_{header.kind.upper()}",
        phase=header.phase,
        direction=f"DIRECTION_{header.direction.upper()}",
        sender=header.sender,
        manifest=header.manifest,
        groups=header.groups,
        state=header.state,
        digests="" if header.digests == FIRST else header.digests,
        sent=header.sent,
    )


def hear_header(said: pb.Header) -> Header:
    """A parcel's header, from a message."""
    return Header(
        run=said.run,
        round=said.round,
        attempt=said.attempt,
        kind=hear_kind(said.kind),
        phase=said.phase,
        direction=_DIRECTIONS[said.direction],
        sender=said.sender,
        manifest=said.manifest,
        groups=_hear_groups(said.groups),
        state=said.state,
        digests=choose(said.digests, DIGESTS) if said.digests else FIRST,
        sent=said.sent,
    )


def _hear_groups(said: Sequence[str]) -> tuple[str, ...]:
    check_count(said, MOST_GROUPS)
    if any(len(group) > LONGEST_GROUP for group in said):
        raise ValueError("a group with a long name")
    return tuple(said)


def hear_values(said: pb.Values, kind: InputKind) -> Values:
    """How numbers are stored; a site of an older release does not say."""
    if said == pb.VALUES_UNSPECIFIED:
        return "bytes" if kind == "image" else "numbers"
    return choose(word(pb.Values.Name(said), "VALUES_"), VALUES)


def check_counts(said: pb.JoinRequest) -> None:
    """Refuse a description with more of anything than any has, before each of these becomes an object."""
    lists: tuple[tuple[Sized, int], ...] = (
        (said.shape, bounds.MOST_DIMENSIONS),
        (said.classes, bounds.MOST_CLASSES),
        (said.warnings, bounds.MOST_WARNINGS),
        (said.sizes, bounds.MOST_SIZES),
        (said.moments.sums, bounds.MOST_MOMENTS),
        (said.moments.squares, bounds.MOST_MOMENTS),
        (said.vocabulary.words, bounds.MOST_WORDS),
        (said.columns, bounds.MOST_COLUMNS),
        (said.table, bounds.MOST_TABLE_COLUMNS),
    )
    for found, most in lists:
        check_count(found, most)


def check_count(found: Sized, most: int) -> None:
    """Refuse a list that is longer than any of its kind."""
    if len(found) > most:
        raise ValueError(f"{len(found)} entries; expected at most {most}")


def hear_marks(said: Sequence[pb.Mark]) -> tuple[Mark, ...]:
    """Generations of a vault."""
    check_count(said, MOST_MARKS)
    return tuple(Mark(round=mark.round, attempt=mark.attempt) for mark in said)


def hear_scores(said: pb.ReportRequest) -> Scores:
    """An evaluation."""
    check_count(said.scores, MOST + MOST_TOLD)
    for vector in said.scores.values():
        check_count(vector.values, WIDTH)
    return {name: list(vector.values) for name, vector in sorted(said.scores.items())}


def hear_moments(said: pb.Moments) -> Moments:
    """Sums over a site's training samples."""
    return Moments(said.count, tuple(said.sums), tuple(said.squares))


def say_vocabulary(description: Description) -> pb.Vocabulary:
    """How a site's words are numbered."""
    return pb.Vocabulary(
        numbering=f"NUMBERING_{description.numbering.upper()}",
        words=description.words,
        tokens=description.tokens,
    )


def hear_numbering(said: pb.Numbering) -> Numbering:
    """Where the numbers of words come from; of samples that are no texts nothing is said."""
    if said == pb.NUMBERING_UNSPECIFIED:
        return ""
    return choose(word(pb.Numbering.Name(said), "NUMBERING_"), NUMBERINGS)


def hear_column(said: pb.TableColumn) -> SeenColumn:
    """What a site tells of one column of its table."""
    check_count(said.categories, bounds.MOST_CATEGORIES)
    return SeenColumn(
        said.name,
        said.categorical,
        said.missing,
        said.count,
        said.total,
        said.square,
        tuple(said.categories),
        said.hashed,
    )


def say_seal(seal: Seal) -> pb.Seal:
    """A parcel's wrap and signature, as a message."""
    return pb.Seal(wrap=seal.wrap, signature=seal.signature)


def hear_seal(said: pb.Seal) -> Seal:
    """A parcel's wrap and signature, from a message."""
    return Seal(said.wrap, said.signature)


def hear_kind(number: pb.Kind) -> Kind:
    """A kind of task, from a message."""
    return Kind(word(pb.Kind.Name(number), "KIND_"))


def word(name: str, prefix: str) -> str:
    """A name of an enumeration as our own word."""
    word = name.removeprefix(prefix).lower()
    if word == "unspecified":
        raise ValueError(name)
    return word
