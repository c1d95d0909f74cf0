"""When Python looks for garbage: not while modules load, and seldom through all that stays.

What modules make is hundreds of thousands of objects, and each site that waits ninety more.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

LOOKS_AT_YOUNGER = 50
"""Before one at all; Python's own number is 10."""


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


def look_through_all_seldom() -> None:
    """Look through everything that is older than a moment a fifth as often: with five thousand sites each look takes a
    coordinator a quarter of a second, in which it answers nobody.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, LOOKS_AT_YOUNGER)
