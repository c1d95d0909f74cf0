"""Finds the finished plain runs (`local`, `fedavg`) in the same state folder that a report sets beside its run."""

from __future__ import annotations

from pathlib import Path

from pfl_common.spec.run import RunSpec
from pfl_deploy.report.find_run import JOURNAL, Place
from pfl_server.store.baselines import read_finished
from pfl_server.store.comparable import Subject, differ_in_data, find_differences

PLAIN = ("local", "fedavg")
"""Methods every other one is compared with."""


def find_plain_runs(place: Place, own: Subject) -> dict[str, Path]:
    """A finished run of each plain method in the same state folder and over the same data: the newest of those that
    differ in nothing but the method, else the newest. None is taken whose data differ.
    """
    best: dict[str, tuple[bool, float, Path]] = {}
    for file in sorted(place.run.parent.glob(f"*/{JOURNAL}")):
        other = read_finished(file) if file.parent.name != place.run.name else None
        if other is None or other.subject.spec.method not in PLAIN or not _alike(other.subject, own):
            continue
        method = other.subject.spec.method
        found = (find_differences(own, other.subject).comparable, other.ended, file.parent)
        best[method] = max(best.get(method, found), found)
    return {method: best[method][2] for method in PLAIN if method in best}


def is_of_same_sites(other: RunSpec, spec: RunSpec) -> bool:
    """Whether two runs have the same sites and their data the same shape and classes."""
    same = (other.model.shape, other.model.classes, sorted(other.roster))
    return same == (spec.model.shape, spec.model.classes, sorted(spec.roster))


def _alike(other: Subject, own: Subject) -> bool:
    return is_of_same_sites(other.spec, own.spec) and not differ_in_data(own, other)
