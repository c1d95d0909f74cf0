"""Named tensors: a `State` is whatever crosses the network, lies in a vault or makes a checkpoint.

A State has no order: names are the only address. For one vector call `flat`, which sorts.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Protocol

import torch
from torch import Tensor, nn


class Kept(Protocol):
    """One site's update in the coordinator's spool; `load` reads it on demand."""

    @property
    def id(self) -> str: ...

    def load(self) -> State: ...


class State(Mapping[str, Tensor]):
    """Tensors by dotted name and, on the coordinator only, updates kept by reference."""

    __slots__ = ("_tensors", "kept")

    def __init__(
        self, tensors: Mapping[str, Tensor] | None = None, *, kept: Mapping[str, Kept] | None = None
    ) -> None:
        self._tensors = dict(tensors or {})
        self.kept: dict[str, Kept] = dict(kept or {})

    @classmethod
    def of(cls, module: nn.Module, names: Iterable[str] | None = None) -> State:
        """The current values of a module, cut loose from it; all of them, or the names asked for."""
        return cls.view(module, names).apply(torch.clone)

    @classmethod
    def view(cls, module: nn.Module, names: Iterable[str] | None = None) -> State:
        """The same, not copied: to be read before the module goes on, and never to be written to."""
        every = module.state_dict(keep_vars=True)
        wanted = every.keys() if names is None else names
        return cls({name: every[name].detach() for name in wanted})

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    # As a Mapping has them they look each name up in Python: a model has hundreds, and a round goes through them often.
    def keys(self) -> KeysView[str]:
        """The names."""
        return self._tensors.keys()

    def values(self) -> ValuesView[Tensor]:
        """The tensors."""
        return self._tensors.values()

    def items(self) -> ItemsView[str, Tensor]:
        """Both."""
        return self._tensors.items()

    def __repr__(self) -> str:
        shapes = {name: tuple(tensor.shape) for name, tensor in sorted(self.items())}
        return f"State({shapes}, kept={sorted(self.kept)})"

    def under(self, prefix: str) -> State:
        """The branch below a prefix, named without it."""
        start = prefix + "."
        return State({name.removeprefix(start): t for name, t in self.items() if name.startswith(start)})

    def within(self, prefix: str) -> State:
        """The same tensors, one level deeper: every name gets the prefix."""
        return State({f"{prefix}.{name}": t for name, t in self.items()})

    def branches(self) -> dict[str, State]:
        """The State cut at the first dot of its names."""
        return {prefix: self.under(prefix) for prefix in sorted({name.partition(".")[0] for name in self})}

    def only(self, names: Iterable[str]) -> State:
        """The named tensors and no others."""
        return State({name: self[name] for name in names})

    def apply(self, change: Callable[[Tensor], Tensor]) -> State:
        """Every tensor changed in the same way."""
        return State({name: change(t) for name, t in self.items()})

    def __or__(self, other: Mapping[str, Tensor]) -> State:
        """Both together; the right one wins, and what was kept by reference stays kept."""
        kept = self.kept | (other.kept if isinstance(other, State) else {})
        return State({**self._tensors, **other}, kept=kept)


def flat(state: Mapping[str, Tensor]) -> Tensor:
    """One long vector, sorted by name, so that two states of equal names can be compared number by number."""
    if not state:
        return torch.zeros(0)
    return torch.cat([state[name].detach().reshape(-1) for name in sorted(state)])


def spell(words: Iterable[str]) -> Tensor:
    """A list of words without spaces as bytes, because all that a State can hold is tensors."""
    return torch.tensor(list(" ".join(words).encode()), dtype=torch.uint8)


def read_words(spelt: Tensor | None) -> list[str]:
    """The words of a list that `spell` wrote; none where there is no list."""
    return [] if spelt is None else bytes(spelt.tolist()).decode().split()


def load_into(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Overwrite the named parameters and buffers of a module; an unknown name or another shape is an error."""
    pairs = _pair(module, values)
    if pairs:
        with torch.no_grad():
            # One call for all: of many small tensors the calls take longer than the copying.
            torch._foreach_copy_([own for own, _ in pairs], [value for _, value in pairs])


def look_into(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Let the named parameters and buffers of a module be these tensors themselves, wherever those lie."""
    for own, value in _pair(module, values):
        own.data = value


def _pair(module: nn.Module, values: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    every = module.state_dict(keep_vars=True) if values else {}
    pairs = list[tuple[Tensor, Tensor]]()
    for name, value in values.items():
        own = every.get(name)
        if own is None:
            raise KeyError(f"{name!r} is no parameter or buffer of {type(module).__name__}")
        if own.shape != value.shape:
            raise ValueError(f"{name!r} has shape {tuple(own.shape)}, got {tuple(value.shape)}")
        pairs.append((own, value))
    return pairs
