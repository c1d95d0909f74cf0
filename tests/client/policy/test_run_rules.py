"""Which runs a policy lets a site enter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pfl_client.policy.refusal import Forbidden
from pfl_client.policy.run_rules import check_run, fewest_asked, smallest_update, tells_classes, tells_count
from pfl_common import methods
from pfl_common.app.config import dump
from pfl_common.errors import SettingError
from pfl_common.spec.run import Kind, RunSpec
from pfl_common.tensors import codec
from pfl_common.tensors.update import unflatten
from tests.client.policy.policies import UP, pin, write_policy
from tests.client.support.runs import Desk
from tests.client.trainer.test_session import open_bench

RULES = {
    "runs.methods": ("methods = ['fedper']", pin("fedper"), pin("fedavg")),
    "runs.sums": ("sums = 'robust'", replace(pin(), robust="krum"), pin()),
    "runs.smallest_cohort": ("smallest_cohort = 3", pin(sites=4, asks="0.75"), pin(sites=4, asks="0.5..1.0")),
}
"""By rule: a line below [runs], a run that keeps it, and one that breaks it."""


@pytest.mark.parametrize("rule", RULES)
def test_a_run_that_breaks_a_rule_is_refused_by_its_name(tmp_path: Path, rule: str) -> None:
    """And one that keeps it is entered."""
    line, kept, broken = RULES[rule]
    policy = write_policy(tmp_path, f"[runs]\n{line}")
    check_run(policy, kept)
    with pytest.raises(Forbidden) as error:
        check_run(policy, broken)
    assert (rule, f"this site's policy: {rule}") == (error.value.rule, error.value.told)


def test_a_robust_rule_is_read_by_its_name(tmp_path: Path) -> None:
    """`none` is no such rule; secure sums are offered by nobody yet."""
    policy = write_policy(tmp_path, "[runs]\nsums = 'robust'")
    check_run(policy, replace(pin(), robust="median"))
    with pytest.raises(Forbidden, match="without a robust rule"):
        check_run(policy, pin())
    with pytest.raises(Forbidden, match="not offered by this coordinator"):
        check_run(write_policy(tmp_path, "[runs]\nsums = 'secure'"), replace(pin(), robust="median"))


@pytest.mark.parametrize(
    ("asks", "fewest"), [("1.0", 10), ("0.29", 2), ("0.1..1.0", 1), ("site-1,site-2,x", 2)]
)
def test_the_fewest_sites_that_a_round_asks(asks: str, fewest: int) -> None:
    """As the coordinator draws them: 0.29 of 10 are 2, and a name that is not there is nobody."""
    assert fewest == fewest_asked(pin(sites=10, asks=asks))


def test_an_update_that_is_too_large_is_refused_before_it_is_trained(tmp_path: Path) -> None:
    """Ten numbers of 4 bytes and a weight of 8 are 48 bytes."""
    assert 48 == smallest_update(pin())
    check_run(write_policy(tmp_path, "[uploads]\nlargest = '48'"), pin())
    with pytest.raises(Forbidden, match=r"uploads\.largest"):
        check_run(write_policy(tmp_path, "[uploads]\nlargest = '47'"), pin())
    assert 0 == smallest_update(replace(pin(), manifests={UP.replace("train/up", "train/down"): ()}))


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("counts = 'rounded'", pin(aggregation="samples")),
        ("counts = 'none'", pin("fedcac")),
        ("class_names = 'no'", pin("fedproto", proto_weight="one")),
    ],
)
def test_what_is_withheld_at_joining_is_not_told_by_an_update(
    tmp_path: Path, line: str, broken: RunSpec
) -> None:
    """A run whose weights would tell it is refused; one in which sites count alike is not."""
    policy = write_policy(tmp_path, f"[joining]\n{line}")
    check_run(policy, pin())
    with pytest.raises(Forbidden, match="joining"):
        check_run(policy, broken)


@pytest.mark.parametrize("method", methods.names())
def test_which_updates_hold_the_number_of_samples(tmp_path: Path, method: str) -> None:
    """Of every method an update is made, counting sites alike where it can: what the policy thinks of it is so."""
    found = methods.load(method)
    try:
        alike = {"aggregation": found.settle({"aggregation": "uniform"}).aggregation}
    except SettingError:
        alike = {}
    desk = Desk(tmp_path, method, **alike)
    spec = replace(desk.spec, settings=dump(found.settle(desk.spec.settings)))
    job = desk.job()
    done = open_bench(desk).work(job, lambda samples: None)
    assert done.up is not None
    manifest = desk.spec.manifest(Kind.TRAIN, job.task.phase, "up")
    up = unflatten(codec.decode(bytearray(done.up), manifest, done.groups))
    told = [*(term.weight for term in up.summed.values()), *up.shown.values()]
    assert any(bool((value == 24).any()) for value in told) <= tells_count(spec)
    by_class = any(len(set(term.weight.reshape(-1).tolist())) > 1 for term in up.summed.values())
    assert by_class <= tells_classes(spec)
