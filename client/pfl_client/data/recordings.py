"""Recordings of sensors: a file of rows for each, a row a time step, cut into windows of equal length.

Channels stand in the order of their names, so that files and sites with the same channels have them alike. Windows of
one recording belong together: validation takes whole recordings.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pfl_client.data import forms
from pfl_client.data.arrays import Arrays, Part
from pfl_client.data.bad_files import check_share, name_places
from pfl_client.data.declaration import FILE, Declared
from pfl_client.data.findings import BadFile, show
from pfl_client.data.forms import Form
from pfl_client.data.layout import PARTS, PictureFolders
from pfl_client.data.picture import Picture
from pfl_client.data.record_file import RecordFile, is_record_file
from pfl_client.data.records import Records, plain_name, read_numbers, show_column, wrong_cell
from pfl_client.data.scaling import Floats
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError

WINDOW = 128
"""Steps of a window, unless data.json says otherwise; windows begin half of it after one another."""
TIMES = frozenset({"time", "timestamp"})
"""Columns that are no channel, unless data.json names another."""


@dataclass(frozen=True)
class Cut:
    """How recordings become windows."""

    window: int = WINDOW
    step: int = WINDOW // 2
    time: str = ""
    """The column of time, where it is called otherwise than usual."""

    @classmethod
    def of(cls, declared: Declared, window: int = 0) -> Cut:
        """As data.json says; in a run of windows of a given length."""
        steps = window or declared.window or WINDOW
        return cls(steps, declared.step or max(1, steps // 2), plain_name(declared.time or ""))

    def channels(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The channels among some columns, in the order of their names."""
        if self.time and self.time not in names:
            raise DataError(
                f"it has no column {show_column(self.time)}, which {FILE} says is the time",
                expected="the same columns in each recording",
                advice=f"correct it, or {FILE}",
            )
        return tuple(
            sorted(name for name in names if name != self.time and (self.time or name.lower() not in TIMES))
        )

    def windows(self, steps: Floats) -> Floats:
        """Windows as (number, channels, time), of a recording as (time, channels)."""
        if len(steps) < self.window:
            raise DataError(
                f"it has {len(steps)} steps, a window has {self.window}",
                expected="recordings at least as long as a window",
                advice=f'leave it out, or say a shorter "window" in {FILE}',
            )
        every = np.lib.stride_tricks.sliding_window_view(steps, self.window, axis=0)
        return np.ascontiguousarray(every[:: self.step])


@dataclass(frozen=True)
class Recordings:
    """The windows of a data folder, and the recordings that could not be read."""

    arrays: Arrays
    groups: tuple[str, ...]
    """The recording that each training window is of."""
    bad: list[BadFile] = field(default_factory=list)


def are_recordings(found: PictureFolders, declared: Declared) -> bool:
    """Whether the files in the folders of the classes are recordings; data.json can say it."""
    own = [is_record_file(one.path) for part in found.parts.values() for one in part]
    if declared.kind == "windows" and any(own) and not all(own):
        raise DataError(
            f"{FILE} says 'windows' for 'kind', and {own.count(False)} of {len(own)} files are no files of rows",
            expected="recordings as .csv, .parquet or .jsonl in the folder of each class",
            advice=f"take the others out of the folders, or correct {FILE}",
        )
    return all(own) and not found.lists and declared.kind in (None, "windows")


def read(found: PictureFolders, declared: Declared, folder: DataFolder) -> Recordings:
    """All windows of all recordings; a recording that cannot be read is left out, or with --strict-data an error."""
    cut, bad = Cut.of(declared), list[BadFile]()
    channels = _common_channels(found, cut)
    names = tuple(sorted({picture.label for part in found.parts.values() for picture in part}))
    numbers = {name: number for number, name in enumerate(names)}
    parts, groups = {}, list[str]()
    for part in PARTS:
        blocks, labels = list[Floats](), list[int]()
        for recording in found.parts[part]:
            windows = _read_noting(recording, cut, channels, folder=folder, bad=bad)
            blocks.append(windows)
            labels += [numbers[recording.label]] * len(windows)
            if part == "train":
                groups += [recording.position] * len(windows)
        empty = np.zeros((0, len(channels), cut.window), np.float32)
        parts[part] = Part(np.concatenate([empty, *blocks]), np.array(labels, np.int64))
    if not len(parts["train"]):
        raise _nothing_readable(bad, folder)
    check_share(bad, found.total, folder)
    low, high = forms.find_range(parts["train"].x)
    form = Form("channels_time", "numbers", low, high)
    return Recordings(Arrays(parts, names, form, columns=channels), tuple(groups), bad)


def read_one(path: Path, cut: Cut, channels: tuple[str, ...] = (), *, called: str = "it") -> Floats:
    """The windows of one recording; of all its channels, unless some are named."""
    file = RecordFile(path, called=called)
    own = channels or cut.channels(file.names)
    if not own:
        raise DataError(
            f"the recording {called} has no channel", expected="a column of numbers beside its time"
        )
    blocks = [np.stack([_numbers(block, name, called) for name in own], axis=1) for block in file.read(own)]
    return cut.windows(np.concatenate(blocks) if blocks else np.zeros((0, len(own)), np.float32))


def _numbers(block: Records, name: str, called: str) -> Floats:
    """One channel of some steps: a window has no place for a missing value."""
    numbers, bad = read_numbers(block.columns[name])
    if (gone := np.isnan(numbers)).any():
        place = int(gone.argmax())
        why = bad.get(place, "is missing")
        raise wrong_cell(called, block.lines[place], f"the cell in column {show_column(name)} {why}")
    return numbers.astype(np.float32)


def _common_channels(found: PictureFolders, cut: Cut) -> tuple[str, ...]:
    """The channels that most recordings have."""
    votes: Counter[tuple[str, ...]] = Counter()
    for path in found.files:
        try:
            votes[cut.channels(RecordFile(path).names)] += 1
        except DataError:
            continue  # told of when it is read
    votes.pop((), None)
    return min(votes, key=lambda names: (-votes[names], names), default=())


def _read_noting(
    recording: Picture, cut: Cut, channels: tuple[str, ...], *, folder: DataFolder, bad: list[BadFile]
) -> Floats:
    """The windows of a recording; none, and one more bad file, if it cannot be read."""
    called = recording.position
    try:
        if (own := cut.channels(RecordFile(recording.path, called=called).names)) != channels:
            odd = next(iter(set(own) ^ set(channels)), "")
            raise DataError(
                f"its channels are others than most recordings have, such as {show_column(odd)}",
                expected="the same columns in each recording",
                advice="name its columns as in the others",
            )
        return read_one(recording.path, cut, channels, called=called)
    except DataError as error:
        why = error.seen.removeprefix(called).lstrip(",: ")
        if folder.strict:
            raise DataError(
                f"{called} is no recording that can be read: {why}",
                expected="recordings only, because of --strict-data",
                advice="repair or remove it, or leave --strict-data out",
                file=show(recording.path.relative_to(folder.path)),
            ) from None
        bad.append(BadFile(called, recording.path, why))
        return np.zeros((0, len(channels), cut.window), np.float32)


def _nothing_readable(bad: list[BadFile], folder: DataFolder) -> DataError:
    why = f": {bad[0].position}: {bad[0].why}" if bad else ""
    return DataError(
        f"none of the training recordings of {folder.site} can be read{why}",
        expected="files of rows, a row a time step, a column a channel",
        advice=f'look into the train folder; {FILE} says how they are cut: {{"window": {WINDOW}, "step": 64}}',
        file=show(bad[0].path.relative_to(folder.path)) if bad else "",
    )


def oddities(found: PictureFolders, bad: list[BadFile]) -> list[str]:
    """What is odd about the recordings, in words that name no file."""
    words = []
    if found.divided:
        words.append(
            "no train and test folders: a quarter of each class is kept for testing, always the same recordings"
        )
    if bad:
        places = name_places(bad, why=True)
        words.append(f"{len(bad)} of {found.total} recordings cannot be read and are left out: {places}")
    return words
