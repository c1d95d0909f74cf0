"""A policy in plain words."""

from __future__ import annotations

from pathlib import Path

from pfl_client.policy.explanation import tell
from pfl_client.policy.rules import Policy
from tests.client.policy.policies import write_policy


def test_without_rules_everything_may_leave_but_personal_tensors() -> None:
    """Four sentences, none of which names a limit."""
    runs, updates, joining, metrics = tell(Policy())
    assert "it takes part in runs of any method" == runs
    assert "never a tensor that stays at the site" in updates
    assert "class names, numbers of samples" in joining
    assert "not " not in joining
    assert "accuracy and loss and what the method measures of its training" in metrics


def test_limits_and_what_is_withheld_are_named(tmp_path: Path) -> None:
    """Each with the word that stands in the file."""
    policy = write_policy(
        tmp_path,
        '[runs]\nmethods = ["dualfed"]\nsmallest_cohort = 4\nrounds = 20\nsums = "robust"\n'
        '[uploads]\nlargest = "5M"\nper_day = "80M"\n[joining]\nclass_names = "no"\ncounts = "rounded"\n'
        "sizes = false\n[metrics]\nscores = false\ndiagnostics = false",
    )
    runs, updates, joining, metrics = tell(policy)
    assert "runs of dualfed, of 4 sites or more in each round" in runs
    assert "at most 20 updates, each of at most 5M, at most 80M a day" in updates
    assert "numbers of samples, rounded up" in joining
    assert joining.endswith("; not class names, heights and widths of pictures")
    assert metrics.endswith("nothing")
