"""The rules of a run's rounds, each declared once with its type, default, bounds and meaning.

The programs' options, the coordinator's settings, a run's specification and what people are told of a run are made from
them. So a new rule costs two edits: its line in `RoundRules`, and the place that uses it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field as RuleField
from dataclasses import dataclass, field, fields
from functools import cache
from typing import (  # Any: a rule's value may be of any type
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    cast,
    get_type_hints,
)

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from pfl_common.spec.encoding import parse_encoding
from pfl_common.spec.participation import Participation

T = TypeVar("T")
Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]
"""The type that networks compute in; parameters and all that travels are float32."""
MemoryFormat: TypeAlias = Literal["contiguous", "channels-last"]
"""How pictures, and the convolutions they pass through, lie in memory: `pfl_common/models/memory_format.py`."""
MAJORITY: Literal["majority"] = "majority"
"""More than half of the expected updates, and at least two where two are expected."""
ALL = 1.0
"""Every expected update: a round waits for each site, and only its deadline gives one up."""


def _read_quorum(said: object) -> float | str:
    """A quorum as it is typed; one error for all that is none, whichever part of the type it misses."""
    if said == MAJORITY:
        return MAJORITY
    try:
        share = math.nan if isinstance(said, bool) else float(str(said))
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise ValueError("majority (more than half, at least two), or a share: above 0, up to 1 for all")
    return share


Robust: TypeAlias = Literal["none", "median", "trimmed", "krum", "multi-krum", "norm-clip"]
"""What takes the place of the mean, so that some updates may lie: `pfl_common/tensors/robust_rules.py`."""
BEARS_A_SHARE = frozenset({"trimmed", "krum", "multi-krum"})
"""Rules that have to be told how many updates may lie."""
Downlink: TypeAlias = Literal["auto", "bf16", "delta"]
"""How an encoded download to train crosses; `auto` is settled when the run begins."""
Quorum: TypeAlias = Annotated[float | Literal["majority"], BeforeValidator(_read_quorum)]
"""How many of the expected updates close a round: a share of them, or `majority`."""


@dataclass(frozen=True)
class Terms:
    """The declaration of a rule besides its name, its type and its default."""

    sentence: str
    """What it means, as the programs' help says it."""
    check: object = None
    """What pydantic is to check in a value that is asked for."""
    why: str = ""
    """Why it has its bounds, said where a value is refused."""


def rule(default: T, sentence: str, check: object = None, *, why: str = "") -> T:
    """Declare a rule: its default, its meaning, and the bounds within which it can be asked for."""
    return field(default=default, metadata={"terms": Terms(sentence, check, why)})


def terms_of(declared: RuleField[Any]) -> Terms:
    """The terms of a rule."""
    return cast(Terms, declared.metadata["terms"])


_VALIDATION = (
    "Share of training samples to validate on; 0 none.",
    Field(ge=0, le=0.5, allow_inf_nan=False),
)

_DOWNLINK = ("How encoded downloads cross: auto, bf16, delta.",)

_STRAGGLER = (
    "Medians a slow site may take; 0 no bound.",
    Field(ge=0, le=1000, allow_inf_nan=False),
)


def _check_encoding(text: str) -> str:
    parse_encoding(text)
    return text


@dataclass(frozen=True, kw_only=True)
class RoundRules:
    """The rules that a specification pins exactly as they were asked for.

    Bounds hold for what is asked for, not for what is read: a run begun under other bounds can still be looked at.
    """

    rounds: int = rule(30, "Rounds of the run.", Field(ge=1, le=999_999))
    seed: int = rule(
        0,
        "Everything drawn follows from it.",
        Field(ge=0, le=2**53 - 1),
        why="larger ones are rounded by some readers of JSON",
    )
    candidates: Literal["roster", "present"] = rule("roster", "roster or present.")
    """Draw from all registered sites, or from those that are here."""
    quorum: Quorum = rule(MAJORITY, "Updates that close a round: majority or share.")
    """A share is one of the expected updates; 1 waits for all."""
    round_seconds: float = rule(
        3600.0, "Deadline of a round.", Field(gt=0, le=2_592_000), why="30 days are the most"
    )
    lease_seconds: float = rule(
        15.0, "Silence that loses a site its round.", Field(gt=0, le=86_400), why="a day is the most"
    )
    """How long a site may show no progress once the others are done."""
    straggler: float = rule(0.0, *_STRAGGLER)
    """Once a quorum is in, a round waits for a slow site so many times the median of what its sites took, or so many
    times what that site took before: see `pfl_server/decisions/stragglers.py`. Never where the quorum is all. None in a
    specification that does not say it: it was written before there was one.
    """
    evaluate_every: int = rule(1, "Rounds between measurements.", Field(ge=1, le=999_999))
    """Sites that do not train measure the model every so many rounds."""
    largest_norm: float = rule(
        1e9, "Largest norm of an update taken.", Field(gt=0, le=1e38), why="values are float32"
    )
    """Euclidean, of an update's values; a larger one is refused: one site must not drown the sum."""
    largest_change: float = rule(
        1e7, "Largest norm of what a site changed.", Field(gt=0, le=1e38), why="values are float32"
    )
    """Euclidean, of an update's difference from what the site was sent."""
    change_factor: float = rule(
        100.0, "Times the median change that is taken; 0 any.", Field(ge=0, le=1e9, allow_inf_nan=False)
    )
    """An update whose change is so many times the median of its round, and the largest of the run, is not counted:
    see `pfl_server/decisions/outlying.py`.
    """
    largest_weight: float = rule(
        1e8,
        "Most samples a site counts for.",
        Field(ge=1, le=2**40),
        why="2**40 samples are the most a site can tell",
    )
    """A site counts for at most as many samples as it declared when it joined, and never for more than these."""
    robust: Robust = rule("none", "none, median, trimmed, krum, multi-krum, norm-clip.")
    """The coordinator sees each update alone for it, and all but norm-clip count every site alike."""
    hostile_share: float = rule(
        0.2,
        "Share of a round's updates that may lie.",
        Field(gt=0, lt=0.5),
        why="against half of the sites nothing helps",
    )
    """For `robust` trimmed, krum and multi-krum."""
    threads: int = rule(1, "Threads of one trainer.", Field(ge=1, le=1024))
    """Another number than 1 gives other bits."""
    precision: Precision = rule("float32", "Numbers in training: float32, bfloat16, float16.")
    """Another type than float32 is faster and smaller on many graphics cards, and rounds otherwise on each."""
    memory_format: MemoryFormat = rule("contiguous", "How pictures lie in memory: contiguous, channels-last.")
    """Channels-last is faster in most networks of convolutions. The last digits are others, and the same each time."""
    encoding: str = rule(
        "float32", "How numbers cross: float32, bf16, int8, topk.", AfterValidator(_check_encoding)
    )
    """`int8:stochastic` rounds by chance, `topk:0.02` sends the largest 2 % of the changes: see `spec.encoding`."""
    downlink: Downlink = rule("bf16", *_DOWNLINK)
    """Under `int8` and `topk`: as values (bf16), or as the change since the round before (delta), see `spec.encoding`.
    As values in a specification that does not say it: it was written before there was a choice.
    """
    validation: float = rule(0.0, *_VALIDATION)
    """Of each class, at sites without a validation part of their own: which samples, and of which sites none, see
    `pfl_client/data/hold_out.py`. None in a specification that does not say it: it was written before there was one.
    """
    keep: Literal["last", "best"] = rule("last", "Keep the last model, or the best beside it.")
    """The best is that of the round which did best on the site's own validation part."""
    patience: int = rule(0, "End after so many rounds without gain; 0 never.", Field(ge=0, le=999_999))
    """Without gain is a measured round whose mean validation loss is hardly better than the best before it:
    `pfl_server/decisions/early_stop.py`.
    """

    def pinned(self) -> dict[str, Any]:
        """Each of these rules by its name."""
        return {one.name: getattr(self, one.name) for one in fields(RoundRules)}


def _check_participation(text: str) -> str:
    Participation.parse(text)
    return text


@dataclass(frozen=True, kw_only=True)
class AskedRules(RoundRules):
    """All rules as they are typed; of the two that a specification pins otherwise, `asks` makes what it pins."""

    participation: str = rule("1.0", "0.5, 0.1..1.0 or names a,b.", AfterValidator(_check_participation))
    """Share of sites asked in a round (0.5), a range drawn from (0.1..1.0) or names (a,b)."""
    drop: float = rule(
        0.0,
        "Chance that an asked site does not report.",
        Field(ge=0, lt=1),
        why="with 1 no site ever reports",
    )
    """Such a site trains all the same."""
    validation: float = rule(0.15, *_VALIDATION)
    """Asked for unless somebody says otherwise."""
    downlink: Downlink = rule("auto", *_DOWNLINK)
    """Changes where they are fewer bytes: sites that are seldom asked were mostly not in the round before."""
    straggler: float = rule(3.0, *_STRAGGLER)
    """Asked for too: a site whose speed is not known yet is given ten times as long, thirty medians."""

    def asks(self) -> Participation:
        """How many sites a round asks, and how many of them drop out."""
        return Participation.parse(self.participation, drop=self.drop)

    def told(self) -> dict[str, Any]:
        """Every rule by its name, as people are told of a run's."""
        return {one.name: getattr(self, one.name) for one in fields(AskedRules)}


ALWAYS_WRITTEN = frozenset(
    {"rounds", "seed", "candidates", "quorum", "round_seconds", "lease_seconds", "evaluate_every"}
    | {"largest_norm", "threads"}
)
"""Rules that every specification names. Never to be added to: see `leave_out_unsaid`."""


def leave_out_unsaid(plain: Mapping[str, Any], kind: type[RoundRules] = RoundRules) -> dict[str, Any]:
    """A specification's values without newer rules that are at their default. So a run that an older release began
    keeps its text when the programs are upgraded, and with it the hash that its sites know it by.
    """
    unsaid = {one.name: one.default for one in fields(kind) if one.name not in ALWAYS_WRITTEN}
    return {name: value for name, value in plain.items() if name not in unsaid or value != unsaid[name]}


def find_out_of_bounds(rules: RoundRules) -> tuple[str, object, str] | None:
    """The first rule that has a value nobody could have asked for: its name, the value, what was expected."""
    for name, bounded in _bounds().items():
        value = getattr(rules, name)
        try:
            bounded.validate_python(value)
        except ValidationError as error:
            expected = error.errors(include_url=False)[0]["msg"]
            return name, value, expected.removeprefix("Input should be ").removeprefix("Value error, ")
    return None


@cache
def _bounds() -> Mapping[str, TypeAdapter[Any]]:
    hints = get_type_hints(RoundRules, include_extras=True)
    return {one.name: TypeAdapter(_bounded(hints[one.name], terms_of(one))) for one in fields(RoundRules)}


def _bounded(kind: Any, terms: Terms) -> Any:
    return kind if terms.check is None else Annotated[kind, terms.check]
