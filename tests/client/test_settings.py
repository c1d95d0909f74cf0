"""Sizes as an engineer types them, and what a site's memory and cache take by them."""

from __future__ import annotations

import pytest

from pfl_client.settings import ClientSettings, read_size
from pfl_common.app.config import settle
from pfl_common.errors import SettingError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2G", 2 << 30),
        ("512m", 512 << 20),
        ("1.5 GiB", 3 << 29),
        ("10KB", 10 << 10),
        ("0", 0),
        ("3T", 3 << 40),
    ],
)
def test_a_size(text: str, size: int) -> None:
    """With a unit or without, in any spelling of it."""
    assert size == read_size(text)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("memory_limit", "lots", "a size such as 2G or 512M"),
        ("memory_limit", "64M", "512M or more"),
        ("memory_limit", "-2G", "a size such as"),
        ("cache_limit", "", "a size such as"),
        ("cache_limit", "2 gigs", "a size such as"),
    ],
)
def test_what_is_no_size(name: str, text: str, words: str) -> None:
    """Nor one under which a trainer cannot even start."""
    with pytest.raises(SettingError, match=words):
        settle(ClientSettings, {name: text}, what="pfl-client")


def test_the_defaults() -> None:
    """No limit of memory, and a cache."""
    plain = ClientSettings()
    assert (0, 20 << 30) == (plain.memory_bytes, plain.cache_bytes)
    assert (1 << 30, 0) == (
        ClientSettings(memory_limit="1G").memory_bytes,
        ClientSettings(cache_limit="0").cache_bytes,
    )
