"""Files of rows with a class each, part by part: which columns are what, and which rows can be used.

Nothing is kept of the rows but class and patient: whoever wants their cells reads them again, block by block.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pfl_client.data.declaration import FILE, Declared
from pfl_client.data.layout import PARTS
from pfl_client.data.record_file import RecordFile
from pfl_client.data.records import Records, plain_name, plain_text, select, show_column
from pfl_client.data.row_files import UNDIVIDED, RowFiles
from pfl_client.data.split import divide
from pfl_client.data.warnings import remark
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError, nearest

LABEL, PATIENT = "label", "patient"
"""Columns of the class and of the patient, unless data.json names others."""


@dataclass(frozen=True)
class Roles:
    """What the columns of a file are; `patient` is empty where none says which rows belong together."""

    label: str
    patient: str
    features: tuple[str, ...]

    @property
    def named(self) -> list[str]:
        """The columns that are no features."""
        return [self.label, *([self.patient] if self.patient else [])]


@dataclass(frozen=True)
class _Row:
    """A row of a file that this program divides."""

    place: int
    label: str
    name: str
    """A digest of its cells: rows with the same are for training, or for testing, together."""
    group: str
    """Its patient."""

    @property
    def unit(self) -> str:
        """Its patient, or the row by itself."""
        return self.group or f"{self.name} by itself"


@dataclass
class _Part:
    """The usable rows of one part."""

    labels: list[str] = field(default_factory=list)
    patients: list[str] = field(default_factory=list)


class LabelledRows:
    """The rows of a data folder that have a class; the others are counted and left out."""

    def __init__(self, found: RowFiles, declared: Declared, folder: DataFolder) -> None:
        self.found, self._folder = found, folder
        self._files = {part: RecordFile(path, called=path.name) for part, path in found.parts.items()}
        first = next(iter(self._files.values()))
        self.roles = find_roles(first.names, declared, called=first.called)
        self._check_columns()
        self._left_out: Counter[str] = Counter()
        self._why: dict[str, str] = {}
        self._held: set[int] = set()
        self._parts = {part: _Part() for part in PARTS}
        for part, file in self._files.items():
            self._look(part, file)
        if not self._parts["train"].labels:
            raise DataError(
                f"{first.called} holds no row with a class",
                expected=f"rows with a class in the column {show_column(self.roles.label)}",
                advice=f'look into it, or name the column of the class in {FILE}: {{"label": "..."}}',
            )

    @property
    def counts(self) -> dict[str, Counter[str]]:
        """Rows by part and class."""
        return {part: Counter(own.labels) for part, own in self._parts.items()}

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of all classes."""
        return tuple(sorted({label for own in self._parts.values() for label in own.labels}))

    def labels(self, part: str) -> list[str]:
        """The class of each row of a part."""
        return self._parts[part].labels

    def groups(self, part: str) -> list[str]:
        """The patient of each row of a part; none where patients are not known. A row without one is by itself."""
        if not self.roles.patient:
            return []
        return [name or f"\0{place}" for place, name in enumerate(self._parts[part].patients)]

    def read(self, part: str, columns: Sequence[str]) -> Iterator[tuple[str, Records]]:
        """The usable rows of a part, with the name of their file; a column that the file lacks is left out."""
        source = UNDIVIDED if self.found.divided and part in ("train", "test") else part
        if (file := self._files.get(source)) is None:
            return
        wanted = [name for name in columns if name in file.names]
        for block in file.read(list(dict.fromkeys([*wanted, self.roles.label])), bad=_ignore):
            keep = [bool(plain_text(label)) for label in block.columns[self.roles.label]]
            if self.found.divided:
                keep = [
                    own and (place in self._held) == (part == "test")
                    for own, place in zip(keep, block.places, strict=True)
                ]
            yield file.called, select(block, keep)

    def warnings(self) -> list[str]:
        """What is odd about the rows, in words."""
        words = []
        if self.found.divided:
            together = "each patient's rows" if self.roles.patient else "equal rows"
            words.append(
                f"no train and test files: a quarter of each class is kept for testing, always the same, {together} "
                "together"
            )
        for name, count in sorted(self._left_out.items()):
            words.append(
                f"{count} rows of {name} cannot be used and are left out; the first: {self._why[name]}"
            )
        if shared := self._shared_patients():
            words.append(
                f"{shared} patients have rows in the training part and in another one: accuracy is measured too high"
            )
        return [*words, *remark(self.counts, self._folder)]

    def _check_columns(self) -> None:
        """A column that is missing in one part alone is most likely a slip of the pen."""
        for file in self._files.values():
            for name in (*self.roles.named, *self.roles.features):
                if name not in file.names:
                    raise _no_column(name, file.names, called=file.called)

    def _shared_patients(self) -> int:
        train = set(self._parts["train"].patients)
        others = {name for part in PARTS[1:] for name in self._parts[part].patients}
        return len((train & others) - {""})

    def _look(self, part: str, file: RecordFile) -> None:
        """The class and the patient of each row; of an undivided file also which rows are for testing."""
        whole = part == UNDIVIDED
        places, labels, patients, identities = list[int](), list[str](), list[str](), list[str]()
        for block in file.read(file.names if whole else self.roles.named, bad=self._noting(file.called)):
            keep = self._keep(block, file.called)
            kept = select(block, keep)
            places += kept.places
            labels += map(plain_text, kept.columns[self.roles.label])
            patients += map(plain_text, kept.columns.get(self.roles.patient, ("",) * len(kept)))
            identities += _identify(kept) if whole else ()
        if not whole:
            self._parts[part] = _Part(labels, patients)
            return
        rows = list(map(_Row, places, labels, identities, patients))
        for own, drawn in zip(("train", "test"), divide(rows, self._folder.site), strict=True):
            self._parts[own] = _Part([row.label for row in drawn], [row.group for row in drawn])
        self._held = {row.place for row in drawn}

    def _keep(self, block: Records, called: str) -> list[bool]:
        keep = [bool(plain_text(label)) for label in block.columns[self.roles.label]]
        note = self._noting(called)
        for place, line, usable in zip(block.places, block.lines, keep, strict=True):
            if not usable:
                note(place, f"line {line} has no class")
        return keep

    def _noting(self, called: str) -> _Noting:
        return _Noting(called, self._left_out, self._why, strict=self._folder.strict)


@dataclass(frozen=True)
class _Noting:
    """Counts rows that cannot be used; with --strict-data the first is an error."""

    called: str
    counts: Counter[str]
    why: dict[str, str]
    strict: bool = field(kw_only=True)

    def __call__(self, _: int, why: str) -> None:
        if self.strict:
            raise DataError(
                f"{self.called}: {why}",
                expected="rows that can all be read, because of --strict-data",
                advice="correct that line, or leave --strict-data out",
            )
        self.counts[self.called] += 1
        self.why.setdefault(self.called, why)


def find_roles(names: Sequence[str], declared: Declared, *, called: str) -> Roles:
    """Which column is the class, which the patient, and which are features."""
    label = plain_name(declared.label or LABEL)
    patient = plain_name(declared.patient or (PATIENT if PATIENT in names else ""))
    left = [plain_name(name) for name in declared.leave_out]
    for name in (label, patient, *left, *map(plain_name, declared.categorical)):
        if name and name not in names:
            raise _no_column(name, names, called=called)
    if label == patient:
        raise DataError(
            f"{FILE} names the column {show_column(label)} as the class and as the patient",
            expected="two columns",
            advice="correct it",
        )
    taken = {label, *left, *([patient] if patient else [])}
    return Roles(label, patient, tuple(name for name in names if name not in taken))


def _no_column(name: str, names: Sequence[str], *, called: str) -> DataError:
    said = f'name it in {FILE}: {{"label": "..."}}' if name == LABEL else f"correct {FILE}"
    return DataError(
        f"{called} has no column {show_column(name)}",
        expected=f"the columns of its first line: {nearest(name, names)[:600]}",
        advice=said,
    )


def _identify(rows: Records) -> list[str]:
    """A digest of each row, which depends neither on its place nor on the order of its columns."""
    names = sorted(rows.columns)
    cells = zip(*(map(_canonical, rows.columns[name]) for name in names), strict=True)
    return [hashlib.sha256(repr((names, row)).encode()).hexdigest()[:32] for row in cells]


def _canonical(cell: str) -> str:
    """A number however many digits it is written with."""
    try:
        return repr(float(cell))
    except ValueError:
        return plain_text(cell)


def _ignore(_: int, _why: str) -> None:
    """Told of when the rows were first read."""
