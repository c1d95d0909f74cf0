"""The story of `pfl predict`: read, predict and write batch by batch, and say what could not be read."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from pfl_client.prediction import Predictor, Unread, Wanted
from pfl_client.prediction.find_model import Which
from pfl_client.prediction.inputs import list_inputs
from pfl_common.errors import DataError, SettingError
from pfl_deploy.prediction import output

MOST_TOLD = 20
"""Files and rows that are told one by one."""


@dataclass(frozen=True)
class Asked:
    """The command as it was typed."""

    model: str
    paths: tuple[Path, ...]
    out: str = output.STANDARD
    format: str | None = None
    like: Path | None = None
    skip_bad: bool = False
    device: str = "auto"
    which: Which = "last"


@dataclass
class Missing:
    """Counts what could not be read, and says the first of it."""

    console: Console
    files: int = 0
    rows: int = 0
    spared: bool = field(default=False, kw_only=True)
    """Whether the end is a good one all the same."""

    def note(self, unread: Unread) -> None:
        """One more. Its name is for a terminal: what else is written may go to a log that others read."""
        self.files, self.rows = self.files + (unread.row is None), self.rows + (unread.row is not None)
        if self.files + self.rows <= MOST_TOLD:
            name = f" ({unread.file})" if self.console.is_terminal else ""
            row = "" if unread.row is None else f"row {unread.row} of "
            words = f"left out: {row}file {unread.place}{name}: {unread.why}"
            self.console.print(words.encode(errors="backslashreplace").decode(), markup=False)
        elif self.files + self.rows == MOST_TOLD + 1:
            self.console.print("left out: more, which are only counted")

    def __str__(self) -> str:
        return " and ".join(f"{n} {what}" for n, what in ((self.files, "files"), (self.rows, "rows")) if n)

    def settle(self, read: int) -> None:
        """The end: an error if something was left out, unless that was allowed; and if nothing was read at all."""
        if read and (self.spared or not (self.files or self.rows)):
            return
        lost = str(self)
        raise DataError(
            f"{lost} could not be read, {read} samples were" if lost else "there is nothing to read",
            expected="samples such as the model was trained with",
            advice="repair or remove them, or say --skip-bad"
            if read
            else "look at the reasons above, and at --like",
        )


def predict(asked: Asked, console: Console) -> None:
    """Predict all samples below some paths."""
    kind = output.choose_format(asked.out, asked.format)
    if asked.out == output.STANDARD and kind == "parquet" and sys.stdout.isatty():
        raise SettingError(
            "Parquet is not for a terminal", expected="a file", advice="say --out FILE.parquet"
        )
    files = list_inputs(asked.paths)
    predictor = Predictor.load(asked.model, which=asked.which, device=asked.device)
    missing, count = Missing(console, spared=asked.skip_bad), 0
    try:
        with (
            watching(console, len(files)) as bar,
            output.opened(asked.out, kind, predictor.classes, predictor.heads) as written,
        ):
            for block in predictor.read(files, Wanted(asked.like), unread=missing.note):
                written.write(list(predictor.answer(block)))
                count += len(block)
                bar.update(bar.task_ids[0], completed=block.place, samples=count)
    except BrokenPipeError:
        # The reading program has enough, as `head` has. What Python flushes at its end must not fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    said = f"; left out: {missing}" if str(missing) else ""
    console.print(f"predicted {count} samples from {len(files)} files{said}", markup=False)
    missing.settle(count)


def watching(console: Console, files: int) -> Progress:
    """A progress bar over files, on a terminal."""
    columns = (
        TextColumn("{task.completed} of {task.total} files"),
        BarColumn(),
        TextColumn("{task.fields[samples]} samples"),
    )
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    bar.add_task("", total=files, samples=0)
    return bar
