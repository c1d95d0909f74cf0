"""What a site says of its data is refused in words if it cannot be true."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from pfl_common.errors import Refused
from pfl_common.spec.data_description import check
from pfl_common.spec.run import NOT_SUMMED, Description, Moments
from pfl_common.spec.table_schema import SeenColumn
from tests.common.support.terminal_attacks import ATTACKS

PICTURES = Description(
    (3, 40, 48), ("cat", "dog"), 7, sizes=((40, 48, 5), (100, 200, 2)), low=0, high=255, data="ab" * 32
)
NUMBERS = Description(
    (2,),
    ("cat", "dog"),
    3,
    "array",
    values="numbers",
    low=-1.0,
    high=4.0,
    moments=Moments(3, (6.0, -1.5), (14.0, 1.25)),
)
TEXTS = Description(
    (200,), ("bad", "good"), 9, "tokens", values="numbers", numbering="words", words=("cough", "fever")
)
HASHED = replace(TEXTS, numbering="hashed", words=(), tokens=32_000)
WINDOWS = Description(
    (2, 9),
    ("a", "b"),
    3,
    "windows",
    values="numbers",
    low=-1,
    high=4,
    moments=Moments(27, (6.0, -1.5), (99.0, 9.0)),
)
TABLE = replace(NUMBERS, kind="table", columns=("age", "weight"))
AGE = SeenColumn("age", count=10, total=500.0, square=25_100.0)
WARD = SeenColumn("ward", categorical=True, missing=True, categories=("a", "b"))
ROWS = Description((2,), ("ill", "well"), 12, "table", values="numbers", table=(AGE, WARD))


@pytest.mark.parametrize(
    "true",
    [
        PICTURES,
        NUMBERS,
        TEXTS,
        HASHED,
        WINDOWS,
        TABLE,
        ROWS,
        replace(ROWS, samples=None),
        replace(WINDOWS, columns=("x", "y", "z")[: WINDOWS.shape[0]]),
        replace(HASHED, numbering="numbers"),
        replace(TEXTS, numbering="withheld", words=()),
        replace(PICTURES, values="wide", high=4095),
        Description((4,), ("a",), 3, "array"),
        replace(NUMBERS, moments=NOT_SUMMED),
        replace(NUMBERS, low=-3e38, high=3e38, moments=Moments(3, (3e38, -3e38), (9e76, 9e76))),
    ],
)
def test_what_can_be_true_is_taken(true: Description) -> None:
    """Whole descriptions, and one of a site that says as little as an older one did."""
    check(true)


def rows(column: SeenColumn) -> Description:
    """A table of one column."""
    return replace(ROWS, shape=(1,), table=(column,))


@pytest.mark.parametrize(
    ("lie", "seen"),
    [
        (replace(TEXTS, words=()), "a list of 0 words; expected: one if it is told"),
        (replace(TEXTS, words=("a" * 65,)), "a word of 65 letters"),
        (replace(TEXTS, words=("a", "b", "a")), "a word that is listed twice"),
        (replace(TEXTS, words=("a", "")), "an empty word"),
        (replace(TEXTS, words=tuple(map(str, range(100_001)))), "100001 words of"),
        (replace(TEXTS, words=tuple(f"{n:060}" for n in range(20_000))), "20000 words of 1200000 bytes"),
        (replace(TEXTS, tokens=9), "9 numbers of words"),
        (replace(TEXTS, shape=(65_537,)), "texts of 65537 words"),
        (replace(TEXTS, shape=(200, 3)), "tokens of shape (200, 3)"),
        (replace(TEXTS, values="bytes"), "tokens of bytes"),
        (replace(TEXTS, moments=Moments(200, (6.0,), (14.0,)), high=9), "sums over the numbers of words"),
        (replace(TEXTS, numbering="", words=()), "words of samples that are no texts"),
        (replace(NUMBERS, numbering="words", words=("a",)), "words of samples that are no texts"),
        (replace(NUMBERS, words=("a",)), "a list of 1 words"),
        (replace(NUMBERS, tokens=9), "9 numbers of words"),
        (replace(HASHED, tokens=2), "2 numbers of words"),
        (replace(HASHED, tokens=1_000_001), "1000001 numbers of words"),
        (replace(HASHED, words=("a",)), "a list of 1 words"),
        (replace(WINDOWS, shape=(9,)), "windows of shape (9,)"),
        (replace(WINDOWS, shape=(5000, 9), moments=None), "windows of 5000 channels"),
        (replace(WINDOWS, moments=Moments(28, (6.0, -1.5), (99.0, 9.0))), "sums over 28 numbers"),
        (replace(TABLE, columns=("age",)), "1 names for 2 columns"),
        (replace(TABLE, columns=("age", "age")), "a column that is named twice"),
        (replace(TABLE, columns=("age", "w" * 201)), "a column's name of 201 letters"),
        (replace(NUMBERS, columns=("age", "weight")), "columns of samples that are no table"),
        (replace(ROWS, kind="array"), "columns of samples that are no table"),
        (replace(ROWS, shape=(3,)), "2 columns of a row of (3,)"),
        (replace(ROWS, table=(AGE, AGE)), "a column that is named twice"),
        (rows(replace(AGE, name="")), "a column's name of 0 letters"),
        (rows(replace(AGE, categories=("a",))), "categories in a column of numbers"),
        (rows(replace(WARD, count=6)), "sums over categories"),
        (rows(replace(WARD, categories=tuple(map(str, range(1001))))), "1001 categories"),
        (rows(replace(WARD, categories=("a" * 65,))), "a category of 65 letters"),
        (rows(replace(WARD, categories=("a", "a"))), "a category that is told twice"),
        (rows(replace(WARD, hashed=8)), "8 places for hashes"),
        (rows(replace(WARD, categories=(), hashed=4097)), "4097 places for hashes"),
        (rows(replace(AGE, count=4)), "sums over 4 numbers; expected: 5 to 12"),
        (rows(replace(AGE, count=13)), "sums over 13 numbers"),
        (rows(replace(AGE, count=0)), "sums over no numbers"),
        (rows(replace(AGE, total=math.nan)), "a sum that is no finite number"),
        (rows(replace(AGE, square=24_000.0)), "24000 as the sum of squares"),
        (rows(replace(AGE, square=1e80)), "as the sum of squares"),
        (replace(PICTURES, sizes=((0, 48, 5),)), "pictures of 0x48; expected: sides of 1"),
        (replace(PICTURES, sizes=((40, 100_001, 5),)), "pictures of 40x100001"),
        (replace(PICTURES, sizes=((40, 48, 0),)), "0 pictures of 40x48"),
        (replace(PICTURES, sizes=((40, 48, 1), (40, 48, 2))), "counted twice"),
        (replace(PICTURES, sizes=tuple((8, 8 + n, 1) for n in range(17))), "17 sizes of pictures"),
        (replace(PICTURES, low=math.nan), "values from nan to 255"),
        (replace(PICTURES, low=-math.inf), "values from -inf"),
        (replace(PICTURES, low=9, high=8), "values from 9 to 8"),
        (replace(PICTURES, high=256), "bytes from 0 to 256"),
        (replace(PICTURES, values="wide", high=65536), "wide from 0 to 65536"),
        (replace(PICTURES, values="numbers"), "images of numbers"),
        (replace(PICTURES, data="g" * 64), "a fingerprint of another form"),
        (replace(PICTURES, data="a" * 65), "a fingerprint of another form"),
        (replace(NUMBERS, shape=(1 << 20, 1 << 20), moments=None), "1099511627776 numbers in a sample"),
        (
            replace(NUMBERS, classes=tuple(map(str, range(300_000)))),
            "300000 classes; expected: at most 20000",
        ),
        (replace(PICTURES, shape=(3, 0, 48)), "a sample of shape"),
        (replace(PICTURES, shape=(1,) * 9), "9 dimensions"),
        (replace(PICTURES, classes=("cat", "cat")), "a class that is named twice"),
        (replace(PICTURES, classes=("c" * 1001,)), "a class name of 1001 letters"),
        (replace(PICTURES, classes=tuple(map(str, range(20_001)))), "20001 classes"),
        (replace(PICTURES, warnings=("w",) * 65), "65 warnings"),
        (replace(PICTURES, warnings=("w" * 8001,)), "a warning of 8001 letters"),
        (replace(NUMBERS, low=-1e200, high=1e200), "values from -1e+200 to 1e+200"),
        (replace(PICTURES, shape=(1 << 31, 40, 48)), "pictures of shape (2147483648, 40, 48)"),
        (replace(PICTURES, shape=(40, 48)), "pictures of shape (40, 48)"),
        (replace(PICTURES, shape=(3, 40, 100_001)), "pictures of shape (3, 40, 100001)"),
        (replace(PICTURES, shape=()), "a sample of shape ()"),
        (replace(PICTURES, samples=1 << 41), "2199023255552 samples"),
        (replace(PICTURES, sizes=((40, 48, 1 << 63),)), "9223372036854775808 pictures of 40x48"),
        (replace(NUMBERS, moments=Moments(3, (3.0,), (5.0,))), "1 sums for samples of shape (2,)"),
        (
            replace(NUMBERS, moments=Moments(4, (3.0, 3.0), (5.0, 5.0))),
            "sums over 4 numbers; expected: at most 3",
        ),
        (
            replace(NUMBERS, samples=None, moments=Moments(1 << 62, (0.0, 0.0), (0.0, 0.0))),
            "sums over 4611686018427387904 numbers",
        ),
        (replace(NUMBERS, moments=Moments(0, (1.0, 1.0), (1.0, 1.0))), "sums over 0 numbers"),
        (replace(NUMBERS, moments=Moments(-1, (6.0, 0.0), (14.0, 1.0))), "sums over -1 numbers"),
        (replace(NUMBERS, moments=Moments(0, (6.0, 0.0), (14.0, 1.0))), "sums over 0 numbers"),
        (replace(NUMBERS, moments=Moments(3, (), ())), "0 sums and 0 sums of squares"),
        (replace(NUMBERS, moments=Moments(3, (1.0,) * 4097, (1.0,) * 4097)), "4097 sums"),
        (replace(NUMBERS, moments=Moments(3, (1.0, 1.0), (1.0,))), "2 sums and 1 sums of squares"),
        (replace(NUMBERS, moments=Moments(3, (math.nan,), (14.0,))), "no finite number"),
        (replace(NUMBERS, moments=Moments(3, (1.0,), (math.inf,))), "no finite number"),
        (replace(NUMBERS, moments=Moments(3, (13.0,), (60.0,))), "a sum of 13 over 3 numbers"),
        (replace(NUMBERS, moments=Moments(3, (6.0,), (11.9,))), "as the sum of squares"),
        (replace(NUMBERS, moments=Moments(3, (6.0,), (49.0,))), "as the sum of squares"),
        (replace(NUMBERS, moments=Moments(3, (0.0,), (-1.0,))), "as the sum of squares"),
    ],
)
def test_a_lie_is_refused_in_words(lie: Description, seen: str) -> None:
    """With a code that is counted, what was seen and what was expected."""
    with pytest.raises(Refused, match=re.escape(seen)) as refused:
        check(lie)
    assert "bad_request" == refused.value.code
    assert "expected: " in refused.value.words


@pytest.mark.parametrize("name", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize(
    "named",
    [
        lambda name: replace(PICTURES, classes=("cat", name)),
        lambda name: replace(TEXTS, words=("cough", name)),
        lambda name: replace(TABLE, columns=("age", name)),
        lambda name: replace(ROWS, table=(replace(AGE, name=name), WARD)),
        lambda name: replace(ROWS, table=(AGE, replace(WARD, categories=("a", name)))),
    ],
    ids=["class", "word", "column", "table", "category"],
)
def test_a_name_that_a_terminal_obeys(name: str, named: Callable[[str], Description]) -> None:
    """It is refused with a code of its own, in words that can be shown."""
    with pytest.raises(Refused) as refused:
        check(named(name.replace("\ud800", "\u202e")))
    assert ("unprintable", True) == (refused.value.code, refused.value.words.isprintable())


def test_a_name_in_another_script() -> None:
    """Names are people's own words, in any script."""
    check(
        replace(PICTURES, classes=("猫", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "stage\u00a0II"))
    )
