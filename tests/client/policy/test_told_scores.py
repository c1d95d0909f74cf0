"""What of a report leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_client.policy.told_scores import trim
from pfl_common.evaluation import check, vector
from pfl_common.spec.messages import Scores
from tests.client.policy.policies import write_policy

REPORT: Scores = {"pre/test/combined": vector(17, 34, 0.5), "told/loss": [2.0, 4.0, 1.0]}
SCORES, DIAGNOSTICS = ({name: REPORT[name]} for name in REPORT)
RULES: dict[str, tuple[str, Scores, tuple[str, ...]]] = {
    "metrics.scores": ("[metrics]\nscores = false", DIAGNOSTICS, ("scores",)),
    "metrics.diagnostics": ("[metrics]\ndiagnostics = false", SCORES, ("diagnostics",)),
    "joining.counts": (
        '[joining]\ncounts = "rounded"',
        {**REPORT, "pre/test/combined": vector(20, 40, 0.5)},
        ("counts",),
    ),
    "none": ("", REPORT, ()),
}
"""By rule: a policy, what is left of the report, and what is said of the change."""


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_takes_out_its_part(tmp_path: Path, rule: str) -> None:
    """What is left is a report that a coordinator takes."""
    text, left, changed = RULES[rule]
    assert (left, changed) == trim(REPORT, write_policy(tmp_path, text))
    check(left)
