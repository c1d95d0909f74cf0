"""Where a trainer computes: a graphics card (CUDA, or MPS on a Mac) or the processor, behind one interface.

All that the three do differently is here: choosing one, its name, memory, types of numbers, and how each says that it
has run out of memory. Methods and tasks only see where their tensors lie.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar  # Any: torch's modules for its devices have no type of their own

import torch

from pfl_common.app.allocator import read_resident
from pfl_common.errors import SettingError
from pfl_common.randomness import generators
from pfl_common.spec.rules import Precision

PREFERRED = ("cuda", "mps", "cpu")
"""What "auto" takes: the first that this machine has."""


class Device:
    """The processor; the others say in what they differ."""

    kind = "cpu"
    exhausted: ClassVar[tuple[str, ...]] = (
        "DefaultCPUAllocator",
        "std::bad_alloc",
        "could not create a memory",
        "can't start new thread",
    )
    """Words by which general errors of torch and its libraries say that memory has run out."""

    def __init__(self, name: str = "cpu", backend: Any = None) -> None:
        """With the module of torch that looks after such devices; the processor needs none."""
        self.name, self._backend = name, backend

    def describe(self) -> str:
        """The device for people: of a graphics card its model too."""
        return self.name

    def memory(self) -> dict[str, int]:
        """Bytes this process holds: in the machine, where the system tells, and on a graphics card."""
        resident = read_resident()
        return ({"resident": resident} if resident else {}) | self._own_memory()

    def _own_memory(self) -> dict[str, int]:
        return {}

    def empty_cache(self) -> None:
        """Give back what torch holds and nobody uses."""

    def synchronise(self) -> None:
        """Wait until everything asked for is computed: a card works on while the program goes on."""

    def takes(self, precision: Precision) -> bool:
        """Whether networks can compute in this type here."""
        return True

    def is_exhausted(self, error: BaseException) -> bool:
        """Whether an error says that memory has run out, here or in the machine."""
        if isinstance(error, MemoryError | torch.OutOfMemoryError):
            return True
        if isinstance(error, OSError):
            return error.errno == errno.ENOMEM
        said = (*Device.exhausted, *self.exhausted)
        return isinstance(error, RuntimeError) and any(words in str(error) for words in said)


class Cuda(Device):
    """A card of NVIDIA, or of AMD under the same interface."""

    kind = "cuda"
    exhausted = ("CUDA out of memory", "HIP out of memory", "CUBLAS_STATUS_ALLOC_FAILED")

    def describe(self) -> str:
        """With the card's model."""
        return f"{self.name}: {self._backend.get_device_name(self.name)}"

    def _own_memory(self) -> dict[str, int]:
        return {"device": int(self._backend.memory_reserved(self.name))}

    def empty_cache(self) -> None:
        """Give back what torch holds and nobody uses."""
        self._backend.empty_cache()

    def synchronise(self) -> None:
        """Wait for the card."""
        self._backend.synchronize(self.name)

    def takes(self, precision: Precision) -> bool:
        """bfloat16 needs a card that computes in it; others would only imitate it."""
        return precision != "bfloat16" or bool(self._backend.is_bf16_supported(including_emulation=False))


class Mps(Device):
    """The graphics part of a Mac's processor. It has no float64: see `pfl_common.learning.arithmetic.in_double`."""

    kind = "mps"
    exhausted = ("MPS backend out of memory",)

    def _own_memory(self) -> dict[str, int]:
        return {"device": int(self._backend.driver_allocated_memory())}

    def empty_cache(self) -> None:
        """Give back what torch holds and nobody uses."""
        self._backend.empty_cache()

    def synchronise(self) -> None:
        """Wait for it."""
        self._backend.synchronize()


@dataclass(frozen=True)
class Backend:
    """One kind of device, as torch offers it."""

    kind: type[Device]
    available: Callable[[], bool]
    module: Any = None
    count: Callable[[], int] = lambda: 1
    probe: Callable[[str], object] = lambda name: torch.empty(0, device=name)
    """Use a device once: a card can be there and belong to somebody else."""


BACKENDS: Mapping[str, Backend] = {
    "cuda": Backend(Cuda, torch.cuda.is_available, torch.cuda, torch.cuda.device_count),
    "mps": Backend(Mps, torch.backends.mps.is_available, torch.mps),
    "cpu": Backend(Device, lambda: True),
}


def choose(asked: str, backends: Mapping[str, Backend] = BACKENDS) -> Device:
    """The device that "auto" means here, or the one asked for (cuda:1) if this machine has it."""
    if asked == "auto":
        kind = next(kind for kind in PREFERRED if backends[kind].available())
        return backends[kind].kind(kind, backends[kind].module)
    kind, _, number = asked.partition(":")
    backend = backends.get(kind)
    numbered = number.isdecimal() if ":" in asked else True
    if backend is None or not numbered or not backend.available() or int(number or 0) >= backend.count():
        raise _missing(asked, backends)
    try:
        backend.probe(asked)
    except (RuntimeError, AssertionError):
        raise _missing(asked, backends) from None
    return backend.kind(asked, backend.module)


def _missing(asked: str, backends: Mapping[str, Backend]) -> SettingError:
    here = [kind for kind in PREFERRED if backends[kind].available()]
    several = [f"cuda:0 to cuda:{backends['cuda'].count() - 1}"] if "cuda" in here else []
    return SettingError(
        f"this machine has no device {asked!r}",
        expected=", ".join(["auto", *here, *several]),
        advice="use --device auto, or look at the driver with nvidia-smi",
    )


def check_precision(device: Device, precision: Precision) -> None:
    """Refuse a run whose type of numbers a device does not have."""
    if not device.takes(precision):
        raise SettingError(
            f"{device.describe()} does not compute in {precision}, which this run's specification asks for",
            expected="a device that does",
            advice="start the site with --device cpu, or ask for a run with --precision float32 or float16",
        )


def settle(threads: int) -> None:
    """Make torch give the same bits each time, as far as it can: fixed threads, deterministic algorithms."""
    generators.pin_threads(threads)
    # The same switch as use_deterministic_algorithms(True, warn_only=True), which imports a whole compiler first.
    torch.set_deterministic_debug_mode("warn")
    # It would write NaN into all fresh memory, to find code that reads it: not worth the time here.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # set by a property
    torch.backends.cudnn.benchmark = False
