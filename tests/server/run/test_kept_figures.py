"""The figures that come with the product: of every method, on a small network and on a usual one."""

from __future__ import annotations

import pytest

from pfl_common import methods
from pfl_server.run.kept_figures import NETWORKS, SAMPLES, Figures, read_kept


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.backbone)
def test_every_method_has_figures(network: object) -> None:
    """Bytes of a model are those of the network, whichever method; all hold at least model and gradients."""
    rows = read_kept()[network.words]
    assert set(methods.names()) == rows.keys()
    assert 1 == len({figures.model for figures in rows.values()})
    assert all(2 < figures.sets < 12 for figures in rows.values())


def test_what_follows_from_figures() -> None:
    """Two networks in memory; a product for each sample and what it passes through."""
    found = Figures(down=1, up=1, kept=0, model=100, held=200, peak=300, products=SAMPLES * 7)
    assert (2.0, 7.0) == (found.sets, found.products_per_sample)
