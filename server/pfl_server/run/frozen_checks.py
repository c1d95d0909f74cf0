"""Looks whether freezing makes sense for a method and its network: what stands still may not be sent, and a method that
shares something must have something left to share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pfl_common import methods
from pfl_common.errors import SettingError
from pfl_common.learning.freezing import find_frozen
from pfl_common.learning.method import Participant
from pfl_common.models.without_numbers import without_numbers
from pfl_common.spec.run import RunSpec


def explain_frozen(spec: RunSpec) -> RunSpec:
    """The specification with words on what stands still; refused where the method has nothing left to share."""
    if not spec.frozen:
        return spec
    participant, free = _build(spec), _build(replace(spec, frozen=()))
    method = methods.load(spec.method)
    for phase, _ in method.phases(method.settle(spec.settings), spec.rounds):
        if set(free.travels(phase)) and not set(participant.travels(phase)):
            raise SettingError(
                f"--freeze {','.join(spec.frozen)} leaves {spec.method} nothing to share: each site would be alone",
                expected="a tensor that travels and can still learn",
                advice="freeze less, or train each site by itself: --method local",
            )
    return replace(spec, chosen={**spec.chosen, "frozen": _say(spec, participant)})


def check_frozen_stays(spec: RunSpec) -> None:
    """Refuse a method that sends what is frozen: it lists its tensors in a way of its own."""
    if not spec.frozen:
        return
    frozen = set(find_frozen(_build(spec)))
    for key, manifest in spec.manifests.items():
        sent = [entry.name for entry in manifest if not frozen.isdisjoint(_endings(entry.name))]
        if sent and key != "init":
            raise SettingError(
                f"the method {spec.method} sends {sent[0]!r}, which --freeze {','.join(spec.frozen)} holds still",
                expected="a method that chooses what it sends with pfl_common.learning.partition",
                advice="leave --freeze out with this method",
            )


def _build(spec: RunSpec) -> Participant:
    with without_numbers():
        return methods.build_participant(spec)


def _say(spec: RunSpec, participant: Participant) -> str:
    values = participant.state_dict()
    found = [name for name, original in find_frozen(participant).items() if name == original]
    size = sum(values[name].nbytes for name in found)
    return (
        f"{', '.join(spec.frozen)}: {len(found)} tensors, {size / 1e6:.3g} MB, stand still at all sites and cross "
        "in the first model alone"
    )


def _endings(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[start:]) for start in range(len(parts)))
