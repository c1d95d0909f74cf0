"""The share of its training samples that a site validates on in one run: settled when it begins, the same to the end.

Another share in mid-run would put samples that were trained on into the validation part.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from pfl_common.files import atomic
from pfl_common.spec.run import RunSpec

log = structlog.get_logger("pfl.site")

FILE = "validation.txt"


def settle_share(folder: Path, spec: RunSpec, asked: float | None, *, begun: bool) -> float:
    """The share that holds in a run: the one it was `begun` with, or else what the site asks for, or the run says."""
    note, wanted = folder / FILE, spec.validation if asked is None else asked
    if note.exists():
        share = float(note.read_text())
    else:
        # A run that was begun without a note was begun by a release that held nothing back.
        share = 0.0 if begun else wanted
        atomic.write(note, repr(share))
    if share != wanted:
        log.warning(
            "this run goes on with the validation share it was begun with",
            run=spec.id,
            share=share,
            asked=wanted,
        )
    return share
