"""What the doctor says of a site's policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_common.errors import SettingError
from pfl_deploy.doctor.examination import Asked, examine
from pfl_deploy.doctor.policy import examine_policy


def test_it_says_where_the_policy_stands_and_what_may_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a file the defaults; the environment's file before the folders'; one that was named before all."""
    monkeypatch.delenv("PFL_POLICY", raising=False)
    assert "every rule is at its default" in next(examine_policy("site a", tmp_path)).words
    (tmp_path / "policy.toml").write_text("[runs]\nrounds = 7")
    place, _, updates, *_ = examine_policy("site a", tmp_path)
    assert ("site a, policy", str(tmp_path / "policy.toml")) == (place.about, place.words)
    assert "at most 7 updates" in updates.words
    (tmp_path / "other.toml").write_text("")
    monkeypatch.setenv("PFL_POLICY", str(tmp_path / "other.toml"))
    assert str(tmp_path / "other.toml") == next(examine_policy("site a", tmp_path)).words
    named = examine_policy("site a", named=tmp_path / "policy.toml")
    assert str(tmp_path / "policy.toml") == next(named).words


def test_a_policy_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """With it the site would not start; also where the file itself is shown to the doctor."""
    file = tmp_path / "mine.toml"
    file.write_text("[runs]\nround = 7")
    with pytest.raises(SettingError, match="did you mean"):
        list(examine_policy("site a", named=file))
    first = next(iter(examine(Asked(thing=file))))
    assert ("error", 2) == (first.level, first.code)
    assert "no setting 'round'" in first.words
