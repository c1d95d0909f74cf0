"""What the tensors of an update are, told from the method's half for the site: the same on both sides, never pinned."""

from __future__ import annotations

from collections.abc import Collection

from pfl_common.learning.method import Participant
from pfl_common.learning.partition import running_variances
from pfl_common.spec.run import Kind, RunSpec, parcel_key
from pfl_common.tensors.update import SUM, WEIGHT, Quantity


def list_quantities(participant: Participant, spec: RunSpec, phase: str) -> dict[str, Quantity]:
    """What each tensor of an update is, by its name in the parcel."""
    manifest = spec.manifests.get(parcel_key(Kind.TRAIN, phase, "up"), ())
    variances, weight, beside = (
        running_variances(participant),
        participant.weighs(phase),
        participant.beside,
    )
    found: dict[str, Quantity] = {}
    for entry in manifest:
        branch, _, name = entry.name.partition(".")
        if branch == WEIGHT:
            found[entry.name] = weight
        elif name in beside:
            found[entry.name] = beside[name]
        else:
            found[entry.name] = "variance" if _is_variance(branch, name, variances) else "value"
    return found


def _is_variance(branch: str, name: str, variances: Collection[str]) -> bool:
    # A shown model lies in a branch of its own.
    return (name if branch == SUM else name.partition(".")[2]) in variances
