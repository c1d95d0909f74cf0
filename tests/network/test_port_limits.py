"""So many connections that all sites fit, and so few that files can still be opened."""

from __future__ import annotations

import pytest

from pfl_server.network.port_limits import FILES, PortLimits, share_out


@pytest.mark.parametrize("descriptors", [64, 256, 1024, 4096, 65_536, 1 << 20])
@pytest.mark.parametrize("sites", [1, 100, 1000, 20_000])
def test_files_have_their_share(descriptors: int, sites: int) -> None:
    """All ports full, and each caller with a file of its own open: the journal still opens."""
    limits = share_out(descriptors, sites)
    assert min(limits.sites, limits.enrolling, limits.readers) >= 1
    if descriptors > FILES + 4:
        assert 2 * limits.sites + limits.enrolling + limits.readers + FILES <= descriptors


@pytest.mark.parametrize(("descriptors", "sites"), [(4096, 1000), (65_536, 1000), (1 << 20, 20_000)])
def test_all_sites_fit(descriptors: int, sites: int) -> None:
    """A thousand honest ones with the least that systems give to a service, and more with more."""
    assert share_out(descriptors, sites).sites > 1.5 * sites


def test_a_thousand_that_come_later_fit() -> None:
    """A coordinator that was started for two sites is invited others while it runs."""
    assert PortLimits() == share_out(1 << 20, 2)
    assert PortLimits.sites > 1000
