"""Names of classes as a site tells them whose policy hashes them: whoever knows a name recognises it.

Whoever can guess a name can try it: a hash keeps back names that nobody else thinks of, and no others.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

_START = "sha256:"
_DIGITS = 32
_FORM = re.compile(rf"{_START}[0-9a-f]{{{_DIGITS}}}")


def hash_name(name: str) -> str:
    """A class's name, hashed."""
    digest = hashlib.sha256(b"pfl class\0" + name.encode(errors="surrogateescape")).hexdigest()
    return _START + digest[:_DIGITS]


def is_hashed(name: str) -> bool:
    """Whether a name is told in this form."""
    return _FORM.fullmatch(name) is not None


def recognise(names: Iterable[str], known: Iterable[str]) -> tuple[tuple[str, ...], int]:
    """Names with those hashes resolved that are of known names; and how many are not."""
    by_hash = {hash_name(name): name for name in known}
    found = [by_hash.get(name, name) for name in names]
    return tuple(found), sum(map(is_hashed, found))
