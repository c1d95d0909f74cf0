"""The daemon's own look at the names of an update before it is sealed: none of the vault's tensors is among them.

The trainer has looked at names and values. This look needs neither the trainer's word nor torch: the manifest says what
the update holds, the vault's file what stays.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from pfl_client.trainer_process.task_errors import PersonalTensor
from pfl_common.spec.manifest import Manifest
from pfl_common.spec.memo import remembered
from pfl_common.spec.personal_names import find_personal

LONGEST_HEADER = 64 << 20
_SHOWN = "show."


def check_names(
    manifest: Manifest,
    groups: Collection[str],
    *,
    kept: frozenset[str],
    told: Collection[str],
    known: Collection[str],
) -> None:
    """Refuse to seal an update with a tensor in it that the vault has kept. Those that the method shows by its design
    (`told`) may be among what is shown, and nowhere else.
    """
    if not kept:
        return
    present = [entry for entry in manifest if not entry.group or entry.group in groups]
    shown = [entry.name for entry in present if entry.name.startswith(_SHOWN)]
    summed = [entry.name for entry in present if not entry.name.startswith(_SHOWN)]
    personal = find_personal(shown, personal=kept - set(told), known=known)
    personal += find_personal(summed, personal=kept, known=known)
    if personal:
        raise PersonalTensor(
            f"the update holds {personal[0]!r}, which lies in this site's vault",
            expected="only what its method shares",
            advice="report the method (its name and release) to who maintains it; nothing of this update was sent",
        )


@remembered
def list_names(manifest: Manifest) -> frozenset[str]:
    """The names of a parcel's tensors."""
    return frozenset(entry.name for entry in manifest)


def read_names(vault: Path) -> frozenset[str]:
    """The names in a generation's file; what is no file of tensors holds none, and is refused when it is loaded."""
    with vault.open("rb") as content:
        length = int.from_bytes(content.read(8), "little")
        if length > LONGEST_HEADER:
            return frozenset()
        header = content.read(length)
    try:
        said = json.loads(header)
    except ValueError:
        return frozenset()
    return frozenset(said) - {"__metadata__"} if isinstance(said, dict) else frozenset()
