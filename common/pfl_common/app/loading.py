"""Loads modules without looking for garbage meanwhile: what they make is hundreds of thousands of objects that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Around imports that a program makes at its start. Python's collector would look through all of it a dozen times,
    a sixth of the time that torch takes to load; later looks leave it out too, which were 80 ms each in a trainer.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()
