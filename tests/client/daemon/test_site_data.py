"""A site's data: looked at once, told veiled, and compared with those a run was begun with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pfl_client.daemon.retry import Retry
from pfl_client.daemon.site_data import SiteData
from pfl_client.daemon.status import Watch
from pfl_client.trainer_process.api import DataFolder
from pfl_common.spec.run import Description
from pfl_deploy.simulation.loopback import OpenEnvelopes
from tests.client.support.scripted_site import DESCRIPTION, SITE, Trainer, pin


class Veiling(OpenEnvelopes):
    """Turns a fingerprint round, so that it can be told from the plain one."""

    def veil(self, fingerprint: str) -> str:
        return fingerprint[::-1]


async def look(tmp_path: Path, known: Description | None = None) -> tuple[SiteData, Description, list[Any]]:
    """The data as they are told, and the lines of the log."""
    data = SiteData(DataFolder(tmp_path, SITE), known)
    with capture_logs() as said:
        told = await data.describe(Trainer(), Veiling(), Retry(Watch(SITE), tmp_path))
    return data, told, said


async def test_what_the_trainer_sees_is_told(tmp_path: Path) -> None:
    """With its warnings in the site's own log."""
    _, told, said = await look(tmp_path)
    assert (DESCRIPTION, ["something is odd"]) == (told, [line["warning"] for line in said])


async def test_a_folder_that_was_looked_at_before_is_not_read_again(tmp_path: Path) -> None:
    """Its fingerprint is veiled all the same."""
    known = replace(DESCRIPTION, data="abc", warnings=())
    _, told, said = await look(tmp_path, known)
    assert (replace(known, data="cba"), []) == (told, said)


@pytest.mark.parametrize(("then", "lines"), [("cba", 0), ("abc", 1), ("", 0)])
async def test_data_that_are_others_than_at_the_beginning(tmp_path: Path, then: str, lines: int) -> None:
    """A warning, if both are known; the veiled ones are compared."""
    data, _, _ = await look(tmp_path, replace(DESCRIPTION, data="abc"))
    with capture_logs() as said:
        data.compare(replace(pin(), data={SITE: then}))
    assert lines == len(said)
