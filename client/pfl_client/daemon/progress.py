"""A site's progress for its engineer: a line a round, a live line on a terminal, a summary at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from pfl_client.connection.link import Traffic
from pfl_client.daemon.status import Watch
from pfl_common.app import logs
from pfl_common.spec.messages import Scores
from pfl_common.spec.run import Json, Kind, RunSpec, Task

log = structlog.get_logger("pfl.site")

LIVE_SECONDS = 0.5
"""How often a live line is drawn."""
BEFORE, AFTER = "pre/test/combined", "post/test/combined"
"""How well this site predicts its own test data: with the model as it came, and when it has trained it."""
_MEASURED = {
    "pre": "before each training, with the model as it comes",
    "post": "after each training",
    "both": "before and after each training",
}
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


class SiteProgress:
    """Prints measured values only; a value that a round did not measure is not in its line."""

    def __init__(
        self,
        watch: Watch,
        traffic: Traffic | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Without `traffic` nothing crosses a network, and no bytes are told."""
        self._watch, self._traffic, self._clock = watch, traffic, clock
        self._came, self._went = self._crossed()
        self._began = clock()
        self._last: dict[str, Json] = {}
        self._under_way = 0

    def begin(self, task: Task) -> None:
        """A task has come."""
        self._began, self._under_way = self._clock(), task.round if task.kind is Kind.TRAIN else 0

    def end(self, task: Task, scores: Scores) -> None:
        """A task is done and handed in: a round that was trained, or a measurement, gets its line."""
        self._under_way = 0
        accuracy = _accuracy(scores, trained=task.kind is Kind.TRAIN)
        self._last = {**accuracy, "measured_in_round": task.round} if accuracy else self._last
        came, went = self._crossed()
        told: dict[str, Json] = {"round": task.round, "of": task.rounds}
        if task.kind is Kind.TRAIN and "loss" in self._watch.run.learning:
            told["training_loss"] = round(self._watch.run.learning["loss"], 4)
        told |= accuracy | {"seconds": round(self._clock() - self._began, 2)}
        if self._traffic is not None:
            told |= {"bytes_down": came - self._came, "bytes_up": went - self._went}
        self._came, self._went = came, went
        if task.kind is Kind.TRAIN:
            if self._watch.trainer.halved:
                told["batches"] = "in two halves: too little memory"
            log.info("round trained, not sent: drawn to drop out" if task.drop else "round trained", **told)
        elif task.kind is Kind.EVALUATE:
            log.info("measured", **told)

    def account(self) -> dict[str, Json]:
        """A summary of this site's work since it was started."""
        told: dict[str, Json] = {"rounds_trained": self._watch.trainer.trained, **self._last}
        if self._under_way:
            told["broke_off_round"] = self._under_way
        if self._traffic is not None:
            came, went = self._crossed()
            told |= {"bytes_down": came, "bytes_up": went}
        return told

    def line(self) -> str:
        """The present state in one line."""
        watch = self._watch
        came, went = self._crossed()
        parts = [watch.site, f"round {watch.round} of {watch.run.rounds}" if watch.round else "", watch.doing]
        if watch.doing == "training":
            usual = f" of about {watch.trainer.usual_samples}" if watch.trainer.usual_samples else ""
            parts[-1] = (
                f"training {watch.trainer.samples}{usual} samples, {self._clock() - self._began:.0f} s"
            )
        if not watch.connected and watch.doing != "starting":
            parts.append("no answer from the coordinator")
        parts += [f"{_say_accuracy(self._last)}", f"down {in_bytes(came)}, up {in_bytes(went)}"]
        return " | ".join(part for part in parts if part)

    async def live(self) -> None:
        """Draw the line now and then, where it can be seen; ends with its task."""
        try:
            while logs.can_show():
                logs.show(self.line())
                await asyncio.sleep(LIVE_SECONDS)
        finally:
            logs.show("")

    def _crossed(self) -> tuple[int, int]:
        """All bytes down and up so far."""
        counts = {} if self._traffic is None else self._traffic.crossed()
        down, up = (sum(n for (way, _), n in counts.items() if way == asked) for asked in ("down", "up"))
        return down, up


def tell_joined(spec: RunSpec) -> None:
    """A run has begun: which, when this site will measure in it, and what was chosen for all sites."""
    point = str(spec.settings.get("eval_point", "pre"))
    measured = _MEASURED.get(point, point)
    log.info("joined", run=spec.id, method=spec.method, rounds=spec.rounds, accuracy_is_measured=measured)
    for what, words in spec.chosen.items():
        log.info("chosen for all sites", what=what, words=words)


def in_bytes(count: int) -> str:
    """A number of bytes, short."""
    return next((f"{count / unit:.1f} {name}" for unit, name in _UNITS if count >= unit), f"{count} B")


def _accuracy(scores: Scores, *, trained: bool) -> dict[str, Json]:
    """Accuracies by the moment they were measured at; a task that trains nothing has only one moment."""
    names = {BEFORE: "accuracy_before_training" if trained else "accuracy", AFTER: "accuracy_after_training"}
    return {told: round(scores[name][2], 4) for name, told in names.items() if name in scores}


def _say_accuracy(last: dict[str, Json]) -> str:
    said = [
        f"{name.replace('_', ' ')} {value}" for name, value in last.items() if name.startswith("accuracy")
    ]
    return ", ".join(said) + f" (round {last['measured_in_round']})" if said else ""
