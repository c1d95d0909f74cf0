"""The one place in a site's daemon through which everything goes that its policy has a rule for.

What is withheld, changed or refused is listed in `audit.jsonl` beside what left.
"""

from __future__ import annotations

import hashlib

from pfl_client.policy import told_at_joining, told_scores
from pfl_client.policy.refusal import Forbidden
from pfl_client.policy.rules import Policy
from pfl_client.policy.run_rules import check_run, smallest_update
from pfl_client.run_folder.audit import POLICY, REFUSED, WITHHELD, Audit
from pfl_client.trainer_process.task_errors import PersonalTensor
from pfl_common.errors import UserError
from pfl_common.spec.messages import Offer, Scores
from pfl_common.spec.run import Description, Kind, RunSpec, Task


class Gate:
    """A site's policy in force."""

    def __init__(self, policy: Policy, audit: Audit) -> None:
        self._policy, self._audit = policy, audit
        if policy.file is not None:
            audit.note_once(POLICY, policy.sha256, sha256=policy.sha256, rules=policy.changed())

    @property
    def hides_counts(self) -> bool:
        """Whether numbers of samples are withheld: progress of training is one too."""
        return self._policy.joining.counts != "exact"

    def describe(self, description: Description) -> Description:
        """The description of the data as others may know it."""
        told, changed = told_at_joining.trim(description, self._policy)
        if changed:
            digest = hashlib.sha256(told.to_json().encode()).hexdigest()
            self._audit.note_once(WITHHELD, digest, message="joining", what=[*changed])
        return told

    def enter(self, spec: RunSpec) -> None:
        """Refuse a run that the policy forbids."""
        try:
            check_run(self._policy, spec)
        except Forbidden as forbidden:
            self._list(forbidden, spec.id, "")
            raise

    def begin(self, spec: RunSpec, task: Task) -> None:
        """Refuse a task whose update may not leave, before any time is spent on it."""
        if task.kind is not Kind.TRAIN or task.drop:
            return
        try:
            self._check_number(spec, task.key)
            self._check_day(smallest_update(spec))
        except Forbidden as forbidden:
            self._list(forbidden, spec.id, task.key)
            raise

    def release(self, offer: Offer) -> None:
        """Refuse an update that is about to leave, as it is sealed now."""
        try:
            self._check_size(offer.blob.size)
            self._check_day(offer.blob.size, but=offer.blob.digest)
        except Forbidden as forbidden:
            self._list(forbidden, offer.header.run, offer.key)
            raise

    def tell(self, run: str, key: str, report: Scores) -> Scores:
        """The part of a report that may leave."""
        told, changed = told_scores.trim(report, self._policy)
        if changed:
            self._audit.note_once(
                WITHHELD, f"{run}/{key}", run=run, task=key, message="scores", what=[*changed]
            )
        return told

    def explain(self, error: Exception) -> str:
        """Why a task is not done, in words for the coordinator."""
        if isinstance(error, Forbidden | PersonalTensor):
            return error.told
        if self._policy.joining.hides:
            # Words about data may name a class or a number of samples.
            return ""
        # `seen` alone: what to do about it may name a file of the site, and that belongs on its own terminal only.
        return error.seen if isinstance(error, UserError) else str(error)

    def _check_number(self, spec: RunSpec, key: str) -> None:
        most = self._policy.runs.rounds
        sent = self._audit.tasks_of(spec.id) if most else frozenset()
        if most and key not in sent and len(sent) >= most:
            raise Forbidden(
                self._policy,
                "runs.rounds",
                f"{len(sent)} updates have left for the run {spec.id}",
                expected=f"at most {most}",
            )

    def _check_size(self, size: int) -> None:
        limit = self._policy.uploads.largest_bytes
        if limit and size > limit:
            raise Forbidden(
                self._policy,
                "uploads.largest",
                f"the update has {size:,} bytes",
                expected=f"at most {limit:,}",
            )

    def _check_day(self, size: int, *, but: str = "") -> None:
        limit = self._policy.uploads.per_day_bytes
        sent = self._audit.bytes_of_a_day(but=but) if limit else 0
        if limit and sent + size > limit:
            raise Forbidden(
                self._policy,
                "uploads.per_day",
                f"{sent:,} bytes of updates have left within 24 hours, and {size:,} more would",
                expected=f"at most {limit:,}",
            )

    def _list(self, forbidden: Forbidden, run: str, key: str) -> None:
        self._audit.note_once(
            REFUSED, f"{run}/{key}/{forbidden.rule}", run=run, task=key, rule=forbidden.rule
        )
