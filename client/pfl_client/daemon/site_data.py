"""The site's data as the daemon knows them: described for the coordinator, compared with what a run was begun with."""

from __future__ import annotations

from dataclasses import replace

import structlog

from pfl_client.daemon.retry import Retry
from pfl_client.envelopes import Envelopes
from pfl_client.trainer_process.api import Bench, DataFolder
from pfl_common.spec.run import Description, RunSpec

log = structlog.get_logger("pfl.site")


class SiteData:
    """The data folder of this site, which only its trainer reads."""

    def __init__(self, folder: DataFolder, description: Description | None = None) -> None:
        """`description` is given if the folder was looked at before."""
        self.folder, self._description = folder, description
        self._fingerprint = ""

    async def describe(self, bench: Bench, envelopes: Envelopes, retry: Retry) -> Description:
        """The description of the data that others may know; warnings go to the log first."""
        description = self._description
        if description is None:
            description = await retry.with_trainer(lambda: bench.describe(self.folder))
        for warning in description.warnings:
            log.warning("data", warning=warning)
        # As it comes from the trainer it would tell anybody with the same files that this site has them.
        self._fingerprint = envelopes.veil(description.data)
        return replace(description, data=self._fingerprint)

    async def sum_up(self, bench: Bench, envelopes: Envelopes, retry: Retry) -> Description:
        """The same with sums over the training pictures, which the coordinator asks for."""
        log.info("the run asks for sums over the training pictures: reading them", site=self.folder.site)
        self.folder, self._description = replace(self.folder, sums=True), None
        return await self.describe(bench, envelopes, retry)

    def compare(self, spec: RunSpec) -> None:
        """Warn if the data differ from those the run was begun with: a disk may not be mounted, for example."""
        then, now = spec.data.get(self.folder.site, ""), self._fingerprint
        if then and now and then != now:
            log.warning(
                "the data are others than those the run was begun with; it goes on with these", run=spec.id
            )
