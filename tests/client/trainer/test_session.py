"""One task from files to files: what is written, what comes back, and that nothing is remembered."""

from __future__ import annotations

import errno
import hashlib
import json
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from structlog.testing import capture_logs
from torch import Tensor
from torch.nn.functional import cross_entropy

from pfl_client import data
from pfl_client.prediction.predictor import Predictor
from pfl_client.trainer import device, session, tasks
from pfl_client.trainer.session import Workbench
from pfl_client.trainer_process.api import DataFolder, Done, Job
from pfl_client.trainer_process.task_errors import (
    Declined,
    DiskFull,
    Diverged,
    OutOfMemory,
    TooFew,
    WrongShape,
)
from pfl_common import methods
from pfl_common.errors import SettingError, TooFewSamples
from pfl_common.evaluation import WIDTH
from pfl_common.learning.arithmetic import Arithmetic, Loss
from pfl_common.learning.method import LocalData, Metrics, Participant
from pfl_common.spec.run import Json, Kind, Task
from pfl_common.tensors import codec, mapped
from pfl_common.tensors.state import State
from pfl_common.tensors.update import Up, Weighted, unflatten
from tests.client.support.runs import Desk


def ignore(samples: int) -> None:
    """Nobody listens to the progress."""


def open_bench(desk: Desk) -> Workbench:
    """A bench with the desk's run."""
    bench = Workbench()
    bench.open(desk.folder, desk.spec.to_json(), desk.init)
    return bench


def read_up(desk: Desk, done: Done) -> Up:
    """The update as the coordinator reads it."""
    content = done.up.read_bytes() if isinstance(done.up, Path) else done.up
    return unflatten(codec.decode(bytearray(content), desk.spec.manifests["train/train/up"], done.groups))


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_training_gives_an_update_scores_and_a_generation(tmp_path: Path) -> None:
    """The parcel fits its manifest and holds a trained model; its weight and the progress are the samples."""
    desk = Desk(tmp_path)
    bench, seen = open_bench(desk), []
    assert ("cat", "dog", "owl") == bench.describe(desk.folder).classes
    done = bench.work(desk.job(), seen.append)
    up = read_up(desk, done)
    assert {24} == {int(term.weight) for term in up.summed.values()}
    moved = [name for name, term in up.summed.items() if not term.value.equal(desk.first[name])]
    assert moved
    assert 24 == sum(seen)
    assert WIDTH == len(done.scores["pre/test/combined"])
    assert {"load", "train", "encode"} == done.seconds.keys()
    assert (tmp_path / "kept-1.safetensors").is_file()


@pytest.mark.parametrize("method", methods.names())
def test_a_shifted_test_is_measured_and_changes_nothing_else(tmp_path: Path, method: str) -> None:
    """With one and without one: the same update, the same model kept, and the same other numbers."""
    outcomes = []
    for place in ("without", "with"):
        (tmp_path / place).mkdir()
        desk = Desk(tmp_path / place, method)
        if place == "with":
            (desk.folder.path / "shifted.npz").write_bytes((desk.folder.path / "test.npz").read_bytes())
        bench = open_bench(desk)
        done = bench.work(desk.job(), ignore)
        served = bench.work(desk.job(Kind.FINISH, 3, serve_as=tmp_path / place / "serving"), ignore)
        outcomes.append((done.up, digest(tmp_path / place / "serving"), done.scores, served.scores))
    without, with_it = outcomes
    assert without[:2] == with_it[:2]
    for before, after in zip(without[2:], with_it[2:], strict=True):
        shifted = {name for name in after if "/shifted/" in name}
        assert {name.replace("/test/", "/shifted/") for name in before} == shifted
        assert before == {name: values for name, values in after.items() if name not in shifted}
        # Here it holds the same samples as the test.
        assert all(after[name] == after[name.replace("/shifted/", "/test/")] for name in shifted)


def test_the_number_of_threads_is_pinned_where_the_work_is_done(tmp_path: Path) -> None:
    """A thread that has computed with two threads before does the task with the run's one: others give other bits."""
    desk = Desk(tmp_path)
    bench, seen = open_bench(desk), []

    def work_elsewhere() -> None:
        torch.set_num_threads(2)
        bench.work(desk.job(), lambda samples: seen.append(torch.get_num_threads()))

    with ThreadPoolExecutor(1) as pool:
        pool.submit(work_elsewhere).result()
    assert {1} == set(seen)


@pytest.mark.parametrize("method", methods.names())
def test_a_warm_bench_knows_no_more_than_a_new_one(tmp_path: Path, method: str) -> None:
    """Other tasks in between change no bit of what a task writes and sends."""
    desk = Desk(tmp_path, method)
    warm = open_bench(desk)
    first = warm.work(desk.job(), ignore)
    kept = (tmp_path / "kept-1.safetensors").rename(tmp_path / "generation.safetensors")
    warm.work(desk.job(Kind.EVALUATE, 2, kept=kept, since=1), ignore)
    warm.work(desk.job(number=3, kept=kept, since=1), ignore)
    second = warm.work(desk.job(number=2, kept=kept, since=1), ignore)
    wrote = digest(tmp_path / "kept-2.safetensors")
    fresh = open_bench(desk)
    again = fresh.work(desk.job(number=2, kept=kept, since=1), ignore)
    assert (second.up, second.scores, wrote) == (
        again.up,
        again.scores,
        digest(tmp_path / "kept-2.safetensors"),
    )
    assert first.up == fresh.work(desk.job(), ignore).up


def lies_in(file: Path, model: Participant) -> bool:
    """Whether all numbers of a model are pages of this file."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(file) in line]
    ranges = [[int(end, 16) for end in line[0].split("-")] for line in lines]
    places = [tensor.data_ptr() for tensor in model.state_dict().values()]
    return all(any(start <= place < end for start, end in ranges) for place in places)


@pytest.mark.parametrize("large", [0, 64 << 20], ids=["in its file", "in memory"])
def test_sites_in_one_process_start_from_one_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    """It is held once for all of them, in its file when it is large, and no site's training shows in it."""
    monkeypatch.setattr(mapped, "LARGE", large)
    desk = Desk(tmp_path, lr=0.0125)
    before = set(session._TEMPLATES)
    benches = [open_bench(desk) for _ in range(2)]
    held = set(session._TEMPLATES) - before
    assert [not large] == [lies_in(desk.init, session._TEMPLATES[key]) for key in held]
    first, second = (bench.work(desk.job(), ignore) for bench in benches)
    assert first.up == second.up == open_bench(desk).work(desk.job(), ignore).up
    for bench in benches:
        bench.close()
    assert set() == held & set(session._TEMPLATES), "nobody holds it any more"


def test_a_generation_is_taken_up_again(tmp_path: Path) -> None:
    """Numbers without dimension and whole numbers survive the file as well."""
    desk = Desk(tmp_path, "fedbn", backbone="resnet8")
    open_bench(desk).work(desk.job(), ignore)
    kept = load_file(tmp_path / "kept-1.safetensors")
    counters = {name: value for name, value in kept.items() if name.endswith("num_batches_tracked")}
    assert {3} == {int(value) for value in counters.values()}
    assert {(torch.int64, ())} == {(value.dtype, tuple(value.shape)) for value in counters.values()}
    path = (tmp_path / "kept-1.safetensors").rename(tmp_path / "generation.safetensors")
    open_bench(desk).work(desk.job(number=2, kept=path, since=1), ignore)
    after = load_file(tmp_path / "kept-2.safetensors")
    assert {6} == {int(after[name]) for name in counters}


def test_an_evaluation_leaves_no_file(tmp_path: Path) -> None:
    """Nothing of it reaches the vault, nothing is sent but scores."""
    desk = Desk(tmp_path)
    done = open_bench(desk).work(desk.job(Kind.EVALUATE), ignore)
    assert done.up is None
    assert done.scores
    assert [] == list(tmp_path.glob("*.safetensors*"))


def test_finishing_leaves_a_serving_model(tmp_path: Path) -> None:
    """The file holds the complete model and says of itself what it is; two writings are equal to the byte."""
    desk = Desk(tmp_path, "dualfed")
    serving = tmp_path / "serving.safetensors"
    bench = open_bench(desk)
    bench.work(desk.job(Kind.FINISH, 3, serve_as=serving), ignore)
    assert desk.first.keys() == load_file(serving).keys()
    with safe_open(serving, "pt") as file:
        about = json.loads(file.metadata()["pfl"])
    assert ("hospital-a", ["cat", "dog", "owl"], "dualfed") == (
        about["site"],
        about["classes"],
        about["spec"]["method"],
    )
    before = digest(serving)
    bench.work(desk.job(Kind.FINISH, 3, serve_as=serving), ignore)
    assert before == digest(serving)


def test_a_download_may_lie_in_a_file(tmp_path: Path) -> None:
    """A mapped file gives the same update as bytes do, and stays as it is."""
    desk = Desk(tmp_path)
    bench, job = open_bench(desk), desk.job()
    path = tmp_path / "down.parcel"
    path.write_bytes(job.down)
    mapped = Job(job.task, path, job.groups, None, job.keep_as)
    assert bench.work(job, ignore).up == bench.work(mapped, ignore).up
    assert job.down == path.read_bytes()


def test_a_large_update_goes_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the limit of a message the same bytes lie in the file that was named."""
    desk = Desk(tmp_path)
    bench = open_bench(desk)
    small = bench.work(desk.job(), ignore).up
    monkeypatch.setattr("pfl_client.trainer_process.large_parcels.MESSAGE_LIMIT", len(small) - 1)
    done = bench.work(desk.job(parcel_as=tmp_path / "up.parcel"), ignore)
    assert tmp_path / "up.parcel" == done.up
    assert small == done.up.read_bytes()


def test_divergence_names_the_setting(tmp_path: Path) -> None:
    """A step size far too large ends in words that name it, and leaves no generation behind."""
    desk = Desk(tmp_path, lr=1e6, epochs=9)
    with pytest.raises(Diverged, match="diverged in round 1") as caught:
        open_bench(desk).work(desk.job(), ignore)
    assert ("diverged", "1000000" in caught.value.advice) == (caught.value.reason, True)
    assert [] == list(tmp_path.glob("kept-*"))


def test_a_site_does_not_send_what_would_be_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that weighs otherwise than it says, and a site with more samples than one may count for, say so here."""
    desk = Desk(tmp_path, aggregation="uniform")
    report = Participant.report

    def weigh_as_two(*words: object) -> Up:
        up = report(*words)
        return Up({name: Weighted(term.value, term.weight * 2) for name, term in up.summed.items()}, up.shown)

    open_bench(desk).work(desk.job(), ignore)
    with monkeypatch.context() as patch:
        patch.setattr(Participant, "report", weigh_as_two)
        with pytest.raises(Declined, match=r"would refuse this update: .*expected: 1"):
            open_bench(desk).work(desk.job(), ignore)
    few = Desk(tmp_path / "few")
    few.spec = replace(few.spec, largest_weight=23.0)
    with pytest.raises(Declined, match="counts 24 samples; expected: at most 23, the run's --largest-weight"):
        open_bench(few).work(few.job(), ignore)


def fail(error: BaseException) -> Callable[..., None]:
    """A function that raises."""

    def raising(*arguments: object, **named: object) -> None:
        raise error

    return raising


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), OutOfMemory),
        (torch.cuda.OutOfMemoryError("CUDA out of memory"), OutOfMemory),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), OutOfMemory),
        (OSError(errno.ENOSPC, "No space left on device"), DiskFull),
        (RuntimeError("something else"), RuntimeError),
    ],
)
def test_what_the_machine_lacks_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: type[Exception]
) -> None:
    """Too little memory and a full disk become reasons for declining; other faults stay what they are."""
    desk = Desk(tmp_path)
    bench = open_bench(desk)
    monkeypatch.setattr(tasks, "perform", fail(error))
    with pytest.raises(expected) as caught:
        bench.work(desk.job(), ignore)
    assert issubclass(expected, Declined) == isinstance(caught.value, Declined)


def test_too_few_samples_for_a_method_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site declines the round with a reason of its own, and in the method's words."""
    monkeypatch.setattr(
        tasks, "perform", fail(TooFewSamples("3 samples", expected="20", advice="a smaller batch"))
    )
    with pytest.raises(TooFew) as caught:
        open_bench(Desk(tmp_path)).work(Desk(tmp_path).job(), ignore)
    assert ("too_few_samples", "3 samples", "20", "a smaller batch") == (
        caught.value.reason,
        caught.value.seen,
        caught.value.expected,
        caught.value.advice,
    )


@pytest.mark.parametrize(("roster", "late"), [(("hospital-a", "x"), False), (("x", "y"), True)])
def test_a_site_knows_whether_it_came_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, roster: tuple[str, ...], late: bool
) -> None:
    """Who is not in the run's roster came after it had begun; the method is told."""
    desk, seen = Desk(tmp_path), []
    desk.spec = replace(desk.spec, roster=roster)
    real = tasks.perform

    def look(
        participant: Participant, data: LocalData, down: State, task: Task, **more: tasks.Offer
    ) -> tasks.Outcome:
        seen.append(task.late)
        return real(participant, data, down, task, **more)

    monkeypatch.setattr(tasks, "perform", look)
    open_bench(desk).work(desk.job(), ignore)
    assert [late] == seen


@pytest.mark.parametrize("wanted", [True, False])
def test_what_a_method_measures_of_itself_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    """It is told beside what training tells, without gradients, and draws as it likes; switched off it is not asked."""

    def measure(participant: Participant, data: LocalData, task: Task) -> Metrics:
        assert not torch.is_grad_enabled()
        assert not participant.training
        return {"drawn": float(torch.rand(()))}

    plain = open_bench(Desk(tmp_path)).work(Desk(tmp_path).job(), ignore)
    monkeypatch.setattr(Participant, "diagnose", measure)
    desk = Desk(tmp_path)
    desk.spec = replace(desk.spec, settings={**desk.spec.settings, "diagnose": wanted})
    done = open_bench(desk).work(desk.job(), ignore)
    assert wanted == ("drawn" in done.metrics)
    assert plain.up == done.up


def test_a_parcel_of_wrong_size_is_declined(tmp_path: Path) -> None:
    """A download one byte short is not trained on."""
    desk = Desk(tmp_path)
    job = desk.job()
    with pytest.raises(WrongShape, match="bytes"):
        open_bench(desk).work(Job(job.task, job.down[:-1], (), None, job.keep_as), ignore)


def test_a_wrong_first_model_ends_the_joining(tmp_path: Path) -> None:
    """It is noticed when the run is opened, not in the first round."""
    desk = Desk(tmp_path)
    desk.init.write_bytes(desk.init.read_bytes()[:-4])
    with pytest.raises(WrongShape):
        open_bench(desk)


def test_an_unknown_device_is_refused(tmp_path: Path) -> None:
    """The name is given back with what could be meant."""
    desk = Desk(tmp_path)
    folder = DataFolder(desk.folder.path, "hospital-a", device="abacus")
    with pytest.raises(SettingError, match="no device 'abacus'"):
        Workbench().open(folder, desk.spec.to_json(), desk.init)


def test_an_unknown_device_is_refused_before_joining(tmp_path: Path) -> None:
    """A site that cannot train takes no place in a run."""
    folder = DataFolder(Desk(tmp_path).folder.path, "hospital-a", device="abacus")
    with pytest.raises(SettingError, match="no device 'abacus'"):
        Workbench().describe(folder)


def test_a_closed_bench_has_no_run(tmp_path: Path) -> None:
    """After the end nothing is done with what was there before."""
    desk = Desk(tmp_path)
    bench = open_bench(desk)
    bench.close()
    with pytest.raises(RuntimeError, match="before open"):
        bench.work(desk.job(), ignore)


class Scarce:
    """Stands in for a method's loss on a device with room for so many samples at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.sizes: list[int] = []
        self.alive: list[int] = []
        self._room = room
        self._real, self._users = Arithmetic._differentiate, list[weakref.ref[Arithmetic]]()
        monkeypatch.setattr(Arithmetic, "_differentiate", lambda *given: self._look(*given))

    def _look(self, own: Arithmetic, loss: Loss, parameters: list[Tensor], x: Tensor, y: Tensor) -> object:
        self.sizes.append(len(y))
        self._users.append(weakref.ref(own))
        self.alive.append(len({id(user()) for user in self._users if user() is not None}))
        if len(y) > self._room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self._real(own, loss, parameters, x, y)


def test_batches_are_halved_once_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task is done again from its beginning with halves; the next one begins with them; the first try is let go."""
    desk = Desk(tmp_path)
    whole = open_bench(desk).work(desk.job(), ignore)
    assert not whole.halved
    scarce = Scarce(monkeypatch, 4)
    bench = open_bench(desk)
    with capture_logs() as said:
        done = bench.work(desk.job(), ignore)
    assert done.halved
    assert [8, *[4] * 6] == scarce.sizes
    assert {1} == set(scarce.alive), "what the first try held is not there any more"
    assert ["warning"] == [line["log_level"] for line in said]
    assert "two halves" in said[0]["event"]
    one, other = read_up(desk, whole), read_up(desk, done)
    gaps = [(term.value - other.summed[name].value).abs().max() for name, term in one.summed.items()]
    assert 0 < max(gaps) < 1e-6
    scarce.sizes.clear()
    assert done.up == bench.work(desk.job(), ignore).up, "halves twice are the same bits"
    assert [4] * 6 == scarce.sizes


def test_halves_that_do_not_fit_are_declined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once and no more; the words say that it was tried."""
    desk, scarce = Desk(tmp_path), Scarce(monkeypatch, 3)
    with pytest.raises(OutOfMemory, match="two halves too"):
        open_bench(desk).work(desk.job(), ignore)
    assert [8, 4] == scarce.sizes


@pytest.mark.parametrize(
    ("method", "settings", "why"),
    [
        ("fedavg", {"backbone": "resnet8"}, "batch norm"),
        ("fedcp", {}, "compares the samples"),
        ("fedpick", {}, "draws noise"),
        ("fedavg", {"batch": 1}, "one sample"),
    ],
)
def test_a_batch_whose_halves_do_not_add_up_is_declined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, settings: dict[str, Json], why: str
) -> None:
    """As before, and with the reason, which the next task finds known."""
    desk, scarce = Desk(tmp_path, method, **settings), Scarce(monkeypatch, 0)
    bench = open_bench(desk)
    for tries in (1, 2):
        with pytest.raises(OutOfMemory, match=f"cannot be halved: .*{why}"):
            bench.work(desk.job(), ignore)
        assert tries == len(scarce.sizes)


def test_a_network_that_draws_noise_is_not_halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout of two halves is not that of the whole: it is noticed, whatever the layer is called."""
    desk = Desk(tmp_path)
    real = methods.load("fedavg").client.forward

    def drop(self: Participant, x: Tensor) -> Tensor:
        return real(self, torch.dropout(x, 0.5, self.training))

    monkeypatch.setattr(methods.load("fedavg").client, "forward", drop)
    Scarce(monkeypatch, 4)
    bench = open_bench(desk)
    for _ in range(2):
        with pytest.raises(OutOfMemory, match=r"cannot be halved: .*draws noise"):
            bench.work(desk.job(), ignore)


def test_only_training_is_halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A measurement that runs out of memory has no batch of training to halve."""
    desk, tries = Desk(tmp_path), []
    monkeypatch.setattr(tasks, "evaluate", lambda *given: tries.append(1) or fail(MemoryError())())
    with pytest.raises(OutOfMemory):
        open_bench(desk).work(desk.job(Kind.EVALUATE), ignore)
    assert [1] == tries


@pytest.mark.parametrize("most", [0, 1, 2, 9])
def test_a_machines_limit_of_threads(tmp_path: Path, most: int) -> None:
    """It lowers the run's number, never raises it, and what follows is said; a repeatable run has one thread anyway."""
    desk = Desk(tmp_path)
    desk.spec, seen = replace(desk.spec, threads=2, repeatable=False), list[int]()
    bench, folder = Workbench(), replace(desk.folder, threads=most)
    with capture_logs() as said:
        bench.open(folder, desk.spec.to_json(), desk.init)
    bench.work(desk.job(), lambda samples: seen.append(torch.get_num_threads()))
    assert {1 if most == 1 else 2} == set(seen)
    assert (most == 1) == bool(said)
    assert all("repeatable = false" in line["gives"] for line in said)
    torch.set_num_threads(1)


def test_a_run_in_bfloat16_sends_float32(tmp_path: Path) -> None:
    """The update fits the manifest, and is another than in float32; predictions are those that were scored."""
    desk = Desk(tmp_path)
    wide = open_bench(desk).work(desk.job(), ignore)
    desk.spec = replace(desk.spec, precision="bfloat16", repeatable=False)
    half = open_bench(desk).work(desk.job(), ignore)
    assert wide.up != half.up
    assert len(wide.up) == len(half.up)
    gaps = [
        (term.value - read_up(desk, half).summed[name].value).abs().max()
        for name, term in read_up(desk, wide).summed.items()
    ]
    assert 0 < max(gaps) < 0.05
    serving = tmp_path / "serving.safetensors"
    told = open_bench(desk).work(desk.job(Kind.FINISH, 3, serve_as=serving), ignore).scores
    predictor = Predictor.load(serving)
    test = data.load(desk.folder, desk.spec).test
    [scores] = predictor.score(test)
    assert torch.float32 == scores["combined"].dtype
    loss = float(cross_entropy(scores["combined"], test.y, reduction="sum")) / len(test)
    assert told["pre/test/combined"][4] == loss
    wide_scores = predictor.served.participant(test.take(torch.arange(8))[0])
    assert loss != cross_entropy(wide_scores, test.y).item()


def test_a_run_with_channels_last_computes_so_and_sends_as_any(tmp_path: Path) -> None:
    """Twice the same update, which differs from the usual one by roundings; predictions are those that were scored."""
    desk = Desk(tmp_path, backbone="resnet8")
    usual = open_bench(desk).work(desk.job(), ignore)
    desk.spec = replace(desk.spec, memory_format="channels-last")
    first, again = (open_bench(desk).work(desk.job(), ignore) for _ in range(2))
    assert first.up == again.up != usual.up
    gaps = [
        (term.value - read_up(desk, first).summed[name].value).abs().max()
        for name, term in read_up(desk, usual).summed.items()
    ]
    assert 0 < max(gaps) < 1e-3
    serving = tmp_path / "serving.safetensors"
    told = open_bench(desk).work(desk.job(Kind.FINISH, 3, serve_as=serving), ignore).scores
    predictor = Predictor.load(serving)
    kernel = predictor.served.participant.get_parameter("encoder.stage1.0.conv1.weight")
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    test = data.load(desk.folder, desk.spec).test
    [scores] = predictor.score(test)
    loss = float(cross_entropy(scores["combined"], test.y, reduction="sum")) / len(test)
    assert told["pre/test/combined"][4] == loss


def test_a_device_that_lacks_the_runs_numbers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the run is opened, in words that name both ways out."""
    desk = Desk(tmp_path)
    desk.spec = replace(desk.spec, precision="bfloat16", repeatable=False)
    monkeypatch.setattr(device.Device, "takes", lambda self, precision: precision == "float32")
    with pytest.raises(SettingError, match="does not compute in bfloat16") as caught:
        open_bench(desk)
    assert "--device cpu" in caught.value.advice
