"""The communication that DualFed's paper counts until a target, worked again by the product from what it pins."""

from __future__ import annotations

import dataclasses

import pytest

from pfl_common import methods
from pfl_common.spec.run import Json, RunSpec
from pfl_deploy.report.sources.traffic import count_content
from pfl_server.method_help import costs
from pfl_server.run.kept_figures import Network

ENCODER, PROJECTOR = 11_176_512, 264_448
NORMS = 9_600 + 1_536
MIB = 1 << 20
PACS, DOMAINNET, OFFICE_HOME = 7, 10, 65


def head(classes: int) -> int:
    """512 features to so many classes."""
    return 513 * classes


def count(name: str, classes: int, settings: dict[str, Json], *, projector: bool) -> float:
    """Megabytes that a site takes and gives in one round, as a report counts them."""
    network = Network("resnet18", classes=classes)
    method = methods.load(name)
    spec = costs.describe(method, network, settings)
    spec = dataclasses.replace(spec, model=dataclasses.replace(spec.model, encoder_projector=projector))
    pinned: RunSpec = dataclasses.replace(spec, manifests=costs.pin(method, spec))
    phase = costs.usual_phase(method, spec)
    crossed = count_content(pinned, phase, charge=methods.count_charged(pinned))
    return crossed.total / MIB


@pytest.mark.parametrize(
    ("name", "classes", "rounds", "numbers"),
    [
        ("fedavg", PACS, 22, ENCODER + PROJECTOR + head(PACS)),
        ("fedper", DOMAINNET, 19, ENCODER + PROJECTOR),
        ("fedbn", OFFICE_HOME, 24, ENCODER + PROJECTOR + head(OFFICE_HOME) - NORMS),
        ("dualfed", PACS, 7, ENCODER + PROJECTOR + head(PACS)),
        ("dualfed", OFFICE_HOME, 14, ENCODER + PROJECTOR + head(OFFICE_HOME)),
    ],
)
def test_cells_of_the_published_table(name: str, classes: int, rounds: int, numbers: int) -> None:
    """Rounds times two ways times four bytes times what the paper says is sent; without batch counters."""
    settings: dict[str, Json] = {"paper_accounting": True} if name == "dualfed" else {}
    settings |= {} if name == "fedbn" else {"bn_policy": "local_stats"}
    found = rounds * count(name, classes, settings, projector=name != "dualfed")
    # Weights of sums are a hundred numbers of eight bytes.
    assert rounds * 2 * 4 * numbers / MIB == pytest.approx(found, abs=rounds * 0.002)


def test_what_is_really_sent_is_less() -> None:
    """Without the projector that never leaves: 2.3 % less."""
    charged, sent = (
        count("dualfed", PACS, {"paper_accounting": word}, projector=False) for word in (True, False)
    )
    assert 1 - 0.0231 == pytest.approx(sent / charged, abs=0.0002)
