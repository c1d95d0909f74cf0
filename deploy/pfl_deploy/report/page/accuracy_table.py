"""The table of each site's accuracy in each run, the same in `pfl report` and in `pfl demo`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from pfl_common.spec.run import ClientId
from pfl_deploy.report.page.html import long_table

MEAN = "mean of these"


@dataclass(frozen=True)
class Column:
    """A run's accuracy at its end by site, as shares; `shifted` is that of the second test, where sites have one."""

    title: str
    finals: Mapping[ClientId, float]
    shifted: Mapping[ClientId, float] = field(default_factory=dict)


def show_accuracies(
    columns: Sequence[Column], *, alone: Column | None = None, comparable: bool = True
) -> str:
    """One row for each site of the first run and one for their mean, in percent. With `alone`, a run of training alone,
    the first run's gain stands beside; of one that is not comparable no difference is taken.
    """
    own = columns[0].finals
    sites = sorted(own)
    head = ["site", *(column.title for column in columns)]
    made = [[*sites, MEAN], *(_list_cells(column.finals, sites, sites) for column in columns)]
    if alone is not None:
        head.append(f"less {alone.title}")
        gains = {site: own[site] - alone.finals[site] for site in sites if site in alone.finals}
        made.append(
            _list_cells(gains, sites, sites, sign="+")
            if comparable
            else ["not comparable"] * (len(sites) + 1)
        )
    tested = [site for site in sites if any(site in column.shifted for column in columns)]
    for column in filter(lambda column: column.shifted, columns):
        head.append(f"{column.title}, shifted")
        made.append(_list_cells(column.shifted, sites, tested))
    *rows, mean = [list(row) for row in zip(*made, strict=True)]
    return long_table(head, rows, "sites", foot=mean if len(sites) > 1 else None)


def _list_cells(
    values: Mapping[ClientId, float], sites: Sequence[ClientId], needed: Sequence[ClientId], *, sign: str = ""
) -> list[str]:
    """A column, with its mean below it unless it lacks a site that others have: means of unlike sites are not alike."""
    cells = [f"{100 * values[site]:{sign}.2f}" if site in values else "" for site in sites]
    whole = all(site in values for site in needed)
    return [*cells, f"{100 * fmean(values[site] for site in needed):{sign}.2f}" if whole else ""]
