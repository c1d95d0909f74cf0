"""Everything agreed before any tensor moves: the run's specification, its tasks, the exact shape of each parcel.

No torch here: the daemon, the journal and the round read these without loading it.
"""

from __future__ import annotations

import enum
import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter

from pfl_common.spec.augmentation import Steps
from pfl_common.spec.beginning import Beginning
from pfl_common.spec.digests import FIRST, Digests
from pfl_common.spec.manifest import Manifest, delta_key
from pfl_common.spec.packages import Package, Part
from pfl_common.spec.participation import Participation
from pfl_common.spec.rules import AskedRules, RoundRules, leave_out_unsaid
from pfl_common.spec.table_schema import Column, SeenColumn

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


class Kind(enum.StrEnum):
    """The kinds of task that a site can be given."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    FINISH = "finish"


@dataclass(frozen=True)
class Task:
    """One request to one site.

    `since` is the last committed round its vault holds, 0 = it never took part. `before`: the same of the run that this
    one begins from, as long as `since` is 0. `late`: the site is not in the run's roster, it came after the run began;
    each site knows this of itself and sets it before it begins.
    """

    kind: Kind
    round: int
    rounds: int
    attempt: int = 1
    phase: str = "train"
    since: int = 0
    drop: bool = False
    late: bool = False
    before: int = 0

    @property
    def is_first(self) -> bool:
        """Whether the site has no state of its own to go on from."""
        return self.since == 0 and self.before == 0

    @property
    def key(self) -> str:
        """The name of this request among all of a run's: receipts, outbox and spool use it."""
        return f"{self.round:06d}-{self.attempt}-{self.kind}"


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
    """Tables: names of the columns, where sites declare them; windows: of the channels, where they have names."""
    table: tuple[Column, ...] = ()
    """Tables from files of rows: how each column is read. Not written where it is empty."""
    pixel_mean: tuple[float, ...] = ()
    pixel_deviation: tuple[float, ...] = ()
    """Pictures: what is taken away from each channel's values, which are 0..1 then, and what they are then divided by;
    empty: nothing is. Neither is written where it is empty.
    """


LATER_IN_MODEL = frozenset({"table", "pixel_mean", "pixel_deviation"})
"""Fields of `Model` that are left out of the text where they are empty: an older run keeps its text and hash."""


@dataclass(frozen=True)
class Weights:
    """The file whose tensors the run's first model has."""

    source: str
    """torchvision's name for it, or its file's name without the folder."""
    sha256: str
    """The hash of the file as it was given."""
    taken: str
    """The hash of the file in the run's folder that holds those of its tensors that were taken."""


LATER = ("packages", "weights", "frozen", "augment", "begins_from")
"""Fields of a specification that are left out of the text where they are empty, for the same reason."""


@dataclass(frozen=True)
class RunSpec(RoundRules):
    """One training job, pinned: two runs of equal specification and equal counted sets end in equal bytes."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    method: str
    settings: dict[str, Json]
    model: Model
    roster: tuple[ClientId, ...]
    rounds: int = field(kw_only=True)
    seed: int = field(kw_only=True)
    """Neither is guessed where a specification lacks it."""
    participation: Participation = field(default_factory=AskedRules().asks)
    repeatable: bool = True
    manifests: dict[str, Manifest] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    """For people: what was chosen by the sites' data, and why."""
    data: dict[ClientId, str] = field(default_factory=dict)
    """The fingerprint of each site's data, as the site gave it; a site that gives none is not named."""
    packages: dict[Part, Package] = field(default_factory=dict)
    """Installed packages that the method or the network comes from; not written where both are the product's own."""
    weights: Weights | None = None
    """What the first model was begun from; not written where all its values are drawn."""
    frozen: tuple[str, ...] = ()
    """Modules and tensors that stand still and cross in the first model alone; not written where there are none."""
    augment: Steps = ()
    """How training pictures are changed by chance, in this order; not written where they are not."""
    begins_from: Beginning | None = None
    """The run whose last models this one begins with; not written where it begins with first values."""
    digests: Digests = FIRST
    """The hash by which downloads and checkpoints are known; not written where it is that of older runs."""

    def manifest(self, kind: Kind, phase: str, direction: Direction) -> Manifest:
        """The ordered tensors of one kind of parcel."""
        return self.manifests[parcel_key(kind, phase, direction)]

    def delta(self, phase: str) -> Manifest:
        """The tensors of a download to train that crosses as a change; none where all cross as they are."""
        return self.manifests.get(delta_key(phase), ())

    @property
    def asked(self) -> AskedRules:
        """The run's rules as one would type them."""
        return AskedRules(
            **self.pinned(), participation=self.participation.text, drop=self.participation.drop
        )

    @property
    def init_manifest(self) -> Manifest:
        """The complete first model, handed to each site when it registers."""
        return self.manifests["init"]

    def to_json(self) -> str:
        """The canonical text: sorted keys, no spaces; its hash names the specification."""
        return self._text

    @cached_property
    def _text(self) -> str:
        # Read back first, so that 1 written for 1.0 is one text on both ends. Not by asdict, which copies each value
        # deeply: that takes longer than all the rest.
        checked = _specs().validate_python(_specs().dump_python(self, warnings=False))
        plain = leave_out_unsaid(_specs().dump_python(checked))
        for name in LATER:
            if not plain[name]:
                del plain[name]
        if self.digests == FIRST:
            del plain["digests"]
        model = plain["model"]
        plain["model"] = {name: model[name] for name in model if name not in LATER_IN_MODEL or model[name]}
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> RunSpec:
        """Read and check a specification; an unknown or ill-typed field is an error."""
        return _specs().validate_json(text)

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
    """Tables: names of the columns, if the site declares them; windows: of the channels, if they have names."""
    table: tuple[SeenColumn, ...] = ()
    """Tables from files of rows: what the site tells of each column."""

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
    digests: Digests = FIRST
    """The hash that names the sealed bytes of a download; not written where it is that of older runs."""
    sent: str = ""
    """In a run whose downloads cross as changes: the hash of what the site holds of the encoded tensors once it has
    this download (`tensors.sent_state`). Not written in other runs.
    """

    def to_json(self) -> str:
        """The canonical text: its hash binds every part of a sealed parcel."""
        return self._text

    @cached_property
    def _text(self) -> str:
        # No field holds another object: asdict would copy each deeply, which takes longer than all the rest.
        said = {name: value for name, value in vars(self).items() if _UNSAID.get(name) != value}
        return json.dumps(said, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Header:
        """Read and check a header."""
        return _headers().validate_json(text)


_UNSAID = {"digests": FIRST, "sent": ""}
"""Values of a header's later fields that are left out of its text: that of an older run stays what it was."""


@cache
def _specs() -> TypeAdapter[RunSpec]:
    # Made when the first one comes: a site that waits for its run has none.
    return TypeAdapter(RunSpec)


@cache
def _headers() -> TypeAdapter[Header]:
    return TypeAdapter(Header)
