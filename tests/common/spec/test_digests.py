"""Two hashes, each as others compute it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from blake3 import blake3

from pfl_common.spec.digests import DIGESTS, FIRST, Digests, digest_of, digest_of_file, start

EMPTY = {
    "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "blake3": "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
}
"""As their authors publish them."""


@pytest.mark.parametrize("by", DIGESTS)
def test_known_answers(by: Digests) -> None:
    """Of nothing, and of bytes that come in pieces."""
    assert EMPTY[by] == start(by).hexdigest() == digest_of(b"", by)
    hashed = start(by)
    for piece in (b"one", bytearray(b" and"), memoryview(b" another")):
        hashed.update(piece)
    other = {"sha256": hashlib.sha256, "blake3": blake3}[by](b"one and another")
    assert other.hexdigest() == hashed.hexdigest()


@pytest.mark.parametrize("by", DIGESTS)
def test_a_file_as_its_bytes(tmp_path: Path, by: Digests) -> None:
    """Longer than a block of reading."""
    content = bytes(range(256)) * 2048
    (tmp_path / "file").write_bytes(content)
    assert digest_of(content, by) == digest_of_file(tmp_path / "file", by)


def test_older_runs_are_sha256() -> None:
    """What says nothing means the first: this never changes."""
    assert "sha256" == FIRST
