"""A coordinator with true certificates that says what none of ours would: it costs a site nothing but words."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pfl_client.connection.link import NotAdmitted
from pfl_client.daemon import retry
from pfl_client.daemon.loop import Daemon
from pfl_client.envelopes.sealed import SealedEnvelopes
from pfl_client.trainer_process.api import DataFolder, Done, Job, Progress
from pfl_common.errors import Distrusted, PflError
from pfl_common.spec.messages import Blob, Gathering, Joined, Over
from pfl_common.spec.run import Description
from tests.client.data.test_images import draw
from tests.client.support.scripted_site import DESCRIPTION, pin
from tests.common.support.terminal_attacks import ATTACKS, list_obeyed
from tests.network.federation import Federation
from tests.network.test_admission import invite

SITE = "hospital_a"
HOSTILE = "".join(ATTACKS.values()).replace("\ud800", "")


class Idle:
    """A Bench that describes, and must not be asked for more."""

    async def describe(self, folder: DataFolder) -> Description:
        return DESCRIPTION

    async def open(self, folder: DataFolder, spec: str, init: Path) -> None:
        raise AssertionError("the trainer was asked to open a run")

    async def work(self, job: Job, progress: Progress) -> Done:
        raise AssertionError("the trainer was given work")

    async def close(self) -> None:
        """Nothing to end."""


async def take_part(federation: Federation, state: Path, joined: object) -> None:
    """A site whose coordinator answers its Join so."""

    async def join(site: str, description: Description) -> object:
        return joined() if callable(joined) else joined

    federation.desk.join = join
    async with federation.link(SITE) as link:
        envelopes = SealedEnvelopes(federation.keyring(SITE), secret=b"0" * 32)
        site = Daemon(DataFolder(state, SITE), link=link, bench=Idle(), envelopes=envelopes, state=state)
        await asyncio.wait_for(site.run(), 20)


def spec(**fields: object) -> str:
    """An honest run's specification, but for these fields."""
    return json.dumps({**json.loads(pin().to_json()), **fields})


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        spec(lease_seconds=-1),
        spec(threads=100_000),
        spec(rounds=10**12),
        spec(settings={"batch": 10**12}),
        spec(model={"backbone": "mlp", "shape": [3, 60_000, 60_000], "classes": ["a", "b"]}),
        spec(id="../../../escaped"),
        spec(manifests={}),
    ],
    ids=lambda text: text[:30],
)
async def test_a_specification_that_cannot_be_meant(
    federation: Federation, tmp_path: Path, text: str
) -> None:
    """Refused in words before a vault, a folder of the run or a trainer's run is made."""
    state = tmp_path / "site"
    with pytest.raises(Distrusted, match="the coordinator sends"):
        await take_part(federation, state, Joined(text, Blob("ab" * 32, 9)))
    assert not (state / "runs").exists()


async def test_a_first_model_that_would_fill_the_disk(federation: Federation, tmp_path: Path) -> None:
    """A size beyond the run's own tensors is refused by what was announced: no room is waited for, no byte fetched."""
    honest, state = pin().to_json(), tmp_path / "site"
    card = federation.authority.coordinator_card(now=federation.now)
    joined = Joined(honest, Blob("ab" * 32, 1 << 50), card=card)
    with pytest.raises(PflError):
        await take_part(federation, state, joined)
    assert [] == [*state.glob("runs/*/downloads/*")]


@pytest.mark.parametrize("answer", [None, Gathering(("why",)), Gathering((), sums=True)], ids=str)
async def test_nothing_again_and_again(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    """Answers that come at once and bring nothing: after some of them the site pauses, longer each time."""
    pauses, calls = [], 0
    slept = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await slept(0)

    def again() -> object:
        nonlocal calls
        calls += 1
        return answer if calls < 40 else Joined("the end", Blob("ab" * 32, 9))

    monkeypatch.setattr(retry.asyncio, "sleep", sleep)
    with pytest.raises(Distrusted):
        await take_part(federation, tmp_path / "site", again)
    waited = [seconds for seconds in pauses if seconds >= retry.FIRST_PAUSE]
    assert len(waited) >= 40 - retry.MOST_QUICK - 3
    assert sum(waited) > 100


@pytest.mark.parametrize(
    "description",
    [
        replace(DESCRIPTION, classes=("a", "b\x1b[2J")),
        replace(DESCRIPTION, classes=("a", "safe\u202egpj")),
        replace(DESCRIPTION, classes=("a", "a\u200b")),
    ],
    ids=["control", "direction", "width"],
)
async def test_a_site_with_names_that_terminals_obey(
    federation: Federation, description: Description
) -> None:
    """The other way round: such a site is not taken, with a code of its own and words that can be shown."""
    async with federation.link(SITE) as link:
        with pytest.raises(NotAdmitted) as refused:
            await link.join(description)
    assert ("unprintable", []) == (refused.value.code, list_obeyed(str(refused.value)))
    assert {} == federation.desk.joined


PROGRAM = "from pfl_client.cli import main; main()"


@pytest.mark.parametrize("style", ["text", "json"])
async def test_a_real_site_shows_a_coordinators_words(
    federation: Federation, tmp_path: Path, style: str
) -> None:
    """Hindrances, then a specification that ends it: exit code 2, no traceback, and nothing that a terminal obeys."""
    for label in ("cat", "dog"):
        for n in range(2):
            draw(tmp_path / "data" / "train" / label / f"{n}.png", colour=9 * n)
    answers = [
        Gathering((HOSTILE,)),
        Gathering((HOSTILE + "2",)),
        Joined(spec(method=HOSTILE), Blob("ab" * 32, 9)),
    ]

    async def join(site: str, description: Description) -> object:
        return answers.pop(0)

    federation.desk.join = join
    words = ["--data", tmp_path / "data", "--join", invite(federation, SITE), "--state", tmp_path / "state"]
    site = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, *map(str, words)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    _, stderr = await asyncio.wait_for(site.communicate(), 60)
    said = stderr.decode(errors="surrogateescape")
    assert 2 == site.returncode
    assert [] == list_obeyed(said)
    assert "Traceback" not in said
    assert "is not to be trusted" in " ".join(said.split())
    assert 2 <= said.count("gpj.exe")
    assert not [*(tmp_path / "state").glob("*/*/runs")]


async def test_a_run_that_ends_in_words(federation: Federation) -> None:
    """How a run ended is told in one line without signs that are obeyed."""
    async with federation.link(SITE) as link:
        federation.desk.assign(SITE, Over("failed", HOSTILE))
        over = await link.next_task(())
    assert isinstance(over, Over)
    assert ([], 1) == (list_obeyed(over.words), len(over.words.splitlines()))
