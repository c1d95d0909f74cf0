"""Bounds for a run's specification as a site hears it, from a coordinator that need not be trusted.

Everything that a site would make room for, wait for, or loop over by a specification's word is bounded here. The check
stands at the site's door and costs it nothing; a specification that is read from disk is not held to it, so a run that
was begun under other bounds can still be looked at.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping

from pfl_common.errors import Refused
from pfl_common.printable import is_printable, printable
from pfl_common.spec.data_description import (
    LONGEST_CATEGORY,
    LONGEST_CLASS,
    LONGEST_COLUMN,
    LONGEST_TEXT,
    MOST_CATEGORIES,
    MOST_CLASSES,
    MOST_COLUMNS,
    MOST_DIMENSIONS,
    MOST_HASHED,
    MOST_MOMENTS,
    MOST_TABLE_COLUMNS,
    MOST_TOKENS,
    WIDEST_ROW,
    check_words,
)
from pfl_common.spec.encoded_form import read_form
from pfl_common.spec.encoding import find_unsound
from pfl_common.spec.manifest import WIDTHS, Manifest, delta_key
from pfl_common.spec.participation import SITE_NAME
from pfl_common.spec.rules import find_out_of_bounds
from pfl_common.spec.run import Json, Kind, Model, RunSpec, parcel_key
from pfl_common.spec.table_schema import Column, count_width

MOST_BYTES = 16 << 20
"""Of the text: four times what a call can carry."""
MOST_EPOCHS, MOST_BATCH = 1_000_000, 65_536
"""What a method's settings take too (`pfl_common.learning.method`)."""
MOST_SITES = 100_000
LARGEST_SAMPLE = 1 << 28
"""Numbers of one sample: a gigabyte as float32, beyond any volume of ours."""
LARGEST_MODEL = 1 << 40
"""Bytes of one parcel: a terabyte, a hundred times what a site of ours can train."""
MOST_MANIFESTS, MOST_TENSORS = 256, 200_000
MOST_FACTS = 1000
"""Entries of what a specification tells people, and names of settings and of frozen modules."""
LONGEST_NAME, LONGEST_FACT = 300, 10_000
LARGEST_SETTING = 1e15

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_NETWORK = re.compile(r"[A-Za-z][A-Za-z0-9_:.-]{0,99}")
_PHASE = re.compile(r"[A-Za-z0-9_]{1,64}")
_HASH = re.compile(r"[0-9a-f]{64}")
_FINGERPRINT = re.compile(r"[0-9a-f]{0,64}")
_SETTINGS = {"epochs": (1, MOST_EPOCHS), "batch": (1, MOST_BATCH), "lr": (0, 1e6)}
"""Bounds of settings that every method has; its own are checked where it is built."""
_DEEPEST = 4


class OutOfBounds(ValueError):
    """A specification that no coordinator of ours would send: what was seen, and what was expected."""

    def __init__(self, seen: str, expected: str) -> None:
        self.seen, self.expected = printable(seen), expected
        super().__init__(f"{self.seen}; expected: {expected}")


def check_spec(spec: RunSpec) -> None:
    """Refuse what lies beyond any run of ours, field by field."""
    if (found := find_out_of_bounds(spec)) is not None:
        name, value, expected = found
        raise OutOfBounds(f"the rule {name} of {value!r:.60}", expected)
    _check_participation(spec)
    _expect(_NAME.fullmatch(spec.method), f"a method called {spec.method!r:.80}", "letters, digits and _")
    _check_settings(spec.settings)
    _check_roster(spec)
    _check_model(spec.model)
    _check_manifests(spec)
    _check_facts(spec)


def _check_participation(spec: RunSpec) -> None:
    asked = spec.participation
    shares = 0 < asked.low <= asked.high <= 1 and 0 <= asked.drop < 1
    _expect(shares, f"a participation of {asked.low} to {asked.high}, drop {asked.drop}", "shares, 0 to 1")
    names = len(asked.fixed) <= MOST_SITES and all(map(SITE_NAME.fullmatch, asked.fixed))
    _expect(names, "a participation of names that no site has", "names of sites")


def _check_settings(settings: Mapping[str, Json]) -> None:
    _expect(len(settings) <= MOST_FACTS, f"{len(settings)} settings", f"at most {MOST_FACTS}")
    for name, value in settings.items():
        _expect(_NAME.fullmatch(name), f"a setting called {name!r:.80}", "letters, digits and _")
        _check_value(name, value)
        low, high = _SETTINGS.get(name, (-math.inf, math.inf))
        bounded = not isinstance(value, int | float) or low <= value <= high
        _expect(bounded, f"{name} = {value!r:.60}", f"{low:,g} to {high:,g}")


def _check_value(name: str, value: Json, *, depth: int = 0) -> None:
    """A setting's value of whatever form: no number beyond all sense, no text or list without end."""
    match value:
        case None | bool():
            return
        case int() | float():
            # Compared as it is: a whole number may be too large for a float.
            sound = -LARGEST_SETTING <= value <= LARGEST_SETTING
            _expect(sound, f"the setting {name} of {value!r:.60}", "a number that can be meant")
        case str():
            _expect(len(value) <= LONGEST_FACT, f"the setting {name} of {len(value)} letters", "a word")
        case list() | dict():
            few = len(value) <= MOST_FACTS and depth < _DEEPEST
            _expect(
                few, f"the setting {name} with {len(value)} values", f"at most {MOST_FACTS}, in few levels"
            )
            for inner in value.values() if isinstance(value, dict) else value:
                _check_value(name, inner, depth=depth + 1)


def _check_roster(spec: RunSpec) -> None:
    roster = spec.roster
    _expect(len(roster) <= MOST_SITES, f"a roster of {len(roster)} sites", f"at most {MOST_SITES}")
    _expect(all(map(SITE_NAME.fullmatch, roster)), "a roster with names that no site has", "names of sites")
    _expect(len(set(roster)) == len(roster), "a roster that names a site twice", "each site once")
    fingerprints = len(spec.data) <= MOST_SITES and all(map(_FINGERPRINT.fullmatch, spec.data.values()))
    _expect(fingerprints, "fingerprints of data of another form", "at most 64 digits 0-9 a-f for each site")


def _check_model(model: Model) -> None:
    _expect(
        _NETWORK.fullmatch(model.backbone), f"a network called {model.backbone!r:.80}", "a network's name"
    )
    shape = model.shape
    sides = 1 <= len(shape) <= MOST_DIMENSIONS and min(shape) >= 1
    sound = sides and math.prod(shape) <= LARGEST_SAMPLE
    _expect(
        sound,
        f"samples of shape {shape!s:.80}",
        f"1 to {MOST_DIMENSIONS} sides, {LARGEST_SAMPLE} numbers at most",
    )
    _check_names(model.classes, "class", most=MOST_CLASSES, longest=LONGEST_CLASS)
    _expect(model.classes, "a model without classes", "one or more")
    finite = math.isfinite(model.low) and math.isfinite(model.high) and model.low <= model.high
    _expect(finite, f"values from {model.low} to {model.high}", "two finite numbers, the smaller one first")
    _check_scaling(model.mean, model.deviation)
    _check_scaling(model.pixel_mean, model.pixel_deviation)
    _check_texts(model)
    _check_table(model)


def _check_scaling(mean: tuple[float, ...], deviation: tuple[float, ...]) -> None:
    pairs = len(mean) == len(deviation) <= MOST_MOMENTS
    _expect(
        pairs,
        f"{len(mean)} means and {len(deviation)} deviations",
        f"as many of both, {MOST_MOMENTS} at most",
    )
    sound = all(map(math.isfinite, mean)) and all(math.isfinite(one) and one > 0 for one in deviation)
    _expect(sound, "a scaling by numbers that are not finite, or by 0", "finite means, deviations above 0")


def _check_texts(model: Model) -> None:
    _expect(0 <= model.tokens <= MOST_TOKENS, f"{model.tokens} numbers of words", f"at most {MOST_TOKENS}")
    length = model.shape[0] if model.kind == "tokens" else 1
    _expect(length <= LONGEST_TEXT, f"texts of {length} words", f"at most {LONGEST_TEXT}")
    try:
        check_words(model.words)
    except Refused as refused:
        seen, _, expected = refused.words.partition("; expected: ")
        raise OutOfBounds(seen, expected) from None


def _check_table(model: Model) -> None:
    _check_names(model.columns, "column", most=MOST_COLUMNS, longest=LONGEST_COLUMN)
    table = model.table
    _check_names([one.name for one in table], "column", most=MOST_TABLE_COLUMNS, longest=LONGEST_COLUMN)
    for column in table:
        _check_column(column)
    width = count_width(table)
    fits = not table or (width <= WIDEST_ROW and model.shape == (width,))
    _expect(
        fits, f"rows of {width} numbers for samples of shape {model.shape}", f"as many, {WIDEST_ROW} at most"
    )


def _check_column(column: Column) -> None:
    _check_names(column.categories, "category", most=MOST_CATEGORIES, longest=LONGEST_CATEGORY)
    _expect(0 <= column.hashed <= MOST_HASHED, f"{column.hashed} places for hashes", f"at most {MOST_HASHED}")
    sound = math.isfinite(column.mean) and math.isfinite(column.deviation) and column.deviation > 0
    _expect(
        sound,
        f"a column scaled by {column.mean} and {column.deviation}",
        "finite numbers, the second above 0",
    )


def _check_manifests(spec: RunSpec) -> None:
    manifests = spec.manifests
    _expect(
        len(manifests) <= MOST_MANIFESTS, f"{len(manifests)} kinds of parcels", f"at most {MOST_MANIFESTS}"
    )
    _expect("init" in manifests, "no first model", "its tensors, by name and shape")
    tensors = sum(map(len, manifests.values()))
    _expect(tensors <= MOST_TENSORS, f"parcels of {tensors} tensors", f"at most {MOST_TENSORS}")
    for key, manifest in manifests.items():
        phase = _read_key(key)
        known = key == "init" or phase
        _expect(known, f"a parcel called {key!r:.80}", "a kind of task, a phase, and down, up or delta")
        _check_parcel(key, manifest)
        both = (
            key != parcel_key(Kind.TRAIN, phase, "down") or parcel_key(Kind.TRAIN, phase, "up") in manifests
        )
        _expect(both, f"the phase {phase!r} with a download and no update", "both")
    unsound = find_unsound(spec)
    _expect(
        not unsound, unsound, "each tensor as the run's encoding says, and as it is where it must be exact"
    )


def _read_key(key: str) -> str:
    """The phase in a parcel's name; empty if it is none."""
    kind, _, rest = key.partition("/")
    phase, _, way = rest.partition("/")
    known = way in ("down", "up") or key == delta_key(phase)
    return phase if known and kind in tuple(Kind) and _PHASE.fullmatch(phase) else ""


def _check_parcel(key: str, manifest: Manifest) -> None:
    _check_names([entry.name for entry in manifest], "tensor", most=MOST_TENSORS, longest=LONGEST_NAME)
    total = 0
    for entry in manifest:
        known = entry.dtype in WIDTHS or read_form(entry.dtype) is not None
        _expect(known, f"a tensor of type {entry.dtype!r:.60}", ", ".join(WIDTHS))
        sides = len(entry.shape) <= MOST_DIMENSIONS and all(side >= 0 for side in entry.shape)
        _expect(
            sides, f"a tensor of shape {entry.shape!s:.80}", f"at most {MOST_DIMENSIONS} sides, none negative"
        )
        _expect(len(entry.group) <= LONGEST_NAME, f"a group of {len(entry.group)} letters", "a name")
        # One by one: the product of two large numbers may be longer than a number can be written.
        small = all(side <= LARGEST_MODEL for side in entry.shape)
        _expect(small, f"a tensor of shape {entry.shape!s:.80}", f"sides of at most {LARGEST_MODEL}")
        total += entry.nbytes
    _expect(total <= LARGEST_MODEL, f"{total} bytes in {key!r:.80}", f"at most {LARGEST_MODEL}")


def _check_facts(spec: RunSpec) -> None:
    """What is told to people, and names that are looked up."""
    for facts in (spec.versions, spec.chosen):
        _expect(len(facts) <= MOST_FACTS, f"{len(facts)} facts for people", f"at most {MOST_FACTS}")
        longest = max((max(len(name), len(said)) for name, said in facts.items()), default=0)
        _expect(longest <= LONGEST_FACT, f"a fact of {longest} letters", f"at most {LONGEST_FACT}")
    _check_names(spec.frozen, "frozen module", most=MOST_TENSORS, longest=LONGEST_NAME)
    if (weights := spec.weights) is not None:
        _expect(
            len(weights.source) <= LONGEST_NAME, f"weights of {len(weights.source)} letters", "a file's name"
        )
        hashes = _HASH.fullmatch(weights.sha256) and _HASH.fullmatch(weights.taken)
        _expect(hashes, "weights without a hash", "64 digits 0-9 a-f")


def _check_names(names: Collection[str], what: str, *, most: int, longest: int) -> None:
    _expect(len(names) <= most, f"{len(names)} names of a {what}", f"at most {most}")
    letters = max(map(len, names), default=0)
    _expect(letters <= longest, f"the name of a {what} with {letters} letters", f"at most {longest}")
    _expect(len(set(names)) == len(names), f"a {what} that is named twice", "each once")
    odd = next((name for name in names if not is_printable(name)), None)
    _expect(odd is None, f"a {what} called {odd!r:.80}", "a name without signs that a terminal obeys")


def _expect(true: object, seen: str, expected: str) -> None:  # reads as a sentence
    if not true:
        raise OutOfBounds(seen, expected)
