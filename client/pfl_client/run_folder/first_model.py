"""The run's first model at a site: fetched once, opened once, and from then on read by every trainer of the run.

init.raw    the model, opened
init.json   its digest: written last, so where it is the model is whole
"""

from __future__ import annotations

import json
from pathlib import Path

from pfl_client.envelopes import Letter
from pfl_client.run_folder import space
from pfl_client.run_folder.downloads import Downloads, tampered
from pfl_common.errors import Refused
from pfl_common.files import atomic
from pfl_common.spec.messages import Joined, header_of_init
from pfl_common.spec.run import RunSpec


class FirstModel:
    """The first model in a run's folder."""

    def __init__(self, folder: Path, spec: RunSpec, downloads: Downloads) -> None:
        self._folder, self._spec, self._downloads = folder, spec, downloads
        self.file, self._note = folder / "init.raw", folder / "init.json"

    def accept(self, joined: Joined) -> Letter | None:
        """Verify who sent it, before its first byte; None: it is here already."""
        if self.file.exists() and self._note.exists() and self._note.read_bytes() == _note_of(joined):
            return None
        letter = self._downloads.accept(header_of_init(self._spec), joined.init, joined.seal)
        self._downloads.check_size(joined.init, self._spec.init_manifest)
        return letter

    def check_room(self, joined: Joined) -> None:
        """Refuse to begin what the model, as it comes and opened, has no room for."""
        needed = self._downloads.lacking(joined.init) + self._downloads.opened_size(joined.init)
        space.check(self._folder, needed)

    def settle(self, joined: Joined, letter: Letter) -> None:
        """Open it where the trainer reads it, once and for all."""
        file = self._downloads.file(joined.init)
        self._note.unlink(missing_ok=True)
        try:
            letter.unpack(file, self.file)
        except Refused as refused:
            file.unlink(missing_ok=True)
            raise tampered(refused) from None
        # The note says for all times that the model is whole: it must not outlive a model that was not synced.
        atomic.sync(self.file)
        atomic.fill(self._note, _note_of(joined))
        atomic.settle(self._folder)
        file.unlink(missing_ok=True)


def _note_of(joined: Joined) -> bytes:
    return json.dumps(joined.init.digest).encode()
