"""Checks a site's description of its data, which comes over the wire and decides what all sites build.

What is bounded here bounds the call too. Refused is what no site of ours would say, with what was expected instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from pfl_common.errors import Refused
from pfl_common.printable import is_printable, printable
from pfl_common.spec.run import NOT_SUMMED, Description, InputKind, Model, Moments
from pfl_common.spec.table_schema import SeenColumn

MOST_BYTES = 1_200_000
"""All that a site says of its data: the longest list of words, with what a message adds to each, and the rest."""
MOST_SIZES, LONGEST_SIDE = 16, 100_000
MOST_MOMENTS = 4096
"""Features that are told apart; data with more are standardised by one mean and one deviation."""
MOST_DIMENSIONS, LARGEST_DIMENSION = 8, 1 << 31
MOST_NUMBERS = 1 << 28
"""Of one sample that is no picture: a volume of 512 x 512 x 1000 has fewer. A picture is brought to the run's size."""
MOST_CLASSES, LONGEST_CLASS = 20_000, 1000
MOST_WARNINGS, LONGEST_WARNING = 64, 8000
MOST_SAMPLES = 1 << 40
LARGEST_NUMBER = 3.4028235e38
"""Numbers are float32: squares of these, summed over all samples there can be, are finite in float64."""
FEWEST_SUMMED = 5
"""Numbers in a sum at least: of a table with one row the sums are that row."""
MOST_WORDS, LONGEST_WORD, MOST_WORD_BYTES = 100_000, 64, 900_000
"""Of the list by which texts are numbered, a site's own and the run's; a longer one is hashed."""
MOST_TOKENS = 1_000_000
"""Numbers that words can have: each costs the model a row."""
LONGEST_TEXT = 65_536
MOST_COLUMNS, LONGEST_COLUMN = 20_000, 200
MOST_CATEGORIES, LONGEST_CATEGORY, MOST_HASHED = 1000, 64, 4096
"""Of one column: categories, letters of one, and places for those that are known by their hashes."""
MOST_TABLE_COLUMNS, WIDEST_ROW = 4096, 20_000
"""Columns of a file of rows, and the numbers that a row becomes: each costs a network's first layer a thousand."""
WHITEST = 65535
"""The largest number of a picture of 16 bits."""

_AXES = {"windows": ("channels", "time"), "tokens": ("words",), "table": ("columns",)}
_SHOWN = 100
_ROUNDING = 1e-6
"""Sums of floats in another order differ by less than this share."""


def check(description: Description) -> None:
    """Refuse a description that cannot be true."""
    _check_names(description)
    _check_shape(description)
    _check_values(description)
    _check_sizes(description)
    _check_text(description)
    _check_columns(description)
    _check_table(description)
    if description.moments is not None and description.moments != NOT_SUMMED:
        _check_moments(description, description.moments)
        _check_counts(description, description.moments)


def count_features(description: Description) -> int:
    """The number of features with sums of their own: channels, columns of a table, or none."""
    shape = description.shape
    if description.kind in ("image", "windows"):
        return shape[0]
    return 1 if len(shape) > 2 or shape[-1] > MOST_MOMENTS else shape[-1]


def _check_names(description: Description) -> None:
    classes, warnings = description.classes, description.warnings
    _expect(len(classes) <= MOST_CLASSES, f"{len(classes)} classes", f"at most {MOST_CLASSES}")
    longest = max(map(len, classes), default=0)
    _expect(longest <= LONGEST_CLASS, f"a class name of {longest} letters", f"at most {LONGEST_CLASS}")
    _expect(len(set(classes)) == len(classes), "a class that is named twice", "each class once")
    check_printable(classes, "class")
    _expect(len(warnings) <= MOST_WARNINGS, f"{len(warnings)} warnings", f"at most {MOST_WARNINGS}")
    longest = max(map(len, warnings), default=0)
    _expect(longest <= LONGEST_WARNING, f"a warning of {longest} letters", f"at most {LONGEST_WARNING}")
    hexadecimal = re.fullmatch(r"[0-9a-f]{0,64}", description.data) is not None
    _expect(hexadecimal, "a fingerprint of another form", "at most 64 digits 0-9 a-f")


def _check_shape(description: Description) -> None:
    shape = description.shape
    _expect(len(shape) <= MOST_DIMENSIONS, f"{len(shape)} dimensions", f"at most {MOST_DIMENSIONS}")
    outside = [length for length in shape if not 1 <= length <= LARGEST_DIMENSION]
    _expect(
        bool(shape) and not outside, f"a sample of shape {shape}", f"dimensions of 1 to {LARGEST_DIMENSION}"
    )
    picture = len(shape) == 3 and shape[0] in (1, 3) and max(shape[1:]) <= LONGEST_SIDE
    _expect(
        picture or description.kind != "image",
        f"pictures of shape {shape}",
        f"1 or 3 channels, height and width, sides of at most {LONGEST_SIDE}",
    )
    numbers = math.prod(shape)
    _expect(
        description.kind == "image" or numbers <= MOST_NUMBERS,
        f"{numbers} numbers in a sample",
        f"at most {MOST_NUMBERS}",
    )
    samples = description.samples or 0
    _expect(samples <= MOST_SAMPLES, f"{samples} samples", f"at most {MOST_SAMPLES}")
    _expect(
        description.kind in ("image", "array") or len(shape) == len(_AXES[description.kind]),
        f"{description.kind} of shape {shape}",
        " x ".join(_AXES.get(description.kind, ())),
    )
    channels = shape[0] if description.kind == "windows" else 1
    _expect(channels <= MOST_MOMENTS, f"windows of {channels} channels", f"at most {MOST_MOMENTS}")


def _check_values(description: Description) -> None:
    low, high, values = description.low, description.high, description.values
    _expect(
        math.isfinite(low) and math.isfinite(high) and low <= high,
        f"values from {low:g} to {high:g}",
        "two finite numbers, the smaller one first",
    )
    _expect(
        max(-low, high) <= LARGEST_NUMBER, f"values from {low:g} to {high:g}", "numbers that float32 can hold"
    )
    _expect((values == "numbers") <= (description.kind != "image"), f"images of {values}", "a kind of pixels")
    known = description.kind in ("image", "array") or values == "numbers"
    _expect(known, f"{description.kind} of {values}", "numbers")
    if values in ("bytes", "wide"):
        most = WHITEST if values == "wide" else 255
        _expect(low >= 0 and high <= most, f"{values} from {low:g} to {high:g}", f"values from 0 to {most}")


def _check_sizes(description: Description) -> None:
    sizes = description.sizes
    _expect(len(sizes) <= MOST_SIZES, f"{len(sizes)} sizes of pictures", f"at most {MOST_SIZES}")
    for height, width, count in sizes:
        sides = min(height, width) >= 1 and max(height, width) <= LONGEST_SIDE
        _expect(sides, f"pictures of {height}x{width}", f"sides of 1 to {LONGEST_SIDE} pixels")
        counted = 1 <= count <= MOST_SAMPLES
        _expect(counted, f"{count} pictures of {height}x{width}", f"1 to {MOST_SAMPLES} of each size")
    different = len({size[:2] for size in sizes})
    _expect(different == len(sizes), "a size of pictures that is counted twice", "each size once")


def _check_text(description: Description) -> None:
    """The list and the number of words decide how large the network is that every site builds."""
    numbering, tokens, words = description.numbering, description.tokens, description.words
    _expect(bool(numbering) == (description.kind == "tokens"), "words of samples that are no texts", "none")
    counted = 3 <= tokens <= MOST_TOKENS if numbering in ("hashed", "numbers") else not tokens
    _expect(counted, f"{tokens} numbers of words", f"3 to {MOST_TOKENS}, where no list of words is told")
    _expect(bool(words) == (numbering == "words"), f"a list of {len(words)} words", "one if it is told")
    check_words(words)
    text = description.kind == "tokens"
    length = description.shape[0] if text else 1
    _expect(length <= LONGEST_TEXT, f"texts of {length} words", f"at most {LONGEST_TEXT}")
    _expect(not text or description.moments is None, "sums over the numbers of words", "none")


def alike(kind: str) -> str:
    """Kinds of data that go together have one word: a table is an array whose samples are rows."""
    return "array" if kind == "table" else kind


def kind_of(model: Model, own: InputKind) -> InputKind:
    """The kind of a run's data; specifications of earlier releases do not name it, and had pictures and arrays."""
    return model.kind or ("image" if own == "image" else "array")


def check_words(words: Sequence[str]) -> None:
    """Refuse a list of words that is too long, has too long ones, or one twice."""
    size = sum(len(word.encode(errors="surrogatepass")) for word in words)
    _expect(
        len(words) <= MOST_WORDS and size <= MOST_WORD_BYTES,
        f"{len(words)} words of {size} bytes",
        f'at most {MOST_WORDS} words of {MOST_WORD_BYTES} bytes; more are hashed: "hashed" in data.json',
    )
    longest = max(map(len, words), default=0)
    _expect(longest <= LONGEST_WORD, f"a word of {longest} letters", f"at most {LONGEST_WORD}")
    _expect(len(set(words)) == len(words), "a word that is listed twice", "each word once")
    _expect(all(words), "an empty word", "letters")
    check_printable(words, "word")


def check_printable(names: Sequence[str], what: str) -> None:
    """Refuse names that a terminal, a log or a page would obey, or of which two may look alike. The name that is seen
    here is written so that it can be shown.
    """
    odd = [name for name in names if not is_printable(name)]
    if odd:
        more = f" and {len(odd) - 1} more of that kind" if len(odd) > 1 else ""
        raise Refused(
            "unprintable",
            f"a description of data with the {what} {printable(odd[0])[:_SHOWN]!r}{more}; "
            "expected: names without control characters, signs that turn the direction of writing, and signs without "
            "width",
        )


def _check_columns(description: Description) -> None:
    names = description.columns
    if not names:
        return
    named = description.kind in ("table", "windows") and not description.table
    _expect(named, "columns of samples that are no table and no windows", "none")
    columns = description.shape[0]
    _expect(len(names) == columns, f"{len(names)} names for {columns} columns", "one for each")
    _expect(len(names) <= MOST_COLUMNS, f"{len(names)} names of columns", f"at most {MOST_COLUMNS}")
    longest = max(map(len, names))
    _expect(longest <= LONGEST_COLUMN, f"a column's name of {longest} letters", f"at most {LONGEST_COLUMN}")
    _expect(len(set(names)) == len(names), "a column that is named twice", "each column once")
    check_printable(names, "column")


def _check_table(description: Description) -> None:
    """What decides how many numbers a row becomes, and by what they are scaled, at every site."""
    table = description.table
    if not table:
        return
    _expect(description.kind == "table", "columns of samples that are no table", "none")
    _expect(len(table) <= MOST_TABLE_COLUMNS, f"{len(table)} columns", f"at most {MOST_TABLE_COLUMNS}")
    fits = description.shape == (len(table),) and description.moments is None
    _expect(
        fits, f"{len(table)} columns of a row of {description.shape}", "one for each, with sums of its own"
    )
    _expect(
        len({one.name for one in table}) == len(table), "a column that is named twice", "each column once"
    )
    samples = MOST_SAMPLES if description.samples is None else description.samples
    for column in table:
        _check_column(column, samples)


def _check_column(column: SeenColumn, samples: int) -> None:
    length, names = len(column.name), column.categories
    _expect(1 <= length <= LONGEST_COLUMN, f"a column's name of {length} letters", f"1 to {LONGEST_COLUMN}")
    check_printable([column.name], "column")
    _expect(column.categorical or not (names or column.hashed), "categories in a column of numbers", "none")
    _expect(not column.categorical or not column.count, "sums over categories", "none")
    _expect(len(names) <= MOST_CATEGORIES, f"{len(names)} categories", f"at most {MOST_CATEGORIES}")
    longest = max(map(len, names), default=1)
    _expect(longest <= LONGEST_CATEGORY, f"a category of {longest} letters", f"at most {LONGEST_CATEGORY}")
    _expect(len(set(names)) == len(names) and all(names), "a category that is told twice", "each once")
    check_printable(names, "category")
    hashed = not column.hashed or (2 <= column.hashed <= MOST_HASHED and not names)
    _expect(hashed, f"{column.hashed} places for hashes", f"2 to {MOST_HASHED}, and no category told")
    _check_sums(column, samples)


def _check_sums(column: SeenColumn, samples: int) -> None:
    """As `_check_moments`, with bounds that every number has: a column's own are not told."""
    count, total, square = column.count, column.total, column.square
    if not count:
        _expect(not total and not square, "sums over no numbers", "none")
        return
    _expect(FEWEST_SUMMED <= count <= samples, f"sums over {count} numbers", f"{FEWEST_SUMMED} to {samples}")
    finite = math.isfinite(total) and math.isfinite(square)
    _expect(finite, "a sum that is no finite number", "finite numbers")
    mean = total / count
    # Not **: it raises where a product is infinite.
    possible = mean * mean * (1 - _ROUNDING) <= square / count <= LARGEST_NUMBER**2 * (1 + _ROUNDING)
    _expect(possible, f"{square:g} as the sum of squares, {total:g} as the sum", "two that fit together")


def _check_moments(description: Description, moments: Moments) -> None:
    count, features = moments.count, len(moments.sums)
    _expect(count >= 1, f"sums over {count} numbers", "at least one")
    _expect(
        features == len(moments.squares) and 1 <= features <= MOST_MOMENTS,
        f"{features} sums and {len(moments.squares)} sums of squares",
        f"as many of both, 1 to {MOST_MOMENTS}",
    )
    largest = max(abs(description.low), abs(description.high))
    slack = count * largest * _ROUNDING
    for total, square in zip(moments.sums, moments.squares, strict=True):
        finite = math.isfinite(total) and math.isfinite(square)
        _expect(finite, "a sum that is no finite number", "finite numbers")
        within = count * description.low - slack <= total <= count * description.high + slack
        _expect(within, f"a sum of {total:g} over {count} numbers", "one that their range allows")
        # The mean of squares is no less than the square of the mean, and no more than the largest square.
        least, most = (total / count) ** 2 * (1 - _ROUNDING), largest**2 * (1 + _ROUNDING)
        possible = least <= square / count <= most
        _expect(possible, f"{square:g} as the sum of squares, {total:g} as the sum", "two that fit together")


def _check_counts(description: Description, moments: Moments) -> None:
    """Every number of every sample is in one sum: who counts more would outweigh all other sites."""
    features, all_of_it = count_features(description), math.prod(description.shape)
    summed = len(moments.sums)
    _expect(summed == features, f"{summed} sums for samples of shape {description.shape}", f"{features}")
    samples = MOST_SAMPLES if description.samples is None else description.samples
    most = samples * all_of_it // features
    _expect(
        moments.count <= most, f"sums over {moments.count} numbers", f"at most {most}, as many as there are"
    )


def _expect(true: bool, seen: str, expected: str) -> None:  # reads as a sentence
    if not true:
        raise Refused("bad_request", f"a description of data with {seen}; expected: {expected}")
