"""The rules of a policy and their defaults."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pfl_client.policy.rules import SECTIONS, Joining, Policy, Runs, Uploads
from tests.client.policy import test_gate, test_run_rules, test_told_at_joining, test_told_scores


def test_without_a_file_everything_is_as_it_always_was() -> None:
    """No rule is changed, and nothing is hidden."""
    assert ({}, False, "no policy.toml") == (Policy().changed(), Policy().joining.hides, Policy().place)


def test_what_is_changed_is_listed_by_section_and_rule() -> None:
    """Lists as lists: the site's list of what left holds them as JSON."""
    policy = Policy(Runs(methods=("fedavg",), rounds=3), joining=Joining(counts="rounded"))
    assert {"runs.methods": ["fedavg"], "runs.rounds": 3, "joining.counts": "rounded"} == policy.changed()
    assert policy.joining.hides


def test_sizes_are_read_as_people_write_them() -> None:
    """2K are 2048 bytes; nothing is no limit."""
    assert (2048, 0) == (Uploads(largest="2K").largest_bytes, Uploads().per_day_bytes)


@pytest.mark.parametrize("section", SECTIONS)
def test_each_rule_has_a_test_of_its_own(section: str) -> None:
    """A table of cases, by section.rule, in the tests of the module that keeps the rule."""
    tables = (test_run_rules.RULES, test_gate.RULES, test_told_at_joining.RULES, test_told_scores.RULES)
    covered = {name for table in tables for name in table}
    assert set() == {f"{section}.{one.name}" for one in fields(SECTIONS[section])} - covered
