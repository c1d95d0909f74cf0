"""Stand-ins for fonts that need not be installed where tests run."""

from __future__ import annotations

import dataclasses

import pytest

from pfl_deploy.datasets import fonts
from pfl_deploy.datasets.sources import Stock


@pytest.fixture(scope="session")
def standing_in(tmp_path_factory):
    """A stock whose font folder has a matplotlib face under every name that the domains ask for."""
    folder = tmp_path_factory.mktemp("fonts")
    faces = fonts.find_faces([*fonts.SYNTH.train, *fonts.SYNTH.shifted], [])
    for cast in (fonts.STREET, fonts.HAND):
        for side, own in ((cast.train, faces[:3]), (cast.shifted, faces[3:6])):
            names = [name for family in side for name in family.files]
            for number, name in enumerate(names):
                (folder / name).symlink_to(own[number % len(own)])
    return dataclasses.replace(Stock(), fonts=(folder,))
