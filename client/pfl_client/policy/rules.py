"""The rules of a site's `policy.toml`, each with what it means and its default, which allows what was always done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field, fields
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias  # Any: a rule's value may be of any type

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from pfl_client.settings import read_size
from pfl_common.app.config import STRICT, Why

Names: TypeAlias = Literal["yes", "hashed", "no"]
Counts: TypeAlias = Literal["exact", "rounded", "none"]
Sums: TypeAlias = Literal["any", "robust", "secure"]


def _check_size(text: str) -> str:
    if text and not read_size(text):
        raise ValueError("a size above 0, such as 20M, or nothing for no limit")
    return text


Size: TypeAlias = Annotated[str, AfterValidator(_check_size)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Runs:
    """Which runs this site takes part in, and how often."""

    methods: tuple[str, ...] = ()
    """Methods that may train here; left out: all of them."""
    sums: Sums = "any"
    """How updates must be put together: any way, by a robust rule, or so that nobody sees a single one (secure)."""
    smallest_cohort: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Sites that a run must have, and that each of its rounds must ask."""
    rounds: Annotated[int, Field(ge=0, le=999_999), Why("0 sets no limit")] = 0
    """The most updates that leave for one run, those of repeated attempts included; 0: no limit."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Uploads:
    """How much may leave as updates, sealed as they are sent."""

    largest: Size = ""
    """The most bytes of one update (20M); empty: no limit."""
    per_day: Size = ""
    """The most bytes of all updates within 24 hours (500M); empty: no limit."""

    @property
    def largest_bytes(self) -> int:
        """The most bytes of one update; 0: no limit."""
        return read_size(self.largest) if self.largest else 0

    @property
    def per_day_bytes(self) -> int:
        """The most bytes of a day; 0: no limit."""
        return read_size(self.per_day) if self.per_day else 0


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Joining:
    """What is said of the data when the site joins. Their kind, the shape of a sample and how numbers are stored are
    always told: no network can be built without them.
    """

    class_names: Names = "yes"
    """Names of classes: as they are, hashed (known names are recognised), or not at all."""
    counts: Counts = "exact"
    """Numbers of samples: as they are, rounded up to one digit, or none at all; scores are told of as many."""
    sizes: bool = True
    """Heights and widths of pictures."""
    ranges: bool = True
    """The smallest and the largest value of the training part."""
    sums: bool = True
    """Sums and squares over the training part, from which mean and deviation over all sites follow."""
    words: bool = True
    """The list of words of texts."""
    columns: bool = True
    """Names of columns and channels."""
    categories: bool = True
    """Categories of a table's columns."""
    fingerprint: bool = True
    """A keyed hash that changes when the data do."""
    warnings: bool = True
    """Sentences about what is odd in the data."""

    @property
    def hides(self) -> bool:
        """Whether anything is withheld that words about the data could repeat."""
        return self != Joining(fingerprint=self.fingerprint)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Metrics:
    """What is said of models and training after each task."""

    scores: bool = True
    """Accuracy and loss of this site, which the coordinator sums over sites."""
    diagnostics: bool = True
    """What the method measures of its training (loss, sparsity, ...), to be summed over sites."""


SECTIONS: Mapping[str, type[Any]] = {
    "runs": Runs,
    "uploads": Uploads,
    "joining": Joining,
    "metrics": Metrics,
}


@plain_dataclass(frozen=True)
class Policy:
    """All rules of a site; without a file every one is at its default."""

    runs: Runs = field(default_factory=Runs)
    uploads: Uploads = field(default_factory=Uploads)
    joining: Joining = field(default_factory=Joining)
    metrics: Metrics = field(default_factory=Metrics)
    file: Path | None = None
    """Where the rules stand, for people of this site alone."""
    sha256: str = ""
    """Of that file."""

    @property
    def place(self) -> str:
        """The file, in words."""
        return str(self.file) if self.file else "no policy.toml"

    def changed(self) -> dict[str, Any]:
        """The rules that are not at their defaults, as section.rule."""
        found: dict[str, Any] = {}
        for section, kind in SECTIONS.items():
            own, usual = getattr(self, section), kind()
            for one in fields(kind):
                if (value := getattr(own, one.name)) != getattr(usual, one.name):
                    found[f"{section}.{one.name}"] = list(value) if isinstance(value, tuple) else value
        return found

    def every(self) -> dict[str, dict[str, Any]]:
        """All rules by section."""
        return {section: asdict(getattr(self, section)) for section in SECTIONS}
