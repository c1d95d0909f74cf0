"""What a site says of its data's fingerprint: keyed, by a key that stays at the site and outlives its other keys."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

from pfl_client.envelopes.sealed import SealedEnvelopes
from pfl_client.process import own_secret
from pfl_client.trainer_process.api import DataFolder
from pfl_common.spec.run import Description
from pfl_deploy.simulation.loopback import OpenEnvelopes
from tests.client.support.scripted_site import DESCRIPTION, FINISHED, Line, Trainer, put_together
from tests.common.sealing.members import Members

PLAIN = "0123456789abcdef" * 4


def test_between_machines_only_the_keyed_form_is_said(tmp_path: Path) -> None:
    """One site always says the same of the same data; another one says another thing; without a key nothing is said."""
    keyring = Members(tmp_path).keyring("hospital-a")
    here, there = (SealedEnvelopes(keyring, secret=bytes([n]) * 32) for n in (1, 2))
    assert here.veil(PLAIN) == here.veil(PLAIN)
    assert 3 == len({here.veil(PLAIN), there.veil(PLAIN), PLAIN})
    assert 64 == len(here.veil(PLAIN))
    assert here.veil(PLAIN) != here.veil(PLAIN[::-1])
    assert "" == here.veil("") == SealedEnvelopes(keyring).veil(PLAIN)


def test_the_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    """A site that starts again says the same of the same data."""
    file = tmp_path / "data.secret"
    first = own_secret(file)
    assert 32 == len(first)
    assert first == own_secret(file)
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert first != own_secret(tmp_path / "other.secret")


class Veiled(OpenEnvelopes):
    """Envelopes that key a fingerprint in a way one can see."""

    def veil(self, fingerprint: str) -> str:
        """Not what it was given."""
        return f"veiled {fingerprint}"


async def test_the_daemon_says_the_veiled_form(tmp_path: Path) -> None:
    """Whatever the trainer saw, what joins is what the envelopes made of it."""
    line = Line([FINISHED])
    daemon = put_together(line, Described(), tmp_path)
    daemon._envelopes = Veiled()
    await daemon.run()
    name, said = line.said[0]
    assert ("join", replace(DESCRIPTION, data=f"veiled {PLAIN}")) == (name, said)


class Described(Trainer):
    """A trainer that has computed a fingerprint."""

    async def describe(self, folder: DataFolder) -> Description:
        """As ever, and the fingerprint."""
        return replace(await super().describe(folder), data=PLAIN)
