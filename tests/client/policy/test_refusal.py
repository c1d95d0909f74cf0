"""What a refusal by the policy tells the site's people and what it tells the coordinator."""

from __future__ import annotations

from pathlib import Path

from pfl_client.policy.refusal import Forbidden
from pfl_client.policy.rules import Policy


def test_people_read_the_rule_and_its_file_the_coordinator_the_rule_alone() -> None:
    """No value, no limit and no path goes out."""
    policy = Policy(file=Path("/etc/pfl/policy.toml"))
    error = Forbidden(policy, "uploads.largest", "the update has 900 bytes", expected="at most 500")
    assert ("policy", "this site's policy: uploads.largest") == (error.reason, error.told)
    for words in ("uploads.largest", "/etc/pfl/policy.toml", "900", "500"):
        assert words in str(error)
