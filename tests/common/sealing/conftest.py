"""Genuine parcels for tests to spoil."""

from __future__ import annotations

import pytest

from tests.common.sealing.parcels import PLAIN, WAYS, Parcel, same


@pytest.fixture(scope="module", params=["up", "down"])
def parcel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parcel:
    """A genuine parcel of two whole frames and a short one, going either way."""
    send_it, receive = WAYS[request.param]
    made = send_it(PLAIN, tmp_path_factory.mktemp("parcel") / "sealed")
    assert same(PLAIN, receive(made.path, made.envelope))
    return made


@pytest.fixture(params=["up", "down"])
def way(request: pytest.FixtureRequest) -> str:
    """Either direction."""
    return request.param
