"""`pfl audit`: a site's list of everything that left it, as a table, and whether it is intact. Reads only.

`pfl audit` is for the site's engineer: it reads the site's own folder and asks nobody.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import wrap

from rich.console import Console
from rich.table import Column, Table

from pfl_client.run_folder.audit import (
    BOOK,
    CARD,
    COUNTED,
    LEFT,
    MENDED,
    MISSING,
    POLICY,
    REFUSED,
    UPDATE,
    WITHHELD,
)
from pfl_client.settings import ClientSettings
from pfl_common.errors import SettingError, StateError, nearest
from pfl_common.spec.run import Json
from pfl_deploy.operator.audit_check import Check, Checked
from pfl_deploy.operator.audit_entries import Entry, merge, read_lines

_DEPTHS = ("", "*/", "*/*/", "*/*/*/")
"""A site's own folder, that of a federation's or a simulation's sites, the user's, and one above it."""
_SAID, _LONGEST = ("joining", "decline"), 600
"""What is shown in words, and how many letters of it."""
_NOTHING_LEFT = {
    CARD: "(the coordinator's card)",
    MENDED: "(half a line)",
    MISSING: "(lines are missing)",
    POLICY: "(the policy in force)",
    WITHHELD: "(withheld)",
    REFUSED: "(not done)",
}
_WIDEST, _FOLDED = 10_000, 16
"""Letters of a row where nothing limits it, and of each line of a hash on a narrow terminal."""


@dataclass(frozen=True)
class Listed:
    """The list of one site."""

    site: str
    folder: Path
    entries: tuple[Entry, ...]
    checked: Checked | None = None

    def sums(self) -> list[dict[str, Json]]:
        """Messages and bytes by run and kind, of what left."""
        sums: dict[tuple[str, str], list[int]] = {}
        for entry in self.entries:
            if entry.kind in LEFT:
                held = sums.setdefault((entry.run, _name_kind(entry)), [0, 0])
                held[0], held[1] = held[0] + entry.count, held[1] + entry.size
        return [
            {"run": run, "kind": kind, "count": count, "bytes": size}
            for (run, kind), (count, size) in sums.items()
        ]


def read(root: Path | None, site: str | None, run: str | None, *, verify: bool) -> list[Listed]:
    """The lists below a folder, of one site or run if one is named; checked if asked for."""
    place = root if root is not None else ClientSettings().state_folder
    folders = _find(place)
    if not folders:
        raise SettingError(
            f"no site has listed anything below {place}",
            expected="the folder where pfl-client or pfl simulate keeps its sites' state",
            advice="name it with --sites",
        )
    chosen = [folder for folder in folders if site in (None, folder.name)]
    if not chosen:
        raise SettingError(
            f"there is no site {site!r} below {place}", expected=nearest(str(site), {f.name for f in folders})
        )
    listed = [_read_site(folder, verify=verify) for folder in chosen]
    return [_only(one, run) for one in listed] if _known(listed, run) else []


def _known(listed: Sequence[Listed], run: str | None) -> bool:
    runs = {entry.run for one in listed for entry in one.entries} - {""}
    if run is not None and run not in runs:
        raise SettingError(f"nothing is listed of a run {run!r}", expected=nearest(run, runs))
    return True


def _only(listed: Listed, run: str | None) -> Listed:
    kept = tuple(entry for entry in listed.entries if run in (None, entry.run))
    return Listed(listed.site, listed.folder, kept, listed.checked)


def _find(place: Path) -> list[Path]:
    own = {book.parent for depth in _DEPTHS for book in place.glob(f"{depth}{BOOK}")}
    old = {book.parents[2] for depth in _DEPTHS for book in place.glob(f"{depth}runs/*/{BOOK}")}
    return sorted({folder for folder in own | old if folder.parent.name != "runs"})


def _read_site(folder: Path, *, verify: bool) -> Listed:
    raw = list(read_lines(folder))
    checked = Check(folder, raw).run() if verify else None
    return Listed(folder.name, folder, tuple(merge(raw)), checked)


def as_plain(listed: Sequence[Listed]) -> list[dict[str, Json]]:
    """Everything, for other programs."""
    return [
        {
            "site": one.site,
            "folder": str(one.folder),
            "entries": [asdict(entry) for entry in one.entries],
            "sums": [*one.sums()],
            "checked": None if one.checked is None else asdict(one.checked),
        }
        for one in listed
    ]


def show(listed: Sequence[Listed], console: Console, *, each: bool) -> None:
    """Sums of all sites, then each thing that left if asked for, and what the check found."""
    _print_table(_sum_table(listed), console)
    if not each:
        console.print(
            "each message, with its SHA-256 and receipt: pfl audit SITE RUN, or --all", markup=False
        )
    for one in listed:
        if each or one.checked is not None:
            console.print(f"{one.site}  ({one.folder})", markup=False)
        if each:
            _print_table(_table(one, folded=console.is_terminal), console)
            for words in _say_messages(one):
                console.print(words, markup=False)
        if one.checked is not None:
            for words in _say_checked(one.checked):
                console.print(words, markup=False)


def _print_table(table: Table, console: Console) -> None:
    """On a terminal cells are folded; a file or another program gets each row as one line, however long."""
    for column in table.columns:
        column.overflow = "fold"
    if not console.is_terminal:
        table.width = console.measure(table, options=console.options.update(max_width=_WIDEST)).maximum
    console.print(table)


def _table(listed: Listed, *, folded: bool) -> Table:
    # Of one run its name stands above: a terminal's width is left to the hash.
    one = len({entry.run for entry in listed.entries}) == 1
    table = Table("when", "what", *(() if one else ("run",)), "task", Column("tensors", justify="right"))
    table.add_column("bytes", justify="right")
    table.add_column("sha-256", no_wrap=True)
    table.add_column("receipt")
    for entry in listed.entries:
        said = entry.said
        names = said.get("names")
        tensors = str(len(names)) if isinstance(names, list) else ""
        digest = str(said.get("digest", ""))
        if folded:
            digest = "\n".join(wrap(digest, _FOLDED))
        size = f"{entry.size:,}" if entry.kind in LEFT else ""
        receipt = ("yes" if entry.receipt else "none") if entry.kind == UPDATE else ""
        run = () if one else (entry.run,)
        table.add_row(_when(entry), _say_kind(entry), *run, _task(said), tensors, size, digest, receipt)
    return table


def _say_messages(listed: Listed) -> Iterator[str]:
    """The messages in words or about the data; updates and scores are in the table, everything is in --json."""
    for entry in listed.entries:
        inner = entry.said.get("said")
        if entry.kind in _SAID and isinstance(inner, dict):
            words = ", ".join(
                f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in inner.items()
            )
            yield f"{entry.kind} ({_when(entry)}): {words if len(words) <= _LONGEST else words[:_LONGEST] + ' ...'}"
        elif policy := _say_policy(entry.said):
            yield f"{entry.kind} ({_when(entry)}): {policy}"


def _say_policy(said: dict[str, Json]) -> str:
    """What the site's policy says, took out or forbade; empty for other lines."""
    match said.get("kind"):
        case "policy":
            return json.dumps(said.get("rules"), ensure_ascii=False)
        case "withheld":
            what = said.get("what")
            return f"of {said.get('message')}: {', '.join(map(str, what)) if isinstance(what, list) else ''}"
        case "refused":
            return f"by {said.get('rule')}"
        case _:
            return ""


def _when(entry: Entry) -> str:
    return str(entry.said.get("at", "")).replace("T", " ").replace("+00:00", "Z")


def _task(said: dict[str, Json]) -> str:
    inner = said.get("said")
    return str(said.get("task") or (inner.get("key", "") if isinstance(inner, dict) else ""))


def _say_kind(entry: Entry) -> str:
    if entry.kind == COUNTED:
        return f"{entry.count} call{'s' * (entry.count != 1)}"
    return _NOTHING_LEFT.get(entry.kind, _name_kind(entry))


def _name_kind(entry: Entry) -> str:
    """A report of scores that has the method's diagnostics too says so."""
    inner = entry.said.get("said")
    return (
        f"{entry.kind} and diagnostics" if isinstance(inner, dict) and "diagnostics" in inner else entry.kind
    )


def _sum_table(listed: Sequence[Listed]) -> Table:
    table = Table("site", "run", "what left", Column("messages", justify="right"))
    table.add_column("bytes", justify="right")
    for one in listed:
        for row in one.sums():
            run = str(row["run"]) or "(before a run)"
            table.add_row(one.site, run, str(row["kind"]), f"{row['count']:,}", f"{row['bytes']:,}")
        size = sum(entry.size for entry in one.entries if entry.kind in LEFT)
        table.add_row(one.site, "all", "", "", f"{size:,}", end_section=True)
    return table


def _say_checked(checked: Checked) -> Iterator[str]:
    yield f"{checked.lines} lines; the newest one's SHA-256 is {checked.head or 'of none'}"
    yield f"{checked.receipts} receipts are the coordinator's signed word for the update that is listed with them"
    yield from (f"note: {words}" for words in checked.remarks)
    yield from (f"BROKEN: {words}" for words in checked.wrong)
    yield (
        "Checked: each line against the one before, the last ones against audit.head, each receipt's signature against "
        "the listed digest. Not to be seen here: a list that was written anew as a whole together with its head "
        "(compare the SHA-256 above with one noted before), and what a program other than pfl-client sent."
    )


def check(listed: Sequence[Listed]) -> None:
    """An error where a list that was checked does not hold."""
    broken = [one for one in listed if one.checked is not None and one.checked.wrong]
    if broken:
        found = "; ".join(f"{one.site}: {', '.join(one.checked.wrong)}" for one in broken if one.checked)
        raise StateError(
            f"the list of what left does not hold: {found}",
            expected="every line as it was written, and every receipt the coordinator's",
            advice="find out who changed the site's state folder; the lines before the first broken one still hold",
        )
