"""What of a site's description of its data is told, field by field.

kind, shape, values, numbering, tokens, table's flags   always told (shape without height and width: `sizes`)
classes   class_names          samples   counts          sizes, shape   sizes, counts
low, high ranges               moments   sums, ranges, counts, sizes    table's sums   sums, counts
words     words                columns   columns         table's names  columns; its categories: categories
data      fingerprint          warnings  warnings, class_names, counts
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import NamedTuple

from pfl_client.policy.refusal import Forbidden
from pfl_client.policy.rules import Counts, Joining, Policy
from pfl_common.spec.data_description import FEWEST_SUMMED
from pfl_common.spec.hashed_names import hash_name
from pfl_common.spec.run import NOT_SUMMED, Description, Moments
from pfl_common.spec.table_schema import SeenColumn

FEWEST_ROUNDED = 10
"""A smaller number is told as this one."""
NO_SIZE = (1, 1)
"""Height and width of pictures whose sizes are withheld."""


class Trimmed(NamedTuple):
    """A description as others may know it, and the fields that are not as they were."""

    description: Description
    changed: tuple[str, ...]


def trim(description: Description, policy: Policy) -> Trimmed:
    """Take out of a description what the policy withholds."""
    rules = policy.joining
    _check_columns(description, policy)
    told = _trim_names(description, rules)
    told = _trim_sums(told, description, rules)
    told = _trim_counts(told, rules.counts)
    if not rules.sizes and told.kind == "image":
        told = replace(told, sizes=(), shape=(told.shape[0], *NO_SIZE))
    if not rules.ranges:
        told = replace(told, low=0.0, high=0.0)
    changed = tuple(
        one.name for one in fields(Description) if getattr(told, one.name) != getattr(description, one.name)
    )
    return Trimmed(told, changed)


def _check_columns(description: Description, policy: Policy) -> None:
    if description.table and not policy.joining.columns:
        raise Forbidden(
            policy,
            "joining.columns",
            "the data are files of rows, which sites agree on by their columns' names",
            expected="columns = true, or data as an array (npz), whose columns need no names",
        )


def _trim_names(description: Description, rules: Joining) -> Description:
    classes = description.classes
    if rules.class_names != "yes":
        # Sorted by their hashes: the order of the folder would tell of the names.
        classes = tuple(sorted(map(hash_name, classes))) if rules.class_names == "hashed" else ()
    quiet = not rules.warnings or rules.class_names != "yes" or rules.counts != "exact"
    told = replace(
        description,
        classes=classes,
        columns=description.columns if rules.columns else (),
        data=description.data if rules.fingerprint else "",
        warnings=() if quiet else description.warnings,
    )
    if not rules.words and told.numbering == "words":
        told = replace(told, numbering="withheld", words=())
    if not rules.categories:
        told = replace(told, table=tuple(replace(one, categories=()) for one in told.table))
    return told


def _trim_sums(told: Description, whole: Description, rules: Joining) -> Description:
    """Sums need a count, which of pictures tells their sizes, and can be checked only within a range."""
    if not rules.sums or rules.counts == "none":
        bare = tuple(replace(one, count=0, total=0.0, square=0.0) for one in told.table)
        told = replace(told, table=bare)
    sized = rules.sizes or whole.kind != "image"
    if not (rules.sums and rules.ranges and sized and rules.counts != "none") and _has_sums(whole):
        told = replace(told, moments=NOT_SUMMED)
    return told


def _has_sums(description: Description) -> bool:
    """Whether sums belong to such data: of pictures they may be asked for later."""
    return description.moments is not None or description.kind == "image"


def _trim_counts(told: Description, counts: Counts) -> Description:
    if counts == "exact":
        return told
    samples = None if counts == "none" or told.samples is None else round_up(told.samples)
    sizes = tuple((high, wide, 1 if counts == "none" else round_up(n)) for high, wide, n in told.sizes)
    return replace(
        told,
        samples=samples,
        sizes=sizes,
        moments=_scale(told.moments, told.samples),
        table=tuple(map(_scale_column, told.table)),
    )


def round_up(count: int) -> int:
    """A count with one digit and zeros, no smaller than it is: 1234 is told as 2000, 7 as 10."""
    if count <= FEWEST_ROUNDED:
        return FEWEST_ROUNDED if count else 0
    step: int = 10 ** (len(str(count)) - 1)
    return -(-count // step) * step


def _scale(moments: Moments | None, samples: int | None) -> Moments | None:
    """Sums as if there were the rounded number of samples: mean and deviation stay."""
    if moments is None or moments == NOT_SUMMED or not samples:
        return moments
    count = moments.count * round_up(samples) // samples
    share = count / moments.count
    return Moments(count, tuple(s * share for s in moments.sums), tuple(s * share for s in moments.squares))


def _scale_column(column: SeenColumn) -> SeenColumn:
    if not column.count:
        return column
    count = max(FEWEST_SUMMED, round_up(column.count))
    share = count / column.count
    return replace(column, count=count, total=column.total * share, square=column.square * share)


def blur(vector: list[float], counts: Counts) -> tuple[int, int]:
    """Correct and all samples of an evaluation, as counts may be told: of 100 where none are."""
    samples = 100 if counts == "none" else round_up(int(vector[1]))
    return min(samples, math.floor(vector[2] * samples + 0.5)), samples
