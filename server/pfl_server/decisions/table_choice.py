"""Agrees on the columns of tables that come from files of rows: by name, from what the sites tell of their own.

A column that more than half of the sites have is the run's; a site that lacks it has it missing in every row. It holds
categories if at least half of those that have it say so. Everything follows from the set of descriptions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pfl_common.errors import DataError, Refused
from pfl_common.spec.data_description import MOST_CATEGORIES, WIDEST_ROW
from pfl_common.spec.run import ClientId, Description, Moments
from pfl_common.spec.table_schema import Column, SeenColumn, count_width
from pfl_server.decisions.class_names import show_name
from pfl_server.decisions.input_choice import find_mean_and_deviation

MOST_NAMED = 8

Sites = Mapping[ClientId, Description]


def choose_table(sites: Sites, *, fewest_sites: int, standardise: bool = True) -> tuple[Column, ...]:
    """The run's columns, sorted by name; none where the sites' data are no files of rows.

    A category is known if `fewest_sites` sites tell it, or all that tell any are fewer than that.
    """
    if not any(one.table for one in sites.values()):
        return ()
    agreed = (
        _agree(name, seen, len(sites), fewest_sites, standardise=standardise)
        for name, seen in sorted(_by_name(sites).items())
        if 2 * len(seen) > len(sites)
    )
    table = tuple(column for column in agreed if _says_something(column))
    if not table:
        raise DataError(
            "the sites' tables have no column in common that could be learnt from",
            expected="columns of the same names at more than half of the sites",
            advice="name the columns alike, and tell categories or have them hashed: data.json",
        )
    if (width := count_width(table)) > WIDEST_ROW:
        widest = max(table, key=lambda column: (column.width, column.name))
        raise DataError(
            f"a row of the sites' tables would become {width} numbers, {widest.width} of them the column "
            f"{show_name(widest.name)}",
            expected=f"at most {WIDEST_ROW}",
            advice='start with a larger --fewest-sites, or leave columns out: "leave_out" in data.json',
        )
    return table


def find_hindrance(sites: Sites, *, fewest_sites: int) -> str:
    """Why these sites' columns make no table for a run; else nothing."""
    try:
        choose_table(sites, fewest_sites=fewest_sites)
    except DataError as error:
        return f"{error.seen}; expected: {error.expected}; what to do: {error.advice}"
    return ""


def odd_tables(sites: Sites) -> dict[ClientId, str]:
    """Sites with texts in a column that holds numbers at most sites, and what to do about it."""
    odd: dict[ClientId, str] = {}
    for name, seen in sorted(_by_name(sites).items()):
        texts = [site for site, column in seen.items() if column.categorical]
        if 2 * len(texts) < len(seen):
            odd |= {site: _say_texts(site, name) for site in texts if site not in odd}
    return odd


def check_table(site: ClientId, description: Description, table: Sequence[Column]) -> None:
    """Refuse a site whose columns cannot be read as the run agreed."""
    own = {column.name: column for column in description.table}
    for column in table:
        if column.name not in own and not column.missing:
            raise Refused(
                "shape",
                f"{site} has no column {show_name(column.name)}, which the run needs; expected: the columns "
                f"{_enumerate(one.name for one in table)}; what to do: name it so in the first line of the table",
            )
        if column.name in own and own[column.name].categorical and not column.categorical:
            raise Refused("shape", _say_texts(site, column.name))


def explain(sites: Sites, table: Sequence[Column], *, standardise: bool) -> dict[str, str]:
    """The columns and where they come from, in words for operator and sites."""
    if not table:
        return {}
    told = {"columns": _explain_columns(sites, table), "missing values": _explain_missing(table)}
    if named := [column for column in table if column.categorical]:
        told["categories"] = "; ".join(
            f"{column.name}: {_explain_categories(column)}" for column in named[:MOST_NAMED]
        ) + (f"; and {len(named) - MOST_NAMED} columns more" if len(named) > MOST_NAMED else "")
    if len(named) < len(table):
        told["scaling"] = _explain_scaling(sites, standardise=standardise)
    return told


def _by_name(sites: Sites) -> dict[str, dict[ClientId, SeenColumn]]:
    seen: dict[str, dict[ClientId, SeenColumn]] = {}
    for site, one in sorted(sites.items()):
        for column in one.table:
            seen.setdefault(column.name, {})[site] = column
    return seen


def _agree(
    name: str, seen: Mapping[ClientId, SeenColumn], sites: int, fewest_sites: int, *, standardise: bool
) -> Column:
    columns = list(seen.values())
    missing = len(columns) < sites or any(column.missing for column in columns)
    if 2 * sum(column.categorical for column in columns) >= len(columns):
        hashing = [column.hashed for column in columns if column.hashed]
        if 2 * len(hashing) > len(columns):
            return Column(name, categorical=True, missing=missing, hashed=max(hashing))
        known = _choose_categories(columns, fewest_sites)
        return Column(name, categorical=True, missing=missing, categories=known)
    told = [Moments(one.count, (one.total,), (one.square,)) for one in columns if one.count]
    mean, deviation = find_mean_and_deviation(told, 0) if told and standardise else (0.0, 1.0)
    return Column(name, missing=missing, mean=mean, deviation=deviation)


def _choose_categories(columns: Sequence[SeenColumn], fewest_sites: int) -> tuple[str, ...]:
    tellers = Counter(name for column in columns for name in column.categories)
    telling = sum(bool(column.categories) for column in columns)
    fewest = min(fewest_sites, telling)
    known = [name for name, sites in tellers.items() if sites >= fewest]
    # Of too many those that most sites have.
    return tuple(sorted(sorted(known, key=lambda name: (-tellers[name], name))[:MOST_CATEGORIES]))


def _says_something(column: Column) -> bool:
    """A column of categories that nobody tells is the same number in every row."""
    return not column.categorical or bool(column.categories or column.hashed)


def _say_texts(site: ClientId, name: str) -> str:
    return (
        f"{site} has texts in its column {show_name(name)}; expected: numbers, as most sites have there; what to do: "
        f'correct its cells, or leave it out: "leave_out" in data.json; if they are categories, the others say so: '
        f'{{"categorical": ["..."]}}'
    )


def _explain_columns(sites: Sites, table: Sequence[Column]) -> str:
    lacking = [(column.name, _lacking(sites, column.name)) for column in table]
    known = {column.name for column in table}
    left = sorted({column.name for one in sites.values() for column in one.table} - known)
    words = (
        f"{len(table)} of them become {count_width(table)} numbers: {_enumerate(one.name for one in table)}"
    )
    for name, without in [(name, own) for name, own in lacking if own][:MOST_NAMED]:
        words += f"; {show_name(name)} is missing at {_enumerate(without)}"
    if left:
        words += (
            f"; left out, because no more than half of the sites have them or because nobody tells a category: "
            f"{_enumerate(left)}"
        )
    return words


def _lacking(sites: Sites, name: str) -> list[ClientId]:
    return [site for site, one in sorted(sites.items()) if all(column.name != name for column in one.table)]


def _explain_missing(table: Sequence[Column]) -> str:
    holed = [column.name for column in table if column.missing]
    if not holed:
        return (
            "none at any site; a missing number is taken for the mean, a missing category for any other one"
        )
    return (
        f"of {_enumerate(holed)}: a number is taken for the mean, a category for none, and one more input says that it "
        "is missing"
    )


def _explain_categories(column: Column) -> str:
    if column.hashed:
        return f"by their hashes in {column.hashed} places"
    return f"{len(column.categories)} by name, and one place for all others"


def _explain_scaling(sites: Sites, *, standardise: bool) -> str:
    if not standardise:
        return "none: numbers are taken as they are, as --standardise says"
    silent = [site for site, one in sorted(sites.items()) if not any(column.count for column in one.table)]
    words = "each column of numbers by mean and deviation, from sums over the training rows"
    if len(silent) == len(sites):
        return "none: no site tells sums of its numbers, which are taken as they are"
    return words + (f" (not of {_enumerate(silent)}, which tell no sums)" if silent else "")


def _enumerate(names: Iterator[str] | Sequence[str]) -> str:
    every = list(names)
    shown = ", ".join(show_name(name) for name in every[:MOST_NAMED])
    return shown if len(every) <= MOST_NAMED else f"{shown} and {len(every) - MOST_NAMED} more"
