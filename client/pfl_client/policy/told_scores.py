"""What of a site's measurements is told to the coordinator."""

from __future__ import annotations

from typing import NamedTuple

from pfl_client.policy.rules import Policy
from pfl_client.policy.told_at_joining import blur
from pfl_common.evaluation import TOLD, vector
from pfl_common.spec.messages import Scores


class Told(NamedTuple):
    """A report as it may leave, and what of it was taken out or changed."""

    scores: Scores
    changed: tuple[str, ...]


def trim(report: Scores, policy: Policy) -> Told:
    """Take out of a report what the policy withholds; counts are changed as those of joining are."""
    rules, counts = policy.metrics, policy.joining.counts
    kept, changed = dict(report), dict[str, None]()
    for name, values in report.items():
        diagnostic = name.startswith(TOLD)
        if not (rules.diagnostics if diagnostic else rules.scores):
            del kept[name]
            changed["diagnostics" if diagnostic else "scores"] = None
        elif not diagnostic and counts != "exact":
            correct, samples = blur(values, counts)
            kept[name] = vector(correct, samples, values[4])
            changed["counts"] = None
    return Told(kept, tuple(changed))
