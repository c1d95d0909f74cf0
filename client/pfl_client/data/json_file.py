"""Reads the small JSON files that lie beside a site's data."""

from __future__ import annotations

import json
from pathlib import Path

MOST_BYTES = 64 << 20
"""The longest list that anybody can mean, 20,000 names of 1000 letters or 100,000 words, is shorter."""


def read_json(path: Path) -> object:
    """The content; OSError or ValueError if it cannot be read, is too long, or is nested beyond all sense."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES} bytes")
    try:
        return json.loads(content.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
