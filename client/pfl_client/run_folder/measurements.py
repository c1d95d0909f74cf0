"""A site's measurements in a run, kept in its folder, and the part of them that is reported.

scores.json     of the last task done: a kill before the report does not lose them
history.jsonl   a line for each task done
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from pfl_client.trainer_process.api import Done
from pfl_common.evaluation import evaluations, shorten, tell
from pfl_common.files import atomic
from pfl_common.spec.messages import Assignment, Scores
from pfl_common.spec.run import Kind


class Measurements:
    """The measurements in a run's folder."""

    def __init__(self, folder: Path, *, tells: bool) -> None:
        """With `tells`, the method's own training numbers are reported beside the scores."""
        self._scores, self._history, self._tells = folder / "scores.json", folder / "history.jsonl", tells
        self._last: dict[str, Scores] = {}

    def keep(self, assignment: Assignment, done: Done) -> None:
        """Keep those of a finished task."""
        told = tell(done.metrics) if assignment.task.kind is Kind.TRAIN else {}
        self._last = {assignment.key: done.scores | told}
        atomic.write_over(self._scores, json.dumps(self._last).encode())
        line: dict[str, object] = {
            "task": assignment.key,
            "scores": shorten(done.scores),
            "metrics": done.metrics,
        }
        if done.best is not None:
            line["best"] = asdict(done.best)
        atomic.append(self._history, (json.dumps(line, sort_keys=True) + "\n").encode())

    def report(self, key: str) -> Scores:
        """The evaluation to report for this task."""
        scores = (self._last or self._read()).get(key, {})
        return scores if self._tells else evaluations(scores)

    def _read(self) -> dict[str, Scores]:
        """What an earlier life of this site has kept."""
        try:
            measured: dict[str, Scores] = json.loads(self._scores.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return measured
