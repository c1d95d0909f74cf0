"""Samples to predict from files of rows, read by the code that reads a site's own: tables by their columns, texts by
their words, recordings cut into windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pfl_client.data.declaration import Declared
from pfl_client.data.record_file import RecordFile
from pfl_client.data.recordings import Cut, read_one
from pfl_client.data.records import Bad, Records, plain_name, select, show_column
from pfl_client.data.row_kind import TEXT
from pfl_client.data.scaling import Floats
from pfl_client.data.table_encoding import Encoder
from pfl_client.data.texts import TextEncoder
from pfl_client.prediction.table_file import CALLED, Roles, read_roles
from pfl_common.errors import DataError
from pfl_common.spec.run import Model


@dataclass(frozen=True)
class RowSamples:
    """Samples as the model takes them."""

    places: tuple[int, ...]
    """Their rows, without the header."""
    x: Tensor
    labels: tuple[str, ...]
    groups: tuple[str, ...]


def reads_rows(model: Model) -> bool:
    """Whether the run's data can come from files of rows with named columns."""
    return bool(model.table) or (model.kind == "tokens" and model.numbering in ("words", "hashed"))


def read_samples(path: Path, model: Model, roles: Roles, *, most: int, bad: Bad) -> Iterator[RowSamples]:
    """The rows of a table or of texts, in blocks; `bad` is told of those that cannot be read."""
    file = RecordFile(path, called=CALLED)
    read = _read_table if model.table else _read_texts
    for rows, x in read(file, model, roles, most, bad):
        if roles.label:
            labels, groups = read_roles(rows, roles)
            fine = [bool(label) for label in labels]
            for place, known in zip(rows.places, fine, strict=True):
                if not known:
                    bad(place, f"it has no class in column {show_column(roles.label)}")
            rows, x = select(rows, fine), x[torch.tensor(fine, dtype=torch.bool)]
        labels, groups = read_roles(rows, roles)
        if len(rows):
            yield RowSamples(rows.places, x, labels, groups)


def read_windows(path: Path, model: Model, declared: Declared) -> Floats:
    """The windows of a recording, of the run's length and channels."""
    cut = Cut.of(declared, model.shape[1])
    return read_one(path, cut, model.columns, called="the recording")


def choose_label(path: Path, named: str, declared: Declared, *, default: str) -> str:
    """The column of the class: as named, as data.json says, or as it is usually called, if the file has that."""
    if named or declared.label:
        return plain_name(named or declared.label or "")
    return default if default in RecordFile(path, called=CALLED).names else ""


def _read_table(
    file: RecordFile, model: Model, roles: Roles, most: int, bad: Bad
) -> Iterator[tuple[Records, Tensor]]:
    encoder = Encoder(model.table)
    for column in model.table:
        # Where the run has a place for missing values a site without the column took part.
        if column.name not in file.names and not column.missing:
            raise DataError(
                f"{CALLED} has no column {show_column(column.name)}",
                expected="the columns of the run",
                advice="name it so in the first line",
            )
    wanted = [name for name in encoder.names if name in file.names]
    for rows in file.read(list(dict.fromkeys([*wanted, *roles.named])), most=most, bad=bad):
        fine = [True] * len(rows)

        def wrong(place: int, why: str, rows: Records = rows, fine: list[bool] = fine) -> None:
            if fine[place]:
                bad(rows.places[place], why)
            fine[place] = False

        x = torch.from_numpy(encoder.encode(rows, wrong))
        yield select(rows, fine), x[torch.tensor(fine, dtype=torch.bool)]


def _read_texts(
    file: RecordFile, model: Model, roles: Roles, most: int, bad: Bad
) -> Iterator[tuple[Records, Tensor]]:
    encoder = TextEncoder(model)
    for rows in file.read(list(dict.fromkeys([TEXT, *roles.named])), most=most, bad=bad):
        yield rows, torch.from_numpy(encoder.encode(rows.columns[TEXT]))
