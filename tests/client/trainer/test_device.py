"""The one place that knows graphics cards, tried with devices that note what they are asked and fail as cards do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pfl_client.trainer import device
from pfl_client.trainer.device import Backend, Cuda, Device, Mps, choose
from pfl_common.errors import SettingError


class Card:
    """Stands in for torch.cuda or torch.mps: notes each call, and computes nothing."""

    def __init__(self, *, bfloat16: bool = True) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._bfloat16 = bfloat16

    def get_device_name(self, name: str) -> str:
        return f"Card of {name}"

    def memory_reserved(self, name: str) -> int:
        return {"cuda": 2 << 30, "cuda:1": 3 << 30}[name]

    def driver_allocated_memory(self) -> int:
        return 5 << 30

    def empty_cache(self) -> None:
        self.calls.append(("empty_cache",))

    def synchronize(self, *name: str) -> None:
        self.calls.append(("synchronize", *name))

    def is_bf16_supported(self, *, including_emulation: bool) -> bool:
        assert not including_emulation
        return self._bfloat16


def machine(
    *, cuda: int = 0, mps: bool = False, broken: str = "", bfloat16: bool = True
) -> dict[str, Backend]:
    """A machine with so many cards of NVIDIA, or a Mac's; one of them may be out of order."""

    def probe(name: str) -> None:
        if name == broken:
            raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable")

    return {
        "cuda": Backend(Cuda, lambda: cuda > 0, Card(bfloat16=bfloat16), lambda: cuda, probe),
        "mps": Backend(Mps, lambda: mps, Card(), probe=probe),
        "cpu": Backend(Device, lambda: True, probe=probe),
    }


@pytest.mark.parametrize(
    ("asked", "here", "name", "kind"),
    [
        ("auto", machine(cuda=2, mps=True), "cuda", Cuda),
        ("auto", machine(mps=True), "mps", Mps),
        ("auto", machine(), "cpu", Device),
        ("cuda:1", machine(cuda=2), "cuda:1", Cuda),
        ("cuda", machine(cuda=2), "cuda", Cuda),
        ("mps", machine(cuda=1, mps=True), "mps", Mps),
        ("cpu", machine(cuda=2), "cpu", Device),
    ],
)
def test_the_device_of_a_machine(asked: str, here: dict[str, Backend], name: str, kind: type[Device]) -> None:
    """Auto takes a card of NVIDIA, then a Mac's, then the processor; a name takes what it says."""
    chosen = choose(asked, here)
    assert (name, kind) == (chosen.name, type(chosen))


@pytest.mark.parametrize(
    ("asked", "here", "known"),
    [
        ("cuda:2", machine(cuda=2), "cuda:0 to cuda:1"),
        ("cuda", machine(), "auto, cpu"),
        ("mps", machine(cuda=1), "auto, cuda, cpu"),
        ("cuda:x", machine(cuda=2), "cuda"),
        ("cuda:", machine(cuda=2), "cuda"),
        ("abacus", machine(), "auto, cpu"),
        ("meta", machine(), "auto, cpu"),
        ("cuda:1", machine(cuda=2, broken="cuda:1"), "cuda:0"),
    ],
)
def test_a_device_that_is_not_there(asked: str, here: dict[str, Backend], known: str) -> None:
    """Those that are there are named."""
    with pytest.raises(SettingError, match=f"no device '{asked}'") as caught:
        choose(asked, here)
    assert known in caught.value.expected


def test_names_and_memory() -> None:
    """What torch holds on a card is told beside the process's own memory."""
    one, apple, here = choose("cuda:1", machine(cuda=2)), choose("mps", machine(mps=True)), choose("cpu")
    assert ["cuda:1: Card of cuda:1", "mps", "cpu"] == [of.describe() for of in (one, apple, here)]
    assert [3 << 30, 5 << 30, None] == [of.memory().get("device") for of in (one, apple, here)]
    assert here.memory()["resident"] > 1 << 20


def test_waiting_and_giving_back() -> None:
    """Each card is asked in its own words; a processor has nothing to wait for."""
    for kind, words in (("cuda", ("synchronize", "cuda")), ("mps", ("synchronize",))):
        here = machine(cuda=1, mps=True)
        of = choose(kind, here)
        of.synchronise()
        of.empty_cache()
        assert [words, ("empty_cache",)] == here[kind].module.calls
    choose("cpu").synchronise()
    choose("cpu").empty_cache()


@pytest.mark.parametrize(
    ("kind", "error", "expected"),
    [
        ("cuda", torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        ("cuda", RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), True),
        ("cuda", RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (
            "mps",
            RuntimeError("MPS backend out of memory (MPS allocated: 9.05 GB, max allowed: 9.07 GB)"),
            True,
        ),
        ("mps", TypeError("Cannot convert a MPS Tensor to float64 dtype"), False),
        ("cpu", RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        ("mps", RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        ("cpu", MemoryError(), True),
        ("cpu", RuntimeError("CUDA out of memory"), False),
        ("cpu", RuntimeError("something else"), False),
    ],
)
def test_how_each_says_that_memory_has_run_out(kind: str, error: Exception, expected: bool) -> None:
    """By its own error, or by the words of the general one."""
    assert expected == choose(kind, machine(cuda=1, mps=True)).is_exhausted(error)


def test_which_types_of_numbers_a_device_has() -> None:
    """A card without bfloat16 is not to imitate it; the processor takes all."""
    old, new = choose("cuda", machine(cuda=1, bfloat16=False)), choose("cuda", machine(cuda=1))
    assert (False, True, True) == (old.takes("bfloat16"), old.takes("float16"), new.takes("bfloat16"))
    with pytest.raises(SettingError, match="Card of cuda does not compute in bfloat16"):
        device.check_precision(old, "bfloat16")
    device.check_precision(choose("cpu"), "bfloat16")


def test_torch_is_settled() -> None:
    """The run's threads, deterministic algorithms, and no timing of kernels against each other."""
    torch.backends.cudnn.benchmark = True
    device.settle(2)
    assert 2 == torch.get_num_threads()
    assert 1 == torch.get_deterministic_debug_mode()
    assert not torch.backends.cudnn.benchmark
    device.settle(1)
