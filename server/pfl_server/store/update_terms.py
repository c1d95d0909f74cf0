"""What a run takes of each site's update: what its tensors are, whom the site may count for, how far it may go."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from pfl_common.learning.method import Participant
from pfl_common.learning.quantities import list_quantities
from pfl_common.spec.run import ClientId, Header, RunSpec
from pfl_common.tensors.update import Quantity
from pfl_common.tensors.update_check import Terms

Declared = Callable[[ClientId], int | None]
"""The training samples that a site declared when it joined; None if it told none."""
Compared = Callable[[ClientId], Mapping[str, Tensor]]
"""What a site's update is compared with, by the names of its parcel."""


class UpdateTerms:
    """The terms of one run's updates. What they are compared with changes from round to round."""

    def __init__(
        self,
        spec: RunSpec,
        quantities: Mapping[str, Mapping[str, Quantity]] | None = None,
        declared: Declared = lambda site: None,
    ) -> None:
        """`quantities` by phase: what each tensor is."""
        self._spec, self._quantities, self.declared = spec, quantities or {}, declared
        self.compared: Compared = lambda site: {}

    def of(self, header: Header) -> Terms:
        """Those of the update with this header."""
        spec = self._spec
        return Terms(
            quantities=self._quantities.get(header.phase, {}),
            declared=self.declared(header.sender),
            largest_weight=spec.largest_weight,
            largest_norm=spec.largest_norm,
            largest_change=spec.largest_change,
            sent=self.compared(header.sender),
        )


def list_by_phase(template: Participant, spec: RunSpec) -> dict[str, dict[str, Quantity]]:
    """What the tensors of a run's updates are, in each of its phases."""
    keys = [key.split("/") for key in spec.manifests if key.count("/") == 2]
    phases = {phase for kind, phase, direction in keys if (kind, direction) == ("train", "up")}
    return {phase: list_quantities(template, spec, phase) for phase in sorted(phases)}
