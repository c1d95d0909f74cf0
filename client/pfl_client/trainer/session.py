"""The trainer's side of a Bench: holds data and model, and does each task from input files to output files.

Errors a person can mend are `UserError`; `task_errors.Declined` among them says why a task cannot be done
(out_of_memory, diverged, too_few_samples, wrong_shape, disk_full). Anything else is a fault of the program.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from weakref import WeakValueDictionary

import numpy as np
import torch
from safetensors.torch import load_file

from pfl_client import data
from pfl_client.trainer import tasks as work
from pfl_client.trainer_process.api import DataFolder, Done, Job, Parcel, Progress
from pfl_client.trainer_process.buffers import Pool
from pfl_client.trainer_process.large_parcels import goes_as_file
from pfl_client.trainer_process.task_errors import Diverged, OutOfMemory, TooFew, WrongShape, disk_full
from pfl_common import methods
from pfl_common.errors import Refused, SettingError, TooFewSamples
from pfl_common.learning.method import LocalData, Participant
from pfl_common.randomness import generators
from pfl_common.spec.manifest import Manifest
from pfl_common.spec.run import Description, Kind, RunSpec, Task
from pfl_common.tensors import codec, mapped, safetensors_file
from pfl_common.tensors.check import check_finite, find_infinite
from pfl_common.tensors.state import State, load_into
from pfl_common.tensors.update import Up, flatten

_TEMPLATES: WeakValueDictionary[tuple[str, str, str], Participant] = WeakValueDictionary()
"""First models that some bench holds, by run, bytes and device. They are copied, never trained."""


@dataclass(frozen=True)
class _Opened:
    """The run that the bench is prepared for."""

    spec: RunSpec
    init: Path
    data: LocalData
    device: str
    template: Participant | None
    """The first model, to be copied for each task; None when that would hold too much memory between tasks."""
    room: Callable[[int], memoryview]
    """Memory for an update."""

    ready: list[Participant] = field(default_factory=list)
    """A copy made ahead of its task."""

    def participant(self) -> Participant:
        """As every site starts."""
        if self.template is None:
            return _first(self.spec, self.init, self.device)
        return self.ready.pop() if self.ready else copy.deepcopy(self.template)

    def make_ready(self) -> None:
        """Copy the first model for the next task while nobody waits for it."""
        if self.template is not None and not self.ready:
            self.ready.append(copy.deepcopy(self.template))


class Workbench:
    """The methods of `api.Bench` as plain calls; the trainer process and `pfl simulate` both use it."""

    def __init__(self, pool: Pool | None = None) -> None:
        """With a `pool` an update is good until the next one: a trainer that is alone uses its memory again."""
        self._opened: _Opened | None = None
        self._room = pool.take if pool else _fresh

    def describe(self, folder: DataFolder) -> Description:
        """Look at the data folder: shape, class names, counts, warnings."""
        # Before the run knows this site: the user who named a device that is not here corrects it and starts again.
        choose_device(folder.device)
        return data.describe(folder)

    def open(self, folder: DataFolder, spec: str, init: Path) -> None:
        """Take a run's specification and first model; read the data; refuse what does not fit together."""
        run = RunSpec.from_json(spec)
        settle_torch(run.threads)
        local = data.load(folder, run)
        device = choose_device(folder.device)
        with _explained(run, device):
            # Tried once here, so that a wrong first model ends the joining and not the first round.
            template = _template(run, init, device)
            self._opened = _Opened(run, init, _on_device(local, device), device, template, self._room)

    def work(self, job: Job, progress: Progress) -> Done:
        """Do a task: from the vault's generation and the download to files and an update."""
        if self._opened is None:
            raise RuntimeError("work() before open(): the bench has no run")
        # The number of threads is a property of the calling thread: the simulator's worker threads come and go.
        generators.pin_threads(self._opened.spec.threads)
        with _explained(self._opened.spec, self._opened.device), disk_full(job.keep_as.parent):
            return _work(self._opened, job, progress)

    def make_ready(self) -> None:
        """Prepare for the next task what does not depend on it."""
        if self._opened is not None:
            self._opened.make_ready()

    def close(self) -> None:
        """Let go of data and model."""
        self._opened = None


def _work(opened: _Opened, job: Job, progress: Progress) -> Done:
    seconds: dict[str, float] = {}
    with _timed("load", seconds):
        participant = _prepare(opened, job, progress)
        down = _read_parcel(job.down, opened.spec.manifest(job.task.kind, job.task.phase, "down"), job.groups)
        down = down.apply(lambda value: value.to(opened.device))
    with _timed("train", seconds):
        task = replace(job.task, late=job.alone or opened.data.site not in opened.spec.roster)
        do = work.adapt if job.alone else work.perform
        outcome = do(participant, opened.data, down, task)
        _check_converging(participant, job.task)
    with _timed("encode", seconds):
        if job.task.kind is not Kind.EVALUATE and not job.alone:
            _write(outcome.kept, job.keep_as)
        if outcome.serving is not None and job.serve_as is not None:
            _write(outcome.serving, job.serve_as, describe_model(opened.spec, opened.data.site))
        up, groups = (None, ()) if outcome.up is None else _encode(outcome.up, opened, job)
    device, memory = name_device(opened.device), measure_memory(opened.device)
    return Done(outcome.scores, outcome.metrics, up, groups, seconds, device, memory)


def _template(spec: RunSpec, init: Path, device: str) -> Participant | None:
    """A first model to copy, which is quicker than making one; sites in one process share it."""
    with init.open("rb") as content:
        key = spec.hash, hashlib.file_digest(content, "sha256").hexdigest(), device
    template = _TEMPLATES.get(key)
    if template is None:
        template = _first(spec, init, device)
        _TEMPLATES[key] = template
    return template if init.stat().st_size <= mapped.LARGE else None


def _first(spec: RunSpec, init: Path, device: str) -> Participant:
    """The first model, as it came from the coordinator when the run was opened."""
    participant = methods.build_participant(spec)
    participant.to(device)
    load_into(participant, _read_parcel(init, spec.init_manifest, ()))
    return participant


def _prepare(opened: _Opened, job: Job, progress: Progress) -> Participant:
    """A participant made anew: a warm trainer must not know more than one that was just started."""
    participant = opened.participant()
    if job.kept is not None:
        load_into(participant, load_file(job.kept))
    # A plain function: evaluating copies the participant, and with a method its whole object would be copied.
    participant.progress = lambda samples: progress(samples)
    return participant


def _read_parcel(parcel: Parcel, manifest: Manifest, groups: tuple[str, ...]) -> State:
    # Torch wants memory it may write to: the bytes if they are ours, a copy of them, or a file mapped so that it stays.
    if not isinstance(parcel, Path):
        view = memoryview(parcel)
        if not view.readonly:
            return codec.decode(view, manifest, groups)
        room = _Room(_fresh(len(view)))
        room.write(view)
        return codec.decode(room.content, manifest, groups)
    empty = parcel.stat().st_size == 0
    return codec.decode(bytearray() if empty else np.memmap(parcel, mode="c"), manifest, groups)


def _fresh(size: int) -> memoryview:
    memory: memoryview = mapped.zeros((size,), torch.uint8).numpy().data
    return memory


class _Room:
    """Memory for a whole parcel, allocated at once because growing it costs more than writing."""

    def __init__(self, content: memoryview) -> None:
        self.content, self._end = content, 0

    def write(self, content: memoryview, /) -> None:
        """Add the next bytes."""
        self.content[self._end : self._end + len(content)] = content
        self._end += len(content)


def _encode(up: Up, opened: _Opened, job: Job) -> tuple[Parcel, tuple[str, ...]]:
    spec = opened.spec
    state, manifest = flatten(up), spec.manifest(job.task.kind, job.task.phase, "up")
    try:
        check_finite(state)
    except Refused as error:
        raise _diverged(error.words, spec.settings.get("lr"), job.task) from None
    size = sum(value.nbytes for value in state.values())
    if job.parcel_as is not None and goes_as_file(size):
        with os.fdopen(os.open(job.parcel_as, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as file:
            groups = codec.encode(state, manifest, file)
            file.truncate()
            return job.parcel_as, groups
    room = _Room(opened.room(size))
    groups = codec.encode(state, manifest, room)
    return room.content, groups


def _write(state: State, path: Path, about: dict[str, str] | None = None) -> None:
    """Write whole or not at all. Not synced: the daemon does that for the generation it commits."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as out:
        safetensors_file.write(state, out, about)
    os.replace(part, path)


def describe_model(spec: RunSpec, site: str) -> dict[str, str]:
    """The metadata of a serving model."""
    about = {"site": site, "classes": spec.model.classes, "spec": json.loads(spec.to_json())}
    return {"pfl": json.dumps(about, sort_keys=True, separators=(",", ":"))}


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
def _explained(spec: RunSpec, device: str) -> Iterator[None]:
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
    except (MemoryError, RuntimeError) as error:
        if not _is_memory(error):
            raise
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        raise OutOfMemory(
            f"there is too little memory on {device} for {spec.model.backbone} and {spec.model.shape}",
            expected="room for the model, its gradients and one batch",
            advice="close other programs, use --device cpu, or ask for a run with a smaller batch",
        ) from error


def _is_memory(error: Exception) -> bool:
    # On a CPU torch has no exception of its own for this, only these words.
    known = isinstance(error, MemoryError | torch.cuda.OutOfMemoryError)
    return known or "DefaultCPUAllocator" in str(error)


def choose_device(asked: str) -> str:
    """The device that "auto" means here, or the one asked for if this machine has it."""
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=asked)
    except (RuntimeError, AssertionError):
        raise SettingError(
            f"this machine has no device {asked!r}",
            expected="cpu, cuda or auto",
            advice="use --device auto, or look at the driver with nvidia-smi",
        ) from None
    return asked


def name_device(device: str) -> str:
    """A device's name for people: for a graphics card, its model."""
    return f"{device}: {torch.cuda.get_device_name(device)}" if device.startswith("cuda") else device


def measure_memory(device: str) -> dict[str, int]:
    """Bytes this process holds: in the machine, where the system tells, and on a graphics card, if it uses one."""
    held = {}
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        held["resident"] = pages * os.sysconf("SC_PAGE_SIZE")
    if device.startswith("cuda"):
        held["device"] = torch.cuda.memory_reserved(device)
    return held


def settle_torch(threads: int) -> None:
    """Make torch give the same bits each time, as far as it can: fixed threads, deterministic algorithms."""
    generators.pin_threads(threads)
    # The same switch as use_deterministic_algorithms(True, warn_only=True), which imports a whole compiler first.
    torch.set_deterministic_debug_mode("warn")
    # It would write NaN into all fresh memory, to find code that reads it: not worth the time here.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # set by a property
    torch.backends.cudnn.benchmark = False


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
