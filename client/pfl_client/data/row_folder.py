"""A data folder of files of rows: recognises what the rows are, and hands them to the module that reads such."""

from __future__ import annotations

from dataclasses import dataclass

from pfl_client.data import tables, texts
from pfl_client.data.declaration import OF_RECORDINGS, Declared
from pfl_client.data.labelled_rows import LabelledRows
from pfl_client.data.layout import PARTS
from pfl_client.data.record_file import RecordFile
from pfl_client.data.row_files import RowFiles
from pfl_client.data.row_kind import RowKind, recognise_rows
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from pfl_common.learning.method import Samples
from pfl_common.spec.run import Description, RunSpec


@dataclass(frozen=True)
class RowFolder:
    """Texts or a table, with a class for each row."""

    kind: RowKind
    rows: LabelledRows
    declared: Declared
    folder: DataFolder

    @property
    def layout(self) -> str:
        """How the folder is arranged, in words."""
        names = ", ".join(path.name for path in self.rows.found.files)
        divided = ", divided by this program" if self.rows.found.divided else ""
        return f"{'texts' if self.kind == 'texts' else 'a table'} in {names}{divided}"

    def describe(self) -> Description:
        """What the site tells of it."""
        if self.kind == "texts":
            return texts.describe(self.rows, self.declared)
        return tables.describe(self.rows, self.declared)

    def tell(self, said: Description) -> dict[str, str]:
        """What leaves the site with that, for its own log."""
        if self.kind == "texts":
            return {"told_of_words": texts.tell(said, self.declared)}
        return {"told_of_columns": tables.tell(said.table)}

    def load(self, spec: RunSpec) -> dict[str, Samples]:
        """The samples by part, as the run reads them."""
        read = texts.load if self.kind == "texts" else tables.load
        return read(self.rows, self.folder, spec)


def read(found: RowFiles, declared: Declared, folder: DataFolder) -> RowFolder:
    """The classes and patients of a folder's rows; their cells are read when they are asked for."""
    first = next(iter(found.parts.values()))
    kind = recognise_rows(RecordFile(first, called=first.name).names, declared, called=first.name)
    if beside := [part for part in PARTS if (folder.path / part).is_dir()]:
        raise DataError(
            f"the data folder holds {first.name} and the folder {', '.join(beside)}",
            expected="files of rows, or folders of the classes, not both",
            advice=f"move one of them away: they lie in {folder.path}",
        )
    declared.check_read(words=OF_RECORDINGS, what="files of rows")
    return RowFolder(kind, LabelledRows(found, declared, folder), declared, folder)
