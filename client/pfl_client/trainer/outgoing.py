"""The last look at an update before it becomes bytes: nothing that stays at the site is in it, whatever a method does.

Caught are a tensor that stays under any name that means it, in any branch; one whose memory is a personal tensor's;
and one that equals a personal tensor, as it is now or as it was before the task, under a name that may travel.
Not caught: a personal tensor that was changed first (scaled, rounded, cut, put in another order), and one of at most
`FEW` numbers or of one number over and over, which equal others by chance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors import safe_open
from torch import Tensor

from pfl_client.trainer_process.task_errors import PersonalTensor
from pfl_common.learning.freezing import find_frozen
from pfl_common.learning.method import Participant
from pfl_common.spec.personal_names import find_personal
from pfl_common.spec.run import Task
from pfl_common.tensors.state import State

Size: TypeAlias = tuple[torch.dtype, int]
"""Only tensors of one type and number of values can be equal."""
BySize: TypeAlias = Mapping[Size, list[tuple[str, Tensor]]]
FEW = 16
"""Tensors of no more numbers are not compared: a handful of them is equal by chance."""


def check_outgoing(
    sent: State, participant: Participant, task: Task, *, down: State, kept: Path | None
) -> None:
    """Refuse an update with a personal tensor in it. `down` is what came, `kept` the vault's file before the task."""
    every = participant.state_dict(keep_vars=True)
    personal = find_stays(participant, task.phase)
    named = find_personal(sent, personal=personal | find_frozen(participant).keys(), known=every.keys())
    if named:
        raise _refusal(named[0], "stays at this site by its name")
    if personal:
        own = State({name: every[name].detach() for name in personal})
        _check_memory(sent, own)
        _check_values(sent, own, participant, down, kept)


def find_stays(participant: Participant, phase: str) -> set[str]:
    """Names of the tensors that nobody else may see: those that stay, but for what the method sends or tells by its
    design. A method may do both with a tensor, and begin its next round from its own values of what it sent.
    """
    stays = set(participant.stays(phase))
    return stays and stays - set(participant.travels(phase)) - set(participant.tells(phase))


def _check_memory(sent: State, personal: State) -> None:
    """A part of a personal tensor's memory is one of it, however it is cut or shaped."""
    taken = [(own, tensor.device, *_range(tensor)) for own, tensor in sorted(personal.items())]
    for name, value in sent.items():
        start, end = _range(value)
        for own, device, first, last in taken:
            if start < last and first < end and value.device == device:
                raise _refusal(name, f"lies in the memory of {own}, which stays at this site")


def _check_values(
    sent: State, personal: State, participant: Participant, down: State, kept: Path | None
) -> None:
    sizes = {_size(value) for value in sent.values() if value.numel() > FEW}
    alike = _by_size(State({name: own for name, own in personal.items() if _size(own) in sizes}))
    names = {name for each in alike.values() for name, _ in each}
    before, came = _read_before(kept, names), _by_size(down)
    for name, value in sent.items():
        if (size := _size(value)) not in alike:
            continue
        found = [
            own for own, tensor in alike[size] if not _is_copy(own, participant) and _same(value, tensor)
        ]
        found += [own for own, tensor in before.get(size, ()) if _same(value, tensor)]
        if found and not _says_nothing(value, [tensor for _, tensor in came.get(size, ())]):
            raise _refusal(name, f"has the values of {found[0]}, which stays at this site")


def _read_before(kept: Path | None, names: set[str]) -> BySize:
    """Tensors as the vault had them before the task; only those that are compared are read."""
    if kept is None:
        return {}
    with safe_open(kept, framework="pt") as content:
        held = {name: content.get_tensor(name) for name in names & set(content.keys())}
    return _by_size(State(held))


def _by_size(state: State) -> BySize:
    found: dict[Size, list[tuple[str, Tensor]]] = defaultdict(list)
    for name, tensor in sorted(state.items()):
        found[_size(tensor)].append((name, tensor))
    return dict(found)


def _size(tensor: Tensor) -> Size:
    return tensor.dtype, tensor.numel()


def _is_copy(name: str, participant: Participant) -> bool:
    """Whether a tensor that stays may equal a shared one because the method set it to that."""
    return any(name == one or name.startswith(f"{one}.") for one in participant.copies_shared)


def _range(tensor: Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    return start, start + tensor.numel() * tensor.itemsize


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether the numbers are equal, in their order, whatever the shape; a few are looked at first."""
    own, theirs = one.detach().reshape(-1), other.detach().reshape(-1).to(one.device)
    return torch.equal(own[:FEW], theirs[:FEW]) and torch.equal(own, theirs)


def _says_nothing(value: Tensor, came: list[Tensor]) -> bool:
    """Whether it is one number over and over, or just what came down: neither is this site's."""
    numbers = value.detach().reshape(-1)
    return bool((numbers == numbers[0]).all()) or any(_same(value, one) for one in came)


def _refusal(name: str, why: str) -> PersonalTensor:
    return PersonalTensor(
        f"the method puts {name!r} into its update, which {why}",
        expected="only what its method shares",
        advice="report the method (its name and release) to who maintains it; nothing of this update was sent",
    )
