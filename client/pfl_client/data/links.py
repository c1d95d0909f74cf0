"""Links in a data folder: refused, unless the site's owner says that they are to be followed.

A folder that was copied or unpacked from elsewhere can hold a link to any file of this machine, which would then be
trained on. The data folder itself may be a link: its owner named it.
"""

from __future__ import annotations

import os
from pathlib import Path

from pfl_client.data.findings import show
from pfl_common.errors import DataError


def places(folder: Path) -> dict[Path, int]:
    """Each entry's place in what `ls` shows, whatever it is."""
    seen = sorted((os.fsencode(entry.name), entry) for entry in folder.iterdir())
    return {
        entry: place
        for place, (_, entry) in enumerate((e for e in seen if not e[0].startswith(b".")), start=1)
    }


def check(entry: Path, where: str, *, follow: bool) -> None:
    """Refuse an entry of a folder that is a link; it is named by its place, because its name may be a patient's."""
    if follow or not entry.is_symlink():
        return
    raise DataError(
        f"entry {places(entry.parent)[entry]} of {where} is a link",
        expected="folders and files themselves",
        advice="copy what it leads to into the folder; or if every link in it is your own, say so: pfl-client "
        "--follow-links, or PFL_FOLLOW_LINKS=1 for any program",
        file=show(entry),
    )
