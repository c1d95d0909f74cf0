"""A site's policy in plain words: what may leave this site, and what may not."""

from __future__ import annotations

from collections.abc import Iterator

from pfl_client.policy.rules import Joining, Policy

_FIELDS = {
    "sizes": "heights and widths of pictures",
    "ranges": "the smallest and the largest value",
    "sums": "sums for scaling",
    "words": "the list of words",
    "columns": "names of columns",
    "categories": "categories",
    "fingerprint": "a keyed hash of the data",
    "warnings": "what is odd in them",
}
_NAMES = {"yes": "class names", "hashed": "class names as hashes", "no": ""}
_COUNTS = {"exact": "numbers of samples", "rounded": "numbers of samples, rounded up", "none": ""}


def tell(policy: Policy) -> Iterator[str]:
    """A sentence for each question that people ask of a site."""
    yield f"it takes part in {_tell_runs(policy)}"
    yield f"of a run may leave: {_tell_updates(policy)}"
    told, kept = _tell_joining(policy.joining)
    yield f"said of the data when it joins: their kind, the shape of a sample{told}{kept}"
    yield f"said after each task: {_tell_metrics(policy)}"


def _tell_runs(policy: Policy) -> str:
    runs = policy.runs
    said = f"runs of {', '.join(runs.methods)}" if runs.methods else "runs of any method"
    if runs.smallest_cohort > 1:
        said += f", of {runs.smallest_cohort} sites or more in each round"
    if runs.sums == "robust":
        said += ", whose updates are put together by a robust rule"
    if runs.sums == "secure":
        said += ", in which nobody sees a single update: no coordinator of this release offers that"
    return said


def _tell_updates(policy: Policy) -> str:
    runs, uploads = policy.runs, policy.uploads
    limits = [
        f"at most {runs.rounds} updates" if runs.rounds else "an update a round",
        f"each of at most {uploads.largest}" if uploads.largest else "of any size",
        f"at most {uploads.per_day} a day" if uploads.per_day else "",
    ]
    return ", ".join(filter(None, limits)) + "; never a tensor that stays at the site"


def _tell_joining(rules: Joining) -> tuple[str, str]:
    told = [_NAMES[rules.class_names], _COUNTS[rules.counts]]
    told += [words for name, words in _FIELDS.items() if getattr(rules, name)]
    kept = ["class names"] if rules.class_names == "no" else []
    kept += ["numbers of samples"] if rules.counts == "none" else []
    kept += [words for name, words in _FIELDS.items() if not getattr(rules, name)]
    said = "".join(f", {words}" for words in told if words)
    return said, f"; not {', '.join(kept)}" if kept else ""


def _tell_metrics(policy: Policy) -> str:
    rules = policy.metrics
    told = ["accuracy and loss"] if rules.scores else []
    told += ["what the method measures of its training"] if rules.diagnostics else []
    return " and ".join(told) or "nothing"
