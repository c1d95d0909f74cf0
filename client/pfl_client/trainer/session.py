"""The trainer's side of a Bench: holds data and model, and does each task from input files to output files.

Errors a person can mend are `UserError`; `task_errors.Declined` among them says why a task cannot be done
(out_of_memory, diverged, too_few_samples, wrong_shape, disk_full). Anything else is a fault of the program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from weakref import WeakValueDictionary

import structlog
from safetensors.torch import load_file

from pfl_client import data
from pfl_client.trainer import tasks as work
from pfl_client.trainer.best_model_choice import BestModel
from pfl_client.trainer.device import Device, check_precision, choose, settle
from pfl_client.trainer.memory_retries import Parts, find_why_whole, train_within_memory
from pfl_client.trainer.model_files import describe_model, write_state
from pfl_client.trainer.outgoing import check_outgoing
from pfl_client.trainer.parcels import (
    Beside,
    UpdateRoom,
    look_at_file,
    loses,
    open_changes,
    put_together,
    read_down,
    read_parcel,
    take_apart,
    write_update,
)
from pfl_client.trainer_process.api import DataFolder, Done, Job, Measured, Parcel, Progress
from pfl_client.trainer_process.buffers import Pool
from pfl_client.trainer_process.task_errors import (
    Declined,
    Diverged,
    OutOfMemory,
    TooFew,
    WrongShape,
    disk_full,
)
from pfl_common import methods
from pfl_common.app.allocator import keep_batches_warm
from pfl_common.errors import Refused, TooFewSamples
from pfl_common.learning.duplicate import duplicate
from pfl_common.learning.method import LocalData, Participant
from pfl_common.learning.quantities import list_quantities
from pfl_common.models.memory_format import arrange
from pfl_common.randomness import generators
from pfl_common.spec.run import Description, Kind, RunSpec, Task
from pfl_common.tensors import mapped
from pfl_common.tensors.encoded import Changes
from pfl_common.tensors.rows import Row, into_rows
from pfl_common.tensors.state import State, load_into, look_into
from pfl_common.tensors.update import flatten
from pfl_common.tensors.update_check import Terms, check_rows, find_infinite

log = structlog.get_logger("pfl.trainer")

_TEMPLATES: WeakValueDictionary[tuple[str, str, str], Participant] = WeakValueDictionary()
"""First models that some bench holds, by run, bytes and device. They are copied, never trained."""


@dataclass(frozen=True)
class _Opened:
    """The run that the bench is prepared for."""

    spec: RunSpec
    init: Path
    data: LocalData
    device: Device
    threads: int
    template: Participant | None
    """The first model, to be copied for each task; None until it has been tried."""
    room: UpdateRoom
    """Where updates are written."""
    validation: float | None = None
    """The share of its training samples that the site validates on; None: what the run says."""

    parts: Parts = field(default_factory=Parts)
    ready: list[Participant] = field(default_factory=list)
    """A copy made ahead of its task."""
    terms: dict[str, Terms] = field(default_factory=dict)
    """What the tensors of an update have to be, by phase: it follows from how the network is built."""

    def participant(self) -> Participant:
        """As every site starts."""
        return self.ready.pop() if self.ready else self._copy()

    def describe(self, best: Measured | None = None) -> dict[str, str]:
        """The metadata of a serving model of this run."""
        local = self.data
        return describe_model(self.spec, local.site, validation=self.validation, best=best, data=local.about)

    def make_ready(self) -> None:
        """Copy the first model for the next task while nobody waits for it, unless that would hold much memory between
        tasks.
        """
        if not self.ready and not _is_large(self.init):
            self.ready.append(self._copy())

    def _copy(self) -> Participant:
        if self.template is None:
            raise RuntimeError("a participant before the first model was read")
        participant = duplicate(self.template, self.template.settings)
        if self.device.name != "cpu":
            participant = participant.to(self.device.name)
        # A large template lies as its file has it.
        arrange(participant, self.spec.memory_format)
        return participant


class Workbench:
    """The methods of `api.Bench` as plain calls; the trainer process and `pfl simulate` both use it."""

    def __init__(self, pool: Pool | None = None) -> None:
        """With a `pool` an update is good until the next one: a trainer that is alone uses its memory again."""
        self._opened: _Opened | None = None
        self._room = UpdateRoom(pool)

    def describe(self, folder: DataFolder) -> Description:
        """Look at the data folder: shape, class names, counts, warnings."""
        # Before the run knows this site: the user who named a device that is not here corrects it and starts again.
        choose(folder.device)
        with _data_fit(folder):
            return data.describe(folder)

    def open(self, folder: DataFolder, spec: str, init: Path) -> None:
        """Take a run's specification and first model; read the data; refuse what does not fit together."""
        run = RunSpec.from_json(spec)
        threads = _limit_threads(run, folder.threads)
        settle(threads)
        keep_batches_warm()
        with _data_fit(folder):
            local = data.load(folder, run)
        device = choose(folder.device)
        check_precision(device, run.precision)
        opened = _Opened(run, init, local, device, threads, None, self._room, folder.validation)
        with _explained(opened, opened.parts):
            # Tried once here, so that a wrong first model ends the joining and not the first round.
            template = _template(run, init, device.name)
            self._opened = replace(opened, data=_on_device(local, device.name), template=template)

    def work(self, job: Job, progress: Progress) -> Done:
        """Do a task: from the vault's generation and the download to files and an update."""
        if self._opened is None:
            raise RuntimeError("work() before open(): the bench has no run")
        # The number of threads is a property of the calling thread: the simulator's worker threads come and go.
        generators.pin_threads(self._opened.threads)
        with disk_full(job.keep_as.parent):
            return _work_within_memory(self._opened, job, progress)

    def make_ready(self) -> None:
        """Prepare for the next task what does not depend on it."""
        if self._opened is not None:
            self._opened.make_ready()

    def close(self) -> None:
        """Let go of data and model."""
        self._opened = None


def _limit_threads(run: RunSpec, most: int) -> int:
    """The run's threads, as far as this machine's owner allows them; a run that promises equal bits has one."""
    threads = min(run.threads, most) if most else run.threads
    if threads < run.threads:
        words = "other bits than with the run's number: it promises none (repeatable = false)"
        log.warning(
            "trains with fewer threads than the run", threads=threads, run_has=run.threads, gives=words
        )
    return threads


def _work_within_memory(opened: _Opened, job: Job, progress: Progress) -> Done:
    """Do a task; a training that ran out of memory once more, with each batch in two halves."""
    parts = opened.parts

    def attempt(number: int) -> Done:
        with _explained(opened, Parts(number, parts.refused)):
            return _work(opened, job, progress, number)

    if job.task.kind is not Kind.TRAIN or job.alone:
        return attempt(parts.number)
    return train_within_memory(
        parts,
        attempt,
        let_go=opened.device.empty_cache,
        why_whole=lambda: find_why_whole(opened.participant()),
        lack=lambda: _lacks_memory(opened, parts),
        round_=job.task.round,
    )


def _work(opened: _Opened, job: Job, progress: Progress, parts: int) -> Done:
    seconds: dict[str, float] = {}
    spec = opened.spec
    with _timed("load", seconds):
        participant, beside = _prepare(opened, job, progress)
        participant.arithmetic.parts = parts
        down, sent = read_down(spec, job, beside.sent, participant)
        if opened.device.name != "cpu":
            down = down.apply(lambda value: value.to(opened.device.name))
    with _timed("train", seconds):
        task = replace(job.task, late=job.alone or opened.data.site not in spec.roster)
        best = None if job.best is None or job.alone else BestModel(opened.describe, job.best)
        if job.alone:
            outcome = work.adapt(participant, opened.data, down, task)
        else:
            offer = work.keep_none if best is None else best.offer
            # What would not have crossed of an update has to be known of one that is not sent, too.
            made = replace(task, drop=task.drop and not loses(spec))
            outcome = work.perform(participant, opened.data, down, made, offer=offer)
        opened.device.synchronise()
        _check_converging(participant, job.task)
    with _timed("encode", seconds):
        changes = open_changes(spec, opened.data, task, down=down, rest=beside.rest)
        up, groups = _encode(outcome, participant, opened, job, changes)
        if job.task.kind is not Kind.EVALUATE and not job.alone:
            beside = Beside(State(changes.rest), sent)
            write_state(put_together(outcome.kept, beside), job.keep_as)
        if outcome.serving is not None and job.serve_as is not None:
            write_state(outcome.serving, job.serve_as, opened.describe())
            if best is not None:
                best.conclude(participant, opened.data, task, outcome.scores)
    return Done(
        outcome.scores,
        outcome.metrics,
        up,
        groups,
        seconds,
        opened.device.describe(),
        opened.device.memory(),
        halved=parts > 1,
        best=None if best is None else best.written,
        told=() if up is None else tuple(sorted(participant.tells(task.phase))),
    )


def _encode(
    outcome: work.Outcome, participant: Participant, opened: _Opened, job: Job, changes: Changes
) -> tuple[Parcel | None, tuple[str, ...]]:
    """An update as bytes, once nothing personal is in it and nothing that the coordinator would refuse."""
    if outcome.up is None:
        return None, ()
    task, sent = job.task, flatten(outcome.up)
    check_outgoing(sent, participant, task, down=changes.sent, kept=job.kept)
    groups, rows = into_rows(sent, opened.spec.manifest(task.kind, task.phase, "up"))
    _check_sendable(rows, participant, opened, task)
    return write_update(rows, job, changes, opened.room), groups


def _template(spec: RunSpec, init: Path, device: str) -> Participant:
    """A first model to copy, which is quicker than making one; sites in one process share it. The numbers of a large
    one stay in its file.
    """
    large = _is_large(init)
    with init.open("rb") as content:
        key = spec.hash, hashlib.file_digest(content, "sha256").hexdigest(), "file" if large else device
    template = _TEMPLATES.get(key)
    if template is None:
        template = methods.build_participant(spec)
        if large:
            look_into(template, look_at_file(init, spec.init_manifest))
        else:
            load_into(template.to(device), read_parcel(init, spec.init_manifest, ()))
            arrange(template, spec.memory_format)
        _TEMPLATES[key] = template
    return template


def _is_large(init: Path) -> bool:
    """Whether a first model is too large to be held in memory between tasks."""
    return init.stat().st_size > mapped.LARGE


def _prepare(opened: _Opened, job: Job, progress: Progress) -> tuple[Participant, Beside]:
    """A participant made anew: a warm trainer must not know more than one that was just started. With it what lies
    beside the site's own state.
    """
    participant = opened.participant()
    own, beside = take_apart({} if job.kept is None else load_file(job.kept))
    load_into(participant, own)
    # A plain function: evaluating copies the participant, and with a method its whole object would be copied.
    participant.progress = lambda samples: progress(samples)
    return participant, beside


def _check_sendable(rows: Iterable[Row], participant: Participant, opened: _Opened, task: Task) -> None:
    """Refuse an update that the coordinator would refuse."""
    spec = opened.spec
    if task.phase not in opened.terms:
        quantities = list_quantities(participant, spec, task.phase)
        opened.terms[task.phase] = Terms(quantities, largest_weight=spec.largest_weight)
    try:
        check_rows(rows, opened.terms[task.phase])
    except Refused as error:
        if error.code != "not_finite":
            raise Declined(
                f"the coordinator would refuse this update: {error.words}",
                advice="tell the coordinator's operator, who may raise the run's limit",
            ) from None
        raise _diverged(error.words, spec.settings.get("lr"), task) from None


def _check_converging(participant: Participant, task: Task) -> None:
    name = find_infinite(dict(participant.named_parameters()))
    if name is not None:
        raise _diverged(f"{name!r} holds NaN or infinity", participant.settings.lr, task)


def _diverged(seen: str, lr: object, task: Task) -> Diverged:
    return Diverged(
        f"training diverged in round {task.round}: {seen}",
        expected="finite numbers",
        advice=f"start the run again with a smaller lr than {lr} (--set lr=...)",
    )


@contextmanager
def _explained(opened: _Opened, parts: Parts) -> Iterator[None]:
    """While open, what can go wrong with memory and shapes is said in words."""
    try:
        yield
    except Refused as error:
        raise WrongShape(
            f"a parcel does not fit this run: {error.words}",
            expected="exactly the tensors the run's specification names",
            advice="check that coordinator and site run the same version",
        ) from error
    except TooFewSamples as error:
        raise TooFew(error.seen, expected=error.expected, advice=error.advice) from error
    except work.Undivided as undivided:
        opened.parts.refused = str(undivided)
        raise _lacks_memory(opened, opened.parts) from None
    except (MemoryError, RuntimeError) as error:
        if not opened.device.is_exhausted(error):
            raise
        opened.device.empty_cache()
        raise _lacks_memory(opened, parts) from error


def _lacks_memory(opened: _Opened, parts: Parts) -> OutOfMemory:
    model = opened.spec.model
    return OutOfMemory(
        f"there is too little memory on {opened.device.name} for {model.backbone} and {model.shape}{parts.words}",
        expected="room for the model, its gradients and one batch",
        advice="name a larger --memory-limit if there is one, ask for a smaller batch (--set batch=...), or train on "
        "another device (--device)",
    )


@contextmanager
def _data_fit(folder: DataFolder) -> Iterator[None]:
    """While open, a lack of memory is the data's, and said so."""
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        if not Device().is_exhausted(error):
            raise
        raise OutOfMemory(
            f"there is too little memory to read the data of {folder.site}",
            expected="room for a block of the samples" if folder.cache else "room for all samples",
            advice="close other programs, or name a larger --memory-limit"
            + ("" if folder.cache else " or a --cache-limit, under which they lie on the disk"),
        ) from error


def _on_device(local: LocalData, device: str) -> LocalData:
    return replace(
        local,
        train=local.train.to(device),
        validation=local.validation.to(device),
        test=local.test.to(device),
        shifted=local.shifted.to(device),
    )


@contextmanager
def _timed(phase: str, seconds: dict[str, float]) -> Iterator[None]:
    began = perf_counter()
    yield
    seconds[phase] = perf_counter() - began
