"""What samples are, as an operator types it: a kind, a shape, or both."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast, get_args

from pfl_common.spec.run import InputKind

KINDS: tuple[str, ...] = get_args(InputKind)
EXPECTED = f"a kind ({', '.join(KINDS)}), a shape (3,32,32) or both (array:3,32,32)"
_FORM = re.compile(
    rf"(?P<kind>{'|'.join(KINDS)})?(?P<both>:)?(?P<shape>[1-9][0-9]{{0,9}}(,[1-9][0-9]{{0,9}}){{0,7}})?"
)


@dataclass(frozen=True)
class Form:
    """A kind and a shape of samples; what is empty is not said."""

    kind: InputKind | None = None
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        """As it is typed."""
        return ":".join(part for part in (self.kind or "", ",".join(map(str, self.shape))) if part)


def read_form(text: str) -> Form:
    """A form as it is typed; an empty one says nothing."""
    found = _FORM.fullmatch(text)
    kind, both, shape = found.group("kind", "both", "shape") if found else (None, ":", None)
    if bool(both) != bool(kind and shape):
        raise ValueError(EXPECTED)
    return Form(cast("InputKind | None", kind), tuple(map(int, shape.split(","))) if shape else ())
