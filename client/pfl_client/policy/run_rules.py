"""Whether a run, as its specification pins it, is one that the site's policy allows; decided before it is entered."""

from __future__ import annotations

import math

from pfl_client.policy.refusal import Forbidden
from pfl_client.policy.rules import Policy
from pfl_common.spec.manifest import Manifest
from pfl_common.spec.memo import remembered
from pfl_common.spec.run import RunSpec

WEIGHS_NOTHING = frozenset({"fedamp", "fedfomo", "local"})
"""Methods whose updates have no weight: how much a model counts follows from the models alone."""
SHOWS_COUNT = frozenset({"fedcac"})
"""Methods whose updates show the number of samples, whatever their settings."""
SHOWS_CLASSES = frozenset({"fedproto"})
"""Methods whose updates tell which classes of the run a site has: classes it lacks weigh nothing."""


def check_run(policy: Policy, spec: RunSpec) -> None:
    """Refuse a run that the policy forbids, by the first rule that does."""
    _check_method(policy, spec)
    _check_sums(policy, spec)
    _check_cohort(policy, spec)
    _check_updates(policy, spec)
    _check_told(policy, spec)


def _check_method(policy: Policy, spec: RunSpec) -> None:
    allowed = policy.runs.methods
    if allowed and spec.method not in allowed:
        raise Forbidden(
            policy,
            "runs.methods",
            f"the run's method is {spec.method}",
            expected=f"one of {', '.join(allowed)}",
        )


def _check_sums(policy: Policy, spec: RunSpec) -> None:
    wanted = policy.runs.sums
    if wanted == "secure":
        raise Forbidden(
            policy,
            "runs.sums",
            "secure sums are not offered by this coordinator",
            expected="a run in which nobody sees a single update",
        )
    if wanted == "robust" and spec.robust == "none":
        raise Forbidden(
            policy,
            "runs.sums",
            "the run sums updates without a robust rule",
            expected="a run that was started with --robust and one of its rules",
        )


def _check_cohort(policy: Policy, spec: RunSpec) -> None:
    least, asked = policy.runs.smallest_cohort, fewest_asked(spec)
    if asked < least:
        raise Forbidden(
            policy,
            "runs.smallest_cohort",
            f"the run has {len(spec.roster)} sites and asks as few as {asked} in a round",
            expected=f"{least} or more",
        )


def fewest_asked(spec: RunSpec) -> int:
    """The fewest sites that a round of this run asks."""
    rule, sites = spec.participation, len(spec.roster)
    if rule.fixed:
        return len(set(rule.fixed) & set(spec.roster))
    # As the coordinator rounds; the small term keeps floor from losing a site to rounding.
    return max(1, math.floor(rule.low * sites + 1e-9)) if sites else 0


def smallest_update(spec: RunSpec) -> int:
    """Bytes of the smallest update that the run's manifests pin for training, before it is sealed."""
    keys = (key for key in spec.manifests if key.startswith("train/") and key.endswith("/up"))
    return min((_smallest_size(spec.manifests[key]) for key in keys), default=0)


@remembered
def _smallest_size(manifest: Manifest) -> int:
    return sum(entry.nbytes for entry in manifest if not entry.group)


def _check_updates(policy: Policy, spec: RunSpec) -> None:
    limit, least = policy.uploads.largest_bytes, smallest_update(spec)
    if limit and least > limit:
        raise Forbidden(
            policy,
            "uploads.largest",
            f"an update of the run has {least:,} bytes",
            expected=f"at most {limit:,}",
        )


def _check_told(policy: Policy, spec: RunSpec) -> None:
    """What is withheld at joining must not be told by each update's weight."""
    if policy.joining.counts != "exact" and tells_count(spec):
        raise Forbidden(
            policy,
            "joining.counts",
            f"updates of this run ({spec.method}) tell the number of samples as their weight",
            expected="a run in which each site counts alike (--set aggregation=uniform), or another method",
        )
    if policy.joining.class_names == "no" and tells_classes(spec):
        raise Forbidden(
            policy,
            "joining.class_names",
            f"updates of this run ({spec.method}) tell which classes a site has",
            expected="another method",
        )


def tells_count(spec: RunSpec) -> bool:
    """Whether an update of this run holds the site's number of samples; of an unknown method it is assumed."""
    if spec.method in WEIGHS_NOTHING:
        return False
    settings = spec.settings
    if spec.method in SHOWS_COUNT or settings.get("calibrate") is True:
        return True
    if "proto_weight" in settings:
        return settings["proto_weight"] == "count"
    return settings.get("aggregation", "samples") == "samples"


def tells_classes(spec: RunSpec) -> bool:
    """Whether an update of this run holds which classes the site has."""
    return spec.method in SHOWS_CLASSES
