"""Ends a run whose mean validation loss has not become better for so many rounds as its operator has patience.

All of it follows from the sums in the journal: a coordinator that was killed and started again decides the same.
"""

from __future__ import annotations

import math

from pfl_common import evaluation
from pfl_common.errors import RunFailed
from pfl_common.spec.messages import Scores
from pfl_common.spec.run import Kind
from pfl_server.decisions.early_stop import Stand, judge
from pfl_server.run.attempt import Watch
from pfl_server.store.disk_wait import Room
from pfl_server.store.run_store import Books
from pfl_server.telemetry.disclosure import Disclosure

TESTED, VALIDATED = "test/combined", "validation/combined"


class EarlyStopping:
    """Looks at each committed round's sum; of a run without patience at none."""

    def __init__(self, books: Books, room: Room, watch: Watch, disclosure: Disclosure | None = None) -> None:
        self._books, self._room, self._watch = books, room, watch
        self._disclosure, self._fewest = disclosure or Disclosure(fewest=1), math.inf
        self._patience = books.spec.patience
        self._losses: dict[int, float] = {}
        self._unvalidated = 0

    @property
    def reason(self) -> str:
        """Why the run ends now; nothing while it goes on."""
        stand = self._stand()
        over = stand is not None and stand.since >= self._patience
        return f"ended early: {self._say(stand)}" if stand is not None and over else ""

    async def recall(self) -> None:
        """After a restart: the sums so far are in the journal."""
        if not self._patience:
            return
        summed = await self._room.have(self._books.journal.scores.soon)
        for key, total in summed.items():
            number, _, kind = key.split("-")
            if kind == Kind.TRAIN:
                self._take(int(number), total)
        self._tell()

    async def look(self, number: int) -> None:
        """A round is committed and summed. Raises RunFailed where nobody can say whether the model becomes better."""
        if not self._patience:
            return
        task = self._books.task(Kind.TRAIN, number, self._books.journal.committed()[number])
        total = await self._room.have(self._books.journal.sum_of.soon, task.key)
        self._take(number, total)
        self._tell()
        tested = next((values for name, values in total.items() if name.endswith(TESTED)), None)
        sites = 0 if tested is None else evaluation.summary(tested)["sites"]
        # Where only some sites were asked, one of the others may have a validation part.
        all_measured = sites == len(self._books.spec.roster)
        if not self._losses and self._unvalidated and (all_measured or self._unvalidated >= self._patience):
            raise RunFailed(_REFUSAL.format(patience=self._patience, number=number))

    def _take(self, number: int, total: Scores) -> None:
        """What was measured before training is of the model after the round before. Where a run measures at both
        points, that one counts.
        """
        for point, after in (("pre", number - 1), ("post", number)):
            if f"{point}/{VALIDATED}" in total:
                found = evaluation.summary(total[f"{point}/{VALIDATED}"])
                self._losses[after], self._fewest = found["loss"], min(self._fewest, found["sites"])
                return
        self._unvalidated += any(name.endswith(TESTED) for name in total)

    def _say(self, stand: Stand) -> str:
        return stand.tell(self._patience, loss=self._disclosure.shows(self._fewest))

    def _stand(self) -> Stand | None:
        return judge(self._losses, self._patience) if self._patience else None

    def _tell(self) -> None:
        stand = self._stand()
        self._watch.patience = "" if stand is None else self._say(stand)


_REFUSAL = (
    "--patience {patience}, and up to round {number} no site has measured a validation part\n"
    "  expected: a site with one, whose loss says whether the model becomes better\n"
    "  what to do: begin another run (--new-run) with --validation 0.15, which holds samples back at sites that have "
    "enough of them; or give a site a validation part; or leave --patience out"
)
