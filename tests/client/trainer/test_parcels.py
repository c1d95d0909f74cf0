"""An update as its changes: what crosses, what is kept of it for the next time, and that both follow from the task."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pfl_client.trainer.parcels import REST, SharedMemory, open_changes, read_parcel
from pfl_client.trainer.session import Workbench
from pfl_client.trainer_process.api import Done, Job
from pfl_client.trainer_process.task_errors import Tampered
from pfl_common.learning.method import LocalData, Samples
from pfl_common.spec.encoded_form import Form
from pfl_common.spec.manifest import Entry, changing_names, decode_manifest, full_size
from pfl_common.spec.run import Kind, Task
from pfl_common.tensors import codec
from pfl_common.tensors.encoded import Changes, open_plain
from pfl_common.tensors.sent_state import SENT, digest_of, follow
from pfl_common.tensors.state import State
from pfl_server.run.encoded_parcels import pin_encoding
from tests.client.support.runs import Desk

LOSSY = ("int8", "int8:stochastic", "topk")


class Read:
    """A parcel in memory."""

    def __init__(self, content: bytes) -> None:
        self.content, self.size = content, len(content)

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill the target."""
        target[:] = self.content[offset : offset + len(target)]


@pytest.fixture
def lay(tmp_path: Path) -> Callable[[str, str], Desk]:
    """A desk with a run of this method under this encoding."""

    def made(encoding: str, method: str = "fedper") -> Desk:
        desk = Desk(tmp_path, method)
        desk.spec = pin_encoding(replace(desk.spec, encoding=encoding))
        return desk

    return made


def work(desk: Desk, job: Job) -> Done:
    """Do a task on a bench that was just opened."""
    bench = Workbench()
    bench.open(desk.folder, desk.spec.to_json(), desk.init)
    done = bench.work(job, lambda samples: None)
    return replace(done, up=None if done.up is None or isinstance(done.up, Path) else bytes(done.up))


def read_up(desk: Desk, up: bytes) -> State:
    """The update as the coordinator reads it."""
    manifest = desk.spec.manifests["train/train/up"]
    source = open_plain(Read(up), manifest, (), desk.state.within("sum"))
    plain = bytearray(source.size)
    source.read_into(0, memoryview(plain))
    return codec.decode(plain, decode_manifest(manifest), ())


def rest_of(job: Job) -> State:
    """What a generation keeps of a change."""
    return State(load_file(job.keep_as)).under(REST)


def drawn(desk: Desk, kept: Path, *, drop: bool = False) -> Job:
    """The second round's task, which begins from the first one's generation."""
    job = desk.job(number=2, kept=kept, since=1)
    return replace(job, task=replace(job.task, drop=drop))


@pytest.mark.parametrize("encoding", ["bf16", *LOSSY])
def test_what_crosses(lay: Callable[[str], Desk], encoding: str) -> None:
    """As many bytes as are pinned; near what float32 would have sent, whose download was not rounded either."""
    desk = lay(encoding)
    job = desk.job()
    done = work(desk, job)
    assert isinstance(done.up, bytes)
    assert full_size(desk.spec.manifests["train/train/up"]) == len(done.up)
    found, rest = read_up(desk, done.up), rest_of(job)
    plain = Desk(desk.path / "plain", "fedper")
    exact = work(plain, plain.job())
    assert isinstance(exact.up, bytes)
    trained = codec.decode(bytearray(exact.up), plain.spec.manifests["train/train/up"], ())
    for name in trained:
        off = found[name] + rest[name] - trained[name] if name in rest else found[name] - trained[name]
        assert 0.01 > off.abs().max().item()
    assert (encoding == "bf16") == (not rest)
    assert {n for n in rest} == (
        set()
        if encoding == "bf16"
        else {e.name for e in desk.spec.manifests["train/train/up"] if "-" in e.dtype}
    )


@pytest.mark.parametrize("encoding", LOSSY)
def test_the_same_task_again(lay: Callable[[str], Desk], encoding: str) -> None:
    """After a kill: from the same generation the same bytes go up and the same are kept; from another one others."""
    desk = lay(encoding)
    first = desk.job()
    work(desk, first)
    job = drawn(desk, first.keep_as)
    outcomes = [(work(desk, job).up, job.keep_as.read_bytes()) for _ in range(2)]
    assert outcomes[0] == outcomes[1]
    changed = load_file(first.keep_as)
    other = desk.path / "other.safetensors"
    save_file({n: v + 0.01 if n.startswith(REST) else v for n, v in changed.items()}, other)
    assert outcomes[0][0] != work(desk, replace(job, kept=other)).up


@pytest.mark.parametrize("encoding", LOSSY)
def test_a_drop_out_keeps_what_a_lost_update_would_have(lay: Callable[[str], Desk], encoding: str) -> None:
    """A replay plays a lost update as a drawn drop-out: the site's generation is the same, to the byte."""
    desk = lay(encoding)
    first = desk.job()
    work(desk, first)
    kept = []
    for drop in (False, True):
        job = drawn(desk, first.keep_as, drop=drop)
        assert drop == (work(desk, job).up is None)
        kept.append(job.keep_as.read_bytes())
    assert kept[0] == kept[1]


def test_chance_follows_from_run_site_round_and_name(lay: Callable[[str], Desk]) -> None:
    """The same change is rounded otherwise in another round, at another site, in another run, in another tensor."""
    spec, nothing = lay("int8:stochastic").spec, Samples(torch.empty(0), torch.empty(0))
    change = torch.randn(256, generator=torch.Generator().manual_seed(1))
    form, found = Form("int8"), list[bytes]()
    words = [
        (7, "a", 1, "w"),
        (7, "a", 1, "w"),
        (8, "a", 1, "w"),
        (7, "b", 1, "w"),
        (7, "a", 2, "w"),
        (7, "a", 1, "v"),
    ]
    for seed, site, number, name in words:
        data = LocalData(nothing, nothing, nothing, 2, site, seed)
        down, out = State({name: torch.zeros(256)}), io.BytesIO()
        task = Task(Kind.TRAIN, number, 3, attempt=number + 4)
        changes = open_changes(spec, data, task, down=down, rest=State())
        changes.write(Entry(f"sum.{name}", form.text, (256,)), form, change, out)
        found.append(out.getvalue())
    assert found[0] == found[1]
    assert 5 == len(set(found))


def test_a_site_that_begins_has_nothing_left_over(lay: Callable[[str], Desk]) -> None:
    """The rest of another run, or of a state that no longer counts, is not this run's."""
    desk = lay("int8")
    first = desk.job()
    plain = work(desk, first).up
    begun = replace(first, kept=first.keep_as, keep_as=desk.path / "again.safetensors")
    begun = replace(begun, task=replace(begun.task, before=4))
    held = load_file(first.keep_as)
    assert any(name.startswith(REST) for name in held)
    own = State(held).only(name for name in held if not name.startswith(REST))
    bare = desk.path / "bare.safetensors"
    save_file(dict(own), bare)
    assert work(desk, begun).up == work(desk, replace(begun, kept=bare)).up
    assert plain is not None


def test_what_is_left_over_is_of_no_model(lay: Callable[[str], Desk]) -> None:
    """The model a site predicts with holds nothing of it."""
    desk = lay("topk")
    first = desk.job()
    work(desk, first)
    last = desk.job(Kind.FINISH, 3, kept=first.keep_as, since=1, serve_as=desk.path / "serving")
    work(desk, last)
    assert set(desk.first) == set(load_file(desk.path / "serving"))


@pytest.fixture
def delta(tmp_path: Path) -> Desk:
    """A desk with a run whose downloads cross as changes."""
    desk = Desk(tmp_path, "fedper")
    desk.spec = pin_encoding(replace(desk.spec, encoding="int8", downlink="delta"))
    assert "delta" == desk.spec.downlink
    return desk


def send_first(desk: Desk) -> tuple[Job, State]:
    """Round 1: everybody is sent the state as it is."""
    manifest, held = desk.spec.delta("train"), desk.state.only(changing_names(desk.spec.delta("train")))
    return replace(desk.job(), sent=digest_of(held, manifest, desk.spec.digests)), held


def send_next(desk: Desk, kept: Path, before: State) -> tuple[Job, State]:
    """Round 2, as the change."""
    manifest, out = desk.spec.delta("train"), io.BytesIO()
    state = desk.state.apply(lambda value: value + 0.01 * torch.ones_like(value))
    codec.encode(state, manifest, out, Changes(before, State(), keeps_rest=False))
    held = follow(before, state, manifest)
    job = replace(desk.job(number=2, kept=kept, since=1), down=out.getvalue(), as_delta=True)
    return replace(job, sent=digest_of(held, manifest, desk.spec.digests)), held


def sent_of(job: Job) -> State:
    """What a generation holds of what the site was sent."""
    return State(load_file(job.keep_as)).under(SENT)


def test_a_change_is_added_to_what_the_site_holds(delta: Desk) -> None:
    """It lies in the generation, beside what did not cross; what is trained from is the same as if it came whole."""
    first, held = send_first(delta)
    work(delta, first)
    assert all(torch.equal(held[name], value) for name, value in sent_of(first).items())
    assert rest_of(first)
    job, held = send_next(delta, first.keep_as, held)
    done = work(delta, job)
    kept = job.keep_as.read_bytes()
    assert all(torch.equal(held[name], value) for name, value in sent_of(job).items())
    assert held.keys() == sent_of(job).keys()
    manifest = delta.spec.manifests["train/train/down"]
    state = delta.state.apply(lambda value: value + 0.01 * torch.ones_like(value)) | held
    out = io.BytesIO()
    codec.encode(state, manifest, out)
    whole = work(delta, replace(job, down=out.getvalue(), as_delta=False))
    assert (done.up, kept) == (whole.up, job.keep_as.read_bytes())
    assert len(out.getvalue()) > 3.5 * len(job.down)  # type: ignore[arg-type]  # bytes


def test_the_first_download_is_a_change_of_the_first_model(delta: Desk) -> None:
    """A site that was in no round has that: it trains as if all had come whole."""
    whole, held = send_first(delta)
    expected, kept = work(delta, whole), whole.keep_as.read_bytes()
    out = io.BytesIO()
    codec.encode(delta.state, delta.spec.delta("train"), out, Changes(held, State(), keeps_rest=False))
    found = work(delta, replace(whole, down=out.getvalue(), as_delta=True))
    assert (expected.up, kept) == (found.up, whole.keep_as.read_bytes())


def test_a_change_of_what_the_site_does_not_hold(delta: Desk) -> None:
    """Nothing is trained on: a generation without it, other numbers in it, and another hash are said in words."""
    first, held = send_first(delta)
    work(delta, first)
    job, _ = send_next(delta, first.keep_as, held)
    changed, bare, moved = load_file(first.keep_as), delta.path / "bare", delta.path / "moved"
    save_file({n: v for n, v in changed.items() if not n.startswith(SENT)}, bare)
    save_file({n: v + 1e-3 if n.startswith(SENT) else v for n, v in changed.items()}, moved)
    spoilt = {
        "holds nothing of that round's download": replace(job, kept=bare),
        "it leads to other numbers than the coordinator has signed": replace(job, kept=moved),
        "leads to other numbers": replace(job, sent="0" * 64),
    }
    for words, wrong in spoilt.items():
        with pytest.raises(Tampered, match=words) as tampered:
            work(delta, wrong)
        assert "tampered" == tampered.value.reason
        assert not wrong.keep_as.exists()


def test_a_whole_download_of_other_numbers(delta: Desk) -> None:
    """What all sites are sent is the same to the last bit, or this one does not train."""
    first, _ = send_first(delta)
    with pytest.raises(Tampered, match="the download that came for 000001-1-train cannot be used"):
        work(delta, replace(first, sent="0" * 64))


def test_a_run_whose_downloads_are_values_holds_nothing(lay: Callable[[str], Desk]) -> None:
    """Its generations stay what they were."""
    desk = lay("int8")
    job = desk.job()
    work(desk, job)
    assert {} == dict(sent_of(job))
    assert rest_of(job)


def test_a_large_update_goes_as_a_file(lay: Callable[[str], Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    """By its size as it crosses, and with the same bytes."""
    desk = lay("int8")
    small = work(desk, desk.job()).up
    assert small is not None
    monkeypatch.setattr("pfl_client.trainer.parcels.goes_as_file", lambda size: size == len(small))
    job = desk.job(parcel_as=desk.path / "update")
    work(desk, job)
    assert small == (desk.path / "update").read_bytes()


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has files alone")
def test_a_download_in_memory_is_read_where_it_lies() -> None:
    """The next one over it, then one of another size, then one in memory that was made anew."""
    first, second = (os.memfd_create(name) for name in ("first", "second"))
    try:
        for memory, numbers in ((first, (1.0, 2.0)), (first, (3.0, 4.0)), (first, (5.0,)), (second, (6.0,))):
            sent = torch.tensor(numbers)
            os.ftruncate(memory, sent.nbytes)
            os.pwrite(memory, sent.numpy().tobytes(), 0)
            place, manifest = Path(f"/proc/self/fd/{memory}"), (Entry("w", "float32", (len(numbers),)),)
            assert torch.equal(sent, read_parcel(place, manifest, ())["w"])
    finally:
        os.close(first)
        os.close(second)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has files alone")
def test_shared_memory_is_mapped_once() -> None:
    """As long as it is the same and as long; what is written over it is seen."""
    number, shared = os.memfd_create("parcel"), SharedMemory()
    try:
        place = Path(f"/proc/self/fd/{number}")
        written = shared.look_at(place, 3)
        written[:] = b"abc"
        assert b"abc" == place.read_bytes()
        assert written.obj is shared.look_at(place).obj
        os.truncate(place, 2)
        assert (b"ab", True) == (shared.look_at(place), written.obj is not shared.look_at(place).obj)
    finally:
        os.close(number)
