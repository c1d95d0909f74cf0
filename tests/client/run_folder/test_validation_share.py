"""A run keeps the validation share it was begun with at a site."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from pfl_client.run_folder.validation_share import FILE, settle_share
from tests.client.support.scripted_site import pin

SPEC = replace(pin(), validation=0.15)


@pytest.mark.parametrize(("asked", "share"), [(None, 0.15), (0.0, 0.0), (0.3, 0.3)])
def test_the_site_decides_and_the_run_where_it_says_nothing(
    tmp_path: Path, asked: float | None, share: float
) -> None:
    """Once it has begun, another share waits for the next run, and that is said."""
    assert share == settle_share(tmp_path, SPEC, asked, begun=False)
    with structlog.testing.capture_logs() as logged:
        assert share == settle_share(tmp_path, SPEC, 0.5, begun=True)
    assert [(share, 0.5)] == [(line["share"], line["asked"]) for line in logged]


def test_a_run_that_an_older_release_began_holds_nothing_back(tmp_path: Path) -> None:
    """Whatever the site asks for since: its samples have been trained on."""
    assert 0.0 == settle_share(tmp_path, SPEC, 0.3, begun=True)
    assert "0.0" == (tmp_path / FILE).read_text()
