"""One task, from the kept state and the download to the new state and the upload; the same code in every mode."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from pfl_common.evaluation import vector
from pfl_common.learning import measures, newcomer
from pfl_common.learning.arithmetic import widen
from pfl_common.learning.duplicate import duplicate
from pfl_common.learning.method import LocalData, Metrics, Participant, Samples, probe
from pfl_common.learning.partition import has_batch_norm
from pfl_common.randomness import generators
from pfl_common.spec.messages import Scores
from pfl_common.spec.run import Kind, Task
from pfl_common.tensors.state import State
from pfl_common.tensors.update import Up

EVALUATION_BATCH = 256
FEATURES_SEEN = 512
"""Test samples whose features are looked at after each training: enough for a curve, cheap beside the training."""


class Undivided(Exception):
    """A batch was divided whose parts do not add up to it; the text says why."""


@dataclass(frozen=True)
class Outcome:
    """The results of a task: evaluations, the state for the vault and, after training, the upload.

    Its tensors may be the participant's own: they are written before it does anything else.
    """

    kept: State
    scores: Scores = field(default_factory=dict)
    metrics: Metrics = field(default_factory=dict)
    up: Up | None = None
    serving: State | None = None


Offer: TypeAlias = Callable[[Participant, Scores, str, int], None]
"""Called with a model that was just measured, its scores, at which point, and after how many rounds it is the model."""


def keep_none(participant: Participant, scores: Scores, point: str, after: int) -> None:
    """For a run whose sites keep the last model alone."""


def perform(
    participant: Participant, data: LocalData, down: State, task: Task, *, offer: Offer = keep_none
) -> Outcome:
    """Do one task. Dropout and the like draw from (run seed, site, round, kind), never from what ran before."""
    with generators.scope(data.seed, data.site, task.round, task.kind.value):
        match task.kind:
            case Kind.TRAIN:
                return train(participant, data, down, task, offer)
            case Kind.EVALUATE:
                return Outcome(State(), evaluate(participant, data, down, task, offer))
            case Kind.FINISH:
                return finish(participant, data, down, task)


def train(
    participant: Participant, data: LocalData, down: State, task: Task, offer: Offer = keep_none
) -> Outcome:
    """Receive, learn, report; with an evaluation before or after, as the method's paper measures."""
    point = participant.settings.eval_point
    scores: Scores = {}
    if point in ("pre", "both"):
        # What measuring draws, as dropout of a calibration or a policy's noise, must not shift what training draws.
        with generators.scope(data.seed, data.site, task.round, "pre"):
            scores = evaluate(participant, data, down, task, offer)
    participant.receive(down, task)
    metrics = learn(participant, data, task)
    metrics |= diagnose(participant, data, task)
    if point in ("post", "both"):
        trained = score(participant, data, "post")
        scores |= trained
        if point == "post":
            offer(participant, trained, "post", task.round)
    up = None if task.drop else participant.report(data, task)
    return Outcome(State.view(participant, participant.stays(task.phase)), scores, metrics, up)


def learn(participant: Participant, data: LocalData, task: Task) -> Metrics:
    """The method's training; a batch that goes in parts through layers which draw noise is not what it was whole."""
    if participant.arithmetic.parts == 1:
        return participant.learn(data, task)
    before = generators.mark()
    metrics = participant.learn(data, task)
    if generators.mark() != before:
        raise Undivided("a layer of the network draws noise for a batch as a whole")
    return metrics


def diagnose(participant: Participant, data: LocalData, task: Task) -> Metrics:
    """Measures of the encoder's output and the method's own diagnostics, if they are wanted.

    What they draw and what mode they need leave no trace; what is no number is not told.
    """
    if not participant.settings.diagnose:
        return {}
    with generators.scope(data.seed, data.site, task.round, "diagnose"), torch.no_grad():
        participant.eval()
        told = _look_at_features(participant, probe(data.test, FEATURES_SEEN))
        told |= participant.diagnose(data, task)
    return {name: value for name, value in told.items() if math.isfinite(value)}


def _look_at_features(participant: Participant, samples: Samples) -> Metrics:
    """Two measures that any network has: how sparse its features are, and how far they set the classes apart."""
    if not len(samples):
        return {}
    features = torch.cat([participant.encoder(x) for x, _ in samples.batches(EVALUATION_BATCH)])
    explained = measures.separate_classes(features, samples.y).explained
    return {"features/sparsity": measures.sparsity(features), "features/separation": explained}


def evaluate(
    participant: Participant, data: LocalData, down: State, task: Task, offer: Offer = keep_none
) -> Scores:
    """Measure a copy that has received, calibrated and personalised; nothing of it is kept, unless as the best model.
    It is the model after the round before.
    """
    twin = duplicate(participant, participant.settings)
    twin.progress = participant.progress
    prepare(twin, data, down, task)
    scores = score(twin, data, "pre")
    offer(twin, scores, "pre", task.round - 1)
    return scores


def finish(participant: Participant, data: LocalData, down: State, task: Task) -> Outcome:
    """Take the last shared state and make the complete model this site will predict with."""
    prepare(participant, data, down, task)
    scores = score(participant, data, "pre")
    participant.finish(data, task)
    scores |= _score_finished(participant, data, scores)
    everything = State.view(participant)
    kept = everything.only(participant.stays(task.phase))
    return Outcome(kept, scores, serving=everything)


def adapt(participant: Participant, data: LocalData, down: State, task: Task) -> Outcome:
    """Make the model of a site that was in no round: measured as the state came, and as its own part was fitted to it.

    Nothing of it is for the coordinator, not even its scores.
    """
    with generators.scope(data.seed, data.site, task.round, "adapt"):
        welcome(participant, data, down, task)
        twin = copy.deepcopy(participant)
        twin.personalise(data, task)
        scores = score(twin, data, "pre")
        metrics = participant.adapt(data, task)
        newcomer.fill_statistics(participant, data, task)
        participant.personalise(data, task)
        participant.finish(data, task)
        scores |= score(participant, data, "post")
    return Outcome(State(), scores, metrics, serving=State.view(participant))


def welcome(participant: Participant, data: LocalData, down: State, task: Task) -> None:
    """What came, and the statistics of the site's own batch norms, which nobody could send."""
    participant.receive(down, task)
    newcomer.fill_statistics(participant, data, task)


def _score_finished(participant: Participant, data: LocalData, before: Scores) -> Scores:
    """Scores of the finished model, as a view "finished": only where `finish` has changed what they were before."""
    if type(participant).finish is Participant.finish:
        return {}
    after = score(participant, data, "pre")
    views = {
        name.replace("/combined", "/finished"): v for name, v in after.items() if name.endswith("/combined")
    }
    return views if after != before else {}


def prepare(participant: Participant, data: LocalData, down: State, task: Task) -> None:
    """From a download to a model that can predict."""
    participant.receive(down, task)
    if task.is_first and has_batch_norm(participant) and participant.owns_statistics:
        calibrate(participant, data.train)
    participant.personalise(data, task)


def calibrate(participant: Participant, samples: Samples) -> None:
    """Fill running statistics that no training has filled yet: one pass in train mode, without gradients."""
    participant.train()
    with torch.no_grad():
        for x, _ in samples.batches(EVALUATION_BATCH):
            if len(x) > 1:
                participant(x)


def score(participant: Participant, data: LocalData, point: str) -> Scores:
    """Each head's accuracy and loss on the test set, and on the validation and the shifted set where there is one."""
    scores: Scores = {}
    parts = {"test": data.test, "validation": data.validation, "shifted": data.shifted}
    for split, samples in parts.items():
        if len(samples):
            for view, values in _measure(participant, samples).items():
                scores[f"{point}/{split}/{view}"] = values
    return scores


def _measure(participant: Participant, samples: Samples) -> dict[str, list[float]]:
    correct: dict[str, int] = {}
    loss: dict[str, float] = {}
    participant.eval()
    with torch.no_grad():
        for x, y in samples.batches(EVALUATION_BATCH):
            with participant.arithmetic.autocast(x.device):
                views = participant.views(x)
            for view, given in views.items():
                scores = widen(given)
                correct[view] = correct.get(view, 0) + int((scores.argmax(1) == y).sum())
                loss[view] = loss.get(view, 0.0) + _loss(scores, y)
            participant.progress(0)
    return {view: vector(correct[view], len(samples), loss[view] / len(samples)) for view in correct}


def _loss(scores: Tensor, y: Tensor) -> float:
    # Distances and masked classes can be infinite: a loss that means nothing must not spoil a sum.
    value = float(cross_entropy(scores, y, reduction="sum"))
    return value if -1e30 < value < 1e30 else 0.0
