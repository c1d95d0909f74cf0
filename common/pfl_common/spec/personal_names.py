"""Finds names of tensors that stay at a site among those of an update, whatever branch they were put in. Torch-free.

Both the trainer, which encodes an update, and the daemon, which seals it, look through its names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


def find_personal(
    sent: Iterable[str], *, personal: Collection[str], known: Collection[str]
) -> tuple[str, ...]:
    """Those of the `sent` names that mean a `personal` tensor; `known` are all tensors of the model.

    A name begins with its branch (sum, weight, show), and a method may put branches of its own before a tensor's name
    (show.model.head.weight): what it means is the longest known name that it ends with.
    """
    return tuple(name for name in sent if meaning(name, known) in personal) if personal else ()


def meaning(name: str, known: Collection[str]) -> str:
    """The tensor that a name of an update means; empty if it is none of the model's."""
    rest = name.partition(".")[2]
    while rest and rest not in known:
        rest = rest.partition(".")[2]
    return rest
