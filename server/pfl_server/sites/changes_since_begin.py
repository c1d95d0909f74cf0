"""Reports differences between a run's beginning and its continuation: the product's code, a site's data."""

from __future__ import annotations

import structlog

from pfl_common.app import code_digest
from pfl_common.spec.run import ClientId, Description, RunSpec
from pfl_server.telemetry.event_log import Events

OTHER_DATA = "came back with other data than the run was begun with"
OTHER_CODE = (
    "the run goes on with other code than it was begun with: it cannot be repeated as a whole any more"
)

log = structlog.get_logger("pfl.fleet")

MOST_TOLD = 3
"""So many other forms of one site's data are told: one that says something else at each joining is not news."""


def warn_of_other_code(spec: RunSpec, events: Events) -> None:
    """The run goes on all the same; of one that an older release began nothing is known."""
    then, now = spec.versions.get("code", ""), code_digest.digest()
    if then and then != now:
        log.warning(OTHER_CODE, run=spec.id, begun_with=then[:12], now=now[:12])
        events.add(OTHER_CODE, "warning")


class DataWatch:
    """Compares returning sites' data with what they described first; reports each change once, a few at most."""

    def __init__(self, spec: RunSpec, events: Events) -> None:
        self._spec, self._events = spec, events
        self._told: dict[ClientId, list[str]] = {}

    def look(self, site: ClientId, description: Description) -> None:
        """A site with other data goes on, and the operator hears of it; late joiners are not in the specification."""
        then, now = self._spec.data.get(site, ""), description.data
        told = self._told.setdefault(site, [])
        if then and now and now not in (then, *told) and len(told) < MOST_TOLD:
            told.append(now)
            log.warning(f"a site {OTHER_DATA}", site=site)
            self._events.add(f"{site} {OTHER_DATA}", "warning")
