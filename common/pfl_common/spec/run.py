"""Everything agreed before any tensor moves: the run's specification, its tasks, the exact shape of each parcel.

No torch here: the daemon, the journal and the round read these without loading it.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, TypeAdapter

from pfl_common.errors import SettingError, nearest
from pfl_common.spec.memo import remembered

Json: TypeAlias = JsonValue
ClientId: TypeAlias = str
Direction: TypeAlias = Literal["down", "up"]
Values: TypeAlias = Literal["bytes", "wide", "unit", "byte_floats", "signed", "numbers"]
"""How a sample's numbers are stored: pictures of 8 bits, of 16 bits, of floats in 0..1, in 0..255, of any other floats;
or plain numbers that are no picture.
"""
InputKind: TypeAlias = Literal["image", "array", "windows", "tokens", "table"]
"""What samples are: pictures; plain numbers of any shape; windows of sensor channels (channels x time); texts as
numbers of their words; rows of a table.
"""
Numbering: TypeAlias = Literal["", "words", "withheld", "hashed", "numbers"]
"""Where the numbers of a site's words come from: a list of words that it tells; such a list that it keeps to itself;
hashes of the words; somewhere else (only how many numbers there are is known). Empty: its samples are no texts.
"""
PADDING, UNKNOWN, FIRST_WORD = 0, 1, 2
"""Numbers in texts: what fills a short one up, a word that is in no list, the first word of the list."""


SITE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
"""What a site may be called; a few names are reserved beside (`identity.names`)."""
_DECIMAL_COMMA = re.compile(r"[01]?,\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?")
_AMOUNTS = (
    {"half": "0.5", "third": "0.34", "quarter": "0.25", "tenth": "0.1", "all": "1.0", "everybody": "1.0"}
    | {
        "everyone": "1.0",
        "every": "1.0",
        "full": "1.0",
        "one": "1.0",
        "most": "0.9",
        "some": "0.1..1.0",
        "any": "0.1..1.0",
    }
    | dict.fromkeys(
        ("none", "nobody", "zero", "nan", "inf", "infinity", "true", "false", "auto", "random", "few"), ""
    )
)
"""Words for how many, which are no names of sites; beside each what to write instead."""


class Kind(enum.StrEnum):
    """The kinds of task that a site can be given."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    FINISH = "finish"


@dataclass(frozen=True)
class Task:
    """One request to one site.

    `since` is the last committed round its vault holds, 0 = it never took part. `late`: the site is not in the run's
    roster, it came after the run began; each site knows this of itself and sets it before it begins.
    """

    kind: Kind
    round: int
    rounds: int
    attempt: int = 1
    phase: str = "train"
    since: int = 0
    drop: bool = False
    late: bool = False

    @property
    def key(self) -> str:
        """The name of this request among all of a run's: receipts, outbox and spool use it."""
        return f"{self.round:06d}-{self.attempt}-{self.kind}"


@dataclass(frozen=True)
class Entry:
    """One tensor of a parcel. `group` names the optional group it belongs to; empty means always present."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    group: str = ""


Manifest: TypeAlias = tuple[Entry, ...]


@dataclass(frozen=True)
class Participation:
    """The number of sites a round asks: a ratio, a range drawn from each round, or a fixed list of names."""

    low: float = 1.0
    high: float = 1.0
    fixed: tuple[ClientId, ...] = ()
    drop: float = 0.0

    @classmethod
    def parse(cls, text: str, *, drop: float = 0.0) -> Self:
        """Read `0.5`, `0.1..1.0` or `site-a,site-b`."""
        ends = [end.strip() for end in text.split("..")]
        if len(ends) <= 2 and all(map(_NUMBER.fullmatch, ends)):
            low, high = float(ends[0]), float(ends[-1])
            if not 0 < low <= high <= 1:
                raise _no_participation(text)
            return cls(low, high, drop=drop)
        names = tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))
        # A comma makes a name of any word: nobody writes an amount with one.
        meant = "," in text or text.strip().lower() not in _AMOUNTS
        if (
            not names
            or not meant
            or _DECIMAL_COMMA.fullmatch(text.strip())
            or not all(map(SITE_NAME.fullmatch, names))
        ):
            raise _no_participation(text)
        return cls(fixed=names, drop=drop)

    def check_roster(self, roster: Iterable[ClientId]) -> None:
        """Refuse a fixed list that names a site which is not there."""
        there = sorted(roster)
        if missing := [name for name in self.fixed if name not in there]:
            raise SettingError(
                f"participation names {', '.join(missing[:5])}, and no such site has come",
                expected=nearest(missing[0], there),
                advice="correct the list, or wait for that site too: --sites",
            )


def _no_participation(text: str) -> SettingError:
    """What was most likely meant, if that can be told."""
    word = text.strip().lower()
    shares = [end.strip().removesuffix("%") for end in word.split("..")]
    meant = _AMOUNTS.get(word, "")
    if "%" in word and all(map(_NUMBER.fullmatch, shares)):
        meant = "..".join(f"{float(share) / 100:g}" for share in shares)
    elif _DECIMAL_COMMA.fullmatch(word):
        meant = f"{word.replace(',', '.')}; if these are sites, with one more comma: {word},"
    return SettingError(
        f"participation is {text[:60]!r}",
        expected="a ratio above 0 and at most 1 (0.5), a rising range (0.1..1.0), or names of sites (a,b)",
        advice=f"write {meant}" if meant else "",
    )


MAJORITY: Literal["majority"] = "majority"
"""More than half of the expected updates, and at least two where two are expected."""


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


Quorum: TypeAlias = Annotated[float | Literal["majority"], BeforeValidator(_read_quorum)]
"""How many of the expected updates close a round: a share of them, or `majority`."""


@dataclass(frozen=True)
class Model:
    """The network that every site builds."""

    backbone: str
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    encoder_projector: bool = False
    values: Values = "bytes"
    """How the sites store their numbers; with "wide" some may have pictures of 8 bits, which stay as they are."""
    low: float = 0.0
    high: float = 0.0
    """The range of raw values that becomes 0..1 at every site; both 0: numbers stay as they are."""
    per_picture: bool = False
    """Each picture by its own smallest and largest value instead: brightness cannot be compared then."""
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    """What is taken away from each number of the input and what it is then divided by; empty: nothing is."""
    kind: InputKind | Literal[""] = ""
    """What samples are; empty in a run of an earlier release, which had pictures and arrays."""
    tokens: int = 0
    """Texts: how many numbers words can have, with those of padding and of unknown words."""
    numbering: Numbering = ""
    """Texts: where the numbers come from; never "withheld", for the run's list is known to all."""
    words: tuple[str, ...] = ()
    """Texts with numbering "words": the run's list, in which the first word has the number 2."""
    columns: tuple[str, ...] = ()
    """Tables: names of the columns, where sites declare them."""


@dataclass(frozen=True)
class RunSpec:
    """One training job, pinned: two runs of equal specification and equal counted sets end in equal bytes."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    method: str
    settings: dict[str, Json]
    model: Model
    rounds: int
    seed: int
    roster: tuple[ClientId, ...]
    participation: Participation = field(default_factory=Participation)
    quorum: Quorum = MAJORITY
    round_seconds: float = 3600.0
    lease_seconds: float = 15.0
    candidates: Literal["roster", "present"] = "roster"
    evaluate_every: int = 1
    largest_norm: float = 1e9
    threads: int = 1
    repeatable: bool = True
    manifests: dict[str, Manifest] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    """For people: what was chosen by the sites' data, and why."""
    data: dict[ClientId, str] = field(default_factory=dict)
    """The fingerprint of each site's data, as the site gave it; a site that gives none is not named."""

    def manifest(self, kind: Kind, phase: str, direction: Direction) -> Manifest:
        """The ordered tensors of one kind of parcel."""
        return self.manifests[parcel_key(kind, phase, direction)]

    @property
    def init_manifest(self) -> Manifest:
        """The complete first model, handed to each site when it registers."""
        return self.manifests["init"]

    def to_json(self) -> str:
        """The canonical text: sorted keys, no spaces; its hash names the specification."""
        # Read back first, so that 1 written for 1.0 is one text on both ends.
        return json.dumps(asdict(_SPEC.validate_python(asdict(self))), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> RunSpec:
        """Read and check a specification; an unknown or ill-typed field is an error."""
        return _SPEC.validate_json(text)

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the canonical text."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def parcel_key(kind: Kind, phase: str, direction: Direction) -> str:
    """The name a manifest is pinned under."""
    return f"{kind.value}/{phase}/{direction}"


@dataclass(frozen=True)
class Moments:
    """Sums over a site's training samples, from which the mean and deviation over all sites follow."""

    count: int
    """How many numbers each sum is over."""
    sums: tuple[float, ...]
    squares: tuple[float, ...]


NOT_SUMMED = Moments(0, (), ())
"""Of a site whose sums would be over so few numbers that they tell them: it takes what the others say."""


@dataclass(frozen=True)
class Description:
    """A site's description of its data, given when it registers; class names decide the run's class list."""

    shape: tuple[int, ...]
    classes: tuple[str, ...]
    samples: int | None = None
    kind: InputKind = "image"
    warnings: tuple[str, ...] = ()
    sizes: tuple[tuple[int, int, int], ...] = ()
    """Pictures: height, width and how many there are, the most common sizes first."""
    values: Values = "bytes"
    low: float = 0.0
    high: float = 0.0
    """Smallest and largest number of the training part."""
    moments: Moments | None = None
    """Numbers that are no pictures: sums for standardising them alike at all sites."""
    data: str = ""
    """Changes when the data do, and says nothing else: no other site and no coordinator can compute it."""
    numbering: Numbering = ""
    words: tuple[str, ...] = ()
    """Texts with numbering "words": the site's own list."""
    tokens: int = 0
    """Texts with numbering "hashed" or "numbers": how many numbers there are, the first two included."""
    columns: tuple[str, ...] = ()
    """Tables: names of the columns, if the site declares them."""

    def to_json(self) -> str:
        """The canonical text."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Header:
    """The identity of one parcel; everything but `groups` follows from the task.

    `state` is the hash of the shared state the round started from: an update says what it is an update of.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    run: str
    round: int
    attempt: int
    kind: Kind
    phase: str
    direction: Direction
    sender: ClientId
    manifest: str
    groups: tuple[str, ...] = ()
    state: str = ""

    def to_json(self) -> str:
        """The canonical text: its hash binds every part of a sealed parcel."""
        # No field holds another object: asdict would copy each deeply, which takes longer than all the rest.
        return json.dumps(vars(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Header:
        """Read and check a header."""
        return _HEADER.validate_json(text)


@remembered
def manifest_hash(manifest: Manifest) -> str:
    """A short fingerprint both ends compare before the first byte is read."""
    text = json.dumps([[e.name, e.dtype, list(e.shape), e.group] for e in manifest], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


_SPEC: TypeAdapter[RunSpec] = TypeAdapter(RunSpec)
_HEADER: TypeAdapter[Header] = TypeAdapter(Header)
