"""The only code that touches torch's global generator; each seed is derived from words."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from pfl_common.randomness.seeded_draws import derive


def generator(*words: int | str) -> torch.Generator:
    """A fresh generator for one purpose, for example (run seed, site, round, "shuffle", epoch)."""
    return torch.Generator().manual_seed(derive(*words))


@contextmanager
def scope(*words: int | str) -> Iterator[None]:
    """Dropout and other layers draw from the global generator: seed it for one purpose, then put it back."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    apple = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    with torch.random.fork_rng(devices=devices):
        _seed_all(derive(*words))
        try:
            yield
        finally:
            if apple is not None:
                torch.mps.set_rng_state(apple)


def mark() -> tuple[bytes, ...]:
    """The place where the global generators are now: another mark afterwards says that somebody has drawn."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_available():
        states += torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        states.append(torch.mps.get_rng_state())
    return tuple(hashlib.sha256(state.numpy().tobytes()).digest() for state in states)


def _seed_all(seed: int) -> None:
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        # The same for this processor; torch.manual_seed would note for each absent device who asked, for ever.
        torch.default_generator.manual_seed(seed)


def initialise(module: nn.Module, seed: int) -> None:
    """Give each layer its first values from (seed, "init", its name), so that no layer's depend on another's.

    A part that says `draws_whole` draws all its layers at once, by a rule of its own.
    """
    drawn: tuple[str, ...] = ()
    for name, layer in module.named_modules():
        reset = getattr(layer, "reset_parameters", None)
        if not callable(reset) or name.startswith(drawn):
            continue
        with scope(seed, "init", name):
            reset()
        if getattr(layer, "draws_whole", False):
            drawn = (*drawn, f"{name}." if name else "")


def pin_threads(threads: int) -> None:
    """Fix the number of threads: another number sums in another order and gives other bits."""
    torch.set_num_threads(threads)
