"""Few bytes are worked on where the caller is, many beside the event loop."""

from __future__ import annotations

import threading

import pytest

from pfl_common.app.prompt_work import PROMPT_BYTES, work_on


@pytest.mark.parametrize(("size", "here"), [(0, True), (PROMPT_BYTES, True), (PROMPT_BYTES + 1, False)])
async def test_what_takes_microseconds_needs_no_thread(size: int, here: bool) -> None:
    """And what takes longer does not hold up heartbeats."""
    assert here == (threading.get_ident() == await work_on(size, threading.get_ident))
