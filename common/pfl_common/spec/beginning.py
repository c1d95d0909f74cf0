"""The run that another run begins from, and whether the one can go on with the models of the other.

Torch-free: the coordinator checks it before the run begins, and each site for itself before it uses its own state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import ConfigDict, Field

from pfl_common.spec.manifest import Entry, Manifest

if TYPE_CHECKING:
    from pfl_common.spec.run import RunSpec


@dataclass(frozen=True)
class Beginning:
    """A run whose last models another run begins with."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    run: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    spec: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """The hash of its specification: a site knows the run it took part in by it."""
    round: Annotated[int, Field(ge=1)]
    """Its last committed round."""
    state: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """The hash of its shared state after that round, with which this run begins."""


def find_misfit(before: RunSpec, now: RunSpec) -> str:
    """Why a run cannot go on with the models of another: the first thing that differs; empty if nothing does.

    What stayed at the sites in the one must stay in the other, so nothing may go up that did not go up before.
    """
    if before.method != now.method:
        return f"its method was {before.method}, now {now.method}"
    if before.model.classes != now.model.classes:
        return f"its classes were {_few(before.model.classes)}, now {_few(now.model.classes)}"
    if before.model != now.model:
        return f"its network or input was another: {before.model.backbone} on {before.model.shape}"
    if words := _differ(before.init_manifest, now.init_manifest):
        return f"the first tensor that does not fit is {words}"
    if words := _leaves(before, now):
        return f"the first tensor that stayed at the sites and would leave them now is {words}"
    return ""


def _differ(before: Manifest, now: Manifest) -> str:
    then, ours = ({entry.name: entry for entry in manifest} for manifest in (before, now))
    for name in sorted(then.keys() | ours.keys()):
        if then.get(name) != ours.get(name):
            return f"{name}: {_say(then.get(name))} then, {_say(ours.get(name))} now"
    return ""


def _leaves(before: RunSpec, now: RunSpec) -> str:
    left = _list_up(before)
    return next((name for name in sorted(_list_up(now)) if name not in left), "")


def _list_up(spec: RunSpec) -> set[str]:
    """Names of all tensors that sites send up in any phase."""
    return {
        entry.name for key, manifest in spec.manifests.items() if key.endswith("/up") for entry in manifest
    }


def _say(entry: Entry | None) -> str:
    return "absent" if entry is None else f"{entry.dtype} {entry.shape}"


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
