"""Finds the files of rows of a data folder: tables and texts, part by part or in one file; none is opened here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pfl_client.data.record_file import SUFFIXES
from pfl_common.errors import DataError

UNDIVIDED = "data"
"""How a file is called that has no parts."""


@dataclass(frozen=True)
class RowFiles:
    """Files of rows by part; a single one under "data" has no parts, and is divided by ourselves."""

    parts: dict[str, Path]

    @property
    def divided(self) -> bool:
        """Whether train and test are our division, not the site's."""
        return UNDIVIDED in self.parts

    @property
    def files(self) -> list[Path]:
        """All of them."""
        return list(self.parts.values())


def find_rows(path: Path, parts: Sequence[str]) -> RowFiles | None:
    """The files of rows in a folder; None where there are none."""
    found: dict[str, Path] = {}
    for part in (*parts, UNDIVIDED):
        own = [file for suffix in SUFFIXES if (file := path / f"{part}{suffix}").is_file()]
        if len(own) > 1:
            raise _both([file.name for file in own], path)
        if own:
            found[part] = own[0]
    if found and (arrays := [f"{part}.npz" for part in parts if (path / f"{part}.npz").is_file()]):
        raise _both([found[min(found)].name, *arrays], path)
    if UNDIVIDED in found and len(found) > 1:
        others = [file.name for part, file in found.items() if part != UNDIVIDED]
        raise DataError(
            f"the data folder holds {found[UNDIVIDED].name}, which has all samples, and {' and '.join(others)}",
            expected="one file that this program divides, or one for each part",
            advice=f"move one or the others away: they lie in {path}",
        )
    if found and UNDIVIDED not in found and "train" not in found:
        raise DataError(
            f"the data folder has {' and '.join(file.name for file in found.values())} but no train part",
            expected="train.csv and test.csv, or data.csv alone (also .parquet, .jsonl)",
            advice=f"put the training samples in {path / 'train.csv'}, or call a single file data.csv",
        )
    return RowFiles(found) if found else None


def _both(names: list[str], path: Path) -> DataError:
    return DataError(
        f"the data folder holds {' and '.join(names)}",
        expected="each part once, all of them as files of rows or all as arrays",
        advice=f"move one or the other away: they lie in {path}",
    )
