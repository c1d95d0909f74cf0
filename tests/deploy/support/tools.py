"""Programs that do not come with the environment: a test that needs one skips and names it where it is missing."""

from __future__ import annotations

import shutil

import pytest


def tool(name: str, package: str) -> str:
    """Where a program is; without it the test is left out, and says what to install."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"left out: there is no program {name} (package {package})")
    return path
