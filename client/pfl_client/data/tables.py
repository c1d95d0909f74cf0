"""Tables from files of rows: describes their columns, and reads them as the run agreed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import structlog
import torch

from pfl_client.data.declaration import Declared
from pfl_client.data.labelled_rows import LabelledRows
from pfl_client.data.layout import PARTS
from pfl_client.data.records import show_column
from pfl_client.data.table_columns import Categories, Tally, conclude, remark_columns
from pfl_client.data.table_encoding import Encoder, refuse_cell
from pfl_client.data.warnings import number_classes
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError, nearest
from pfl_common.learning.method import Samples
from pfl_common.spec.data_description import MOST_TABLE_COLUMNS
from pfl_common.spec.run import Description, RunSpec
from pfl_common.spec.table_schema import Column, SeenColumn

log = structlog.get_logger(__name__)


def describe(rows: LabelledRows, declared: Declared) -> Description:
    """Columns and what is told of each, classes, number of training rows, warnings."""
    _check_features(rows)
    tallies = _look(rows)
    told = conclude(tallies, _count_categories(rows, tallies, declared), declared)
    if not told:
        raise DataError(
            "no column of the table has a value in any training row",
            expected="columns of numbers or of categories beside that of the class",
            advice="look into the file of the training part",
        )
    _check_others(rows, told)
    counted = len(rows.labels("train")) if declared.tell_counts else None
    return Description(
        shape=(len(told),),
        classes=rows.classes,
        samples=counted,
        kind="table",
        warnings=tuple(rows.warnings() + remark_columns(tallies, told, declared)),
        values="numbers",
        table=told,
    )


def tell(told: Sequence[SeenColumn]) -> str:
    """What a site tells of its columns, described for its own log."""
    sums = sum(column.count > 0 for column in told)
    named = [column for column in told if column.categories]
    words = f"the names of {len(told)} columns, and which have missing values"
    words += f"; sum and sum of squares of {sums}" if sums else "; no sums"
    if named:
        count = sum(len(column.categories) for column in named)
        which = ", ".join(show_column(one.name) for one in named[:8])
        words += f"; {count} categories of {len(named)} columns by name ({which})"
    return f'{words}; "tell_counts" and "tell_categories" in data.json change that'


def load(rows: LabelledRows, folder: DataFolder, spec: RunSpec) -> dict[str, Samples]:
    """All rows as the run's numbers."""
    check_run(folder, spec)
    encoder, numbers = Encoder(spec.model.table), number_classes(rows.classes, folder, spec)
    check_columns(rows.roles.features, spec.model.table, folder)
    return {part: _encode(rows, part, encoder, numbers) for part in PARTS}


def check_run(folder: DataFolder, spec: RunSpec) -> None:
    """Refuse files of rows for a run whose samples are none."""
    if not spec.model.table:
        raise DataError(
            f"{folder.site} has a table in files of rows, the run is about other data",
            expected="a run that was agreed by sites with such tables",
            advice="check --data, or join another run",
        )


def check_columns(own: Sequence[str], table: Sequence[Column], folder: DataFolder) -> None:
    """Refuse a table without a column that the run cannot do without; tell what is taken for missing."""
    for column in table:
        if column.name in own:
            continue
        if not column.missing:
            raise DataError(
                f"{folder.site} has no column {show_column(column.name)}, which the run needs",
                expected=f"the run's columns; {nearest(column.name, own)[:600]}",
                advice="name it so in the first line of the table",
            )
        log.warning("a column is missing", site=folder.site, column=column.name)


def _check_features(rows: LabelledRows) -> None:
    features = rows.roles.features
    if "" in features:
        raise DataError(
            "the table has a column without a name",
            expected="a name for each column",
            advice="if it counts the rows, leave it away: pandas writes none with to_csv(..., index=False)",
        )
    if not 1 <= len(features) <= MOST_TABLE_COLUMNS:
        raise DataError(
            f"the table has {len(features)} columns beside that of the class",
            expected=f"1 to {MOST_TABLE_COLUMNS}",
            advice='add what tells the classes apart, or leave columns out: "leave_out" in data.json',
        )


def _look(rows: LabelledRows) -> list[Tally]:
    """The training rows, column by column."""
    tallies = [Tally(name) for name in rows.roles.features]
    for called, block in rows.read("train", rows.roles.features):
        for tally in tallies:
            tally.add(block.columns[tally.name], block.lines, called=called)
    return tallies


def _count_categories(
    rows: LabelledRows, tallies: Sequence[Tally], declared: Declared
) -> dict[str, Categories]:
    """Who has which category, where categories are told."""
    named = [tally.name for tally in tallies if tally.holds_categories(declared)]
    if declared.tell_categories is not True or not named:
        return {}
    counted = {name: Categories(declared.fewest_told) for name in named}
    groups, done = rows.groups("train"), 0
    for _, block in rows.read("train", named):
        owners = groups[done : done + len(block)] or [str(done + at) for at in range(len(block))]
        for name, own in counted.items():
            own.add(block.columns[name], owners)
        done += len(block)
    return counted


def _check_others(rows: LabelledRows, told: Sequence[SeenColumn]) -> None:
    """Cells of the other parts that the run could not read are said before it begins."""
    encoder = Encoder([Column(column.name) for column in told if not column.categorical])
    for part in PARTS[1:]:
        for called, block in rows.read(part, encoder.names):
            encoder.encode(block, refuse_cell(called, block))


def _encode(rows: LabelledRows, part: str, encoder: Encoder, numbers: dict[str, int]) -> Samples:
    blocks = [
        encoder.encode(block, refuse_cell(called, block)) for called, block in rows.read(part, encoder.names)
    ]
    x = np.concatenate(blocks) if blocks else np.zeros((0, encoder.width), np.float32)
    y = torch.tensor([numbers[label] for label in rows.labels(part)], dtype=torch.int64)
    return Samples(torch.from_numpy(x), y)
