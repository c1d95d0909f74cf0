"""Work on files in the event loop or beside it: what takes microseconds costs less than the way to a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Answer = TypeVar("Answer")
Given = ParamSpec("Given")

PROMPT_BYTES = 256 << 10
"""So many bytes are read, decrypted and written in the time that two changes of a thread take."""


async def work_on(
    size: int, act: Callable[Given, Answer], *given: Given.args, **named: Given.kwargs
) -> Answer:
    """Do something with so many bytes: at once if they are few, else in a thread, while the event loop goes on."""
    if size <= PROMPT_BYTES:
        return act(*given, **named)
    return await asyncio.to_thread(act, *given, **named)
