"""The error of a site whose policy forbids what a coordinator asks."""

from __future__ import annotations

from pfl_client.policy.rules import Policy
from pfl_client.trainer_process.task_errors import Declined


class Forbidden(Declined):
    """The site's policy forbids it. People of the site read the rule and its file, the coordinator the rule's name."""

    reason = "policy"

    def __init__(self, policy: Policy, rule: str, seen: str, *, expected: str) -> None:
        self.rule = rule
        self.told = f"this site's policy: {rule}"
        """For the coordinator: no more than the rule's name."""
        super().__init__(
            f"{seen}: forbidden by {rule} in {policy.place}",
            expected=expected,
            advice=f"if this site may do it, change {rule} in {policy.place} and start pfl-client again",
        )
