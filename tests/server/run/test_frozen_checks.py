"""Freezing that makes no sense for a method is refused before its run begins, and what stands still is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_common.errors import SettingError
from pfl_common.learning.partition import inside
from pfl_common.methods import fedavg
from pfl_common.spec.run import RunSpec
from pfl_server.run.frozen_checks import check_frozen_stays
from pfl_server.run.specification import freeze
from pfl_server.settings import ServerSettings
from tests.server.support.federation import DESCRIPTION

SITES = {"a": DESCRIPTION, "b": DESCRIPTION}


def pin(state: Path, *frozen: str, **words: object) -> RunSpec:
    """A run on two numbers and three features with a part of its network frozen."""
    given = {"method": "fedavg", "backbone": "tiny", "state": state, "freeze": frozen} | words
    return freeze(ServerSettings(**given), SITES, run="run-1")


def test_what_stands_still_is_said_and_pinned(tmp_path: Path) -> None:
    """Each name once, in order; a run that freezes nothing does not speak of it."""
    spec = pin(tmp_path, "head.bias", "encoder", "encoder")
    assert ("encoder", "head.bias") == spec.frozen
    assert "3 tensors" in spec.chosen["frozen"]
    assert spec == RunSpec.from_json(spec.to_json())
    assert {"sum.head.weight", "weight.head.weight"} == {
        entry.name for entry in spec.manifests["train/train/up"]
    }
    assert '"frozen"' not in pin(tmp_path).to_json()
    assert pin(tmp_path).manifests["init"] == spec.manifests["init"]


@pytest.mark.parametrize(
    ("method", "frozen", "settings"),
    [
        ("fedper", "encoder", {}),
        ("fedrep", "encoder", {}),
        ("lgfedavg", "head", {"pretrain_rounds": 1}),
    ],
)
def test_a_method_must_have_something_to_share(
    method: str, frozen: str, settings: dict[str, object], tmp_path: Path
) -> None:
    """Else each site would train alone, under another name; LG-FedAvg after its switch."""
    with pytest.raises(SettingError, match=f"leaves {method} nothing to share"):
        pin(tmp_path, frozen, method=method, set=settings)


def test_who_shares_nothing_may_freeze(tmp_path: Path) -> None:
    """Sites that train alone do so with a frozen encoder too."""
    assert ("encoder",) == pin(tmp_path, "encoder", method="local").frozen


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    """In the method's own names: DualFed has two heads, of which none is called head."""
    with pytest.raises(SettingError, match="'head'") as refused:
        pin(tmp_path, "head", method="dualfed")
    assert "head_g" in refused.value.expected
    assert "head_p" in refused.value.expected


def test_a_method_that_sends_what_is_frozen_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that lists its tensors in a way of its own, as one of another package might."""
    monkeypatch.setattr(fedavg.Client, "travels", lambda self, phase: inside(self, "encoder", "head"))
    with pytest.raises(SettingError, match=r"sends 'encoder\.1\.bias'"):
        pin(tmp_path, "encoder.1.bias")
    check_frozen_stays(pin(tmp_path))
