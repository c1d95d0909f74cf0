"""A comparison's file: every wrong word is told with the nearest right one, before anything else happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_common.errors import SettingError
from pfl_deploy.comparison.plan import Comparison
from tests.deploy.comparison.given import PLAN, write_plan


def read(folder: Path, text: str) -> Comparison:
    """The comparison in this text."""
    return Comparison.read(write_plan(folder, text))


@pytest.mark.parametrize("text", ["rounds = 1", "rounds = ", "", "seeds = [0]\nrounds = 1"])
def test_a_file_that_is_no_comparison(tmp_path: Path, text: str) -> None:
    """What is missing is said."""
    with pytest.raises(SettingError, match="is no comparison"):
        read(tmp_path, text)


def test_a_comparison_that_is_not_there(tmp_path: Path) -> None:
    """Which file is looked for is said."""
    with pytest.raises(SettingError, match=r"x\.toml cannot be read: No such file"):
        Comparison.read(tmp_path / "x.toml")


@pytest.mark.parametrize(
    ("was", "now", "seen", "expected"),
    [
        ("rounds = 2", "rouns = 2", "no setting 'rouns'", "did you mean 'rounds'?"),
        ("rounds = 2", "rounds = 0", "'rounds' is 0", "1 or more"),
        ("rounds = 2", 'rounds = "many"', "'rounds' is 'many'", "a whole number"),
        ("seeds = [0, 1]", "seeds = [0, 0]", "seeds are [0, 0]", "each seed once"),
        ("seeds = [0, 1]", "seeds = []", "'seeds' is", "values with commas"),
        ("seeds = [0, 1]", "seeds = [1000]", "1000 is among the seeds", "any others"),
        ("seeds = [0, 1]", 'seeds = [0]\nreference = "alon"', "reference is 'alon'", "did you mean 'alone'?"),
        ("seeds = [0, 1]", "seeds = [0]\nhold_out = 0.9", "'hold_out' is 0.9", "at most 0.5"),
        ('backbone = "mlp"', 'backbon = "mlp"', "[common] has no setting 'backbon'", "'backbone'"),
        ('backbone = "mlp"', "rounds = 3", "[common] has no setting 'rounds'", "known:"),
        ("set = { batch = 8 }", "set = 8", "[common] set is 8", "a table"),
        ('method = "local"', 'methd = "local"', "[contestants.alone] has no setting 'methd'", "'method'"),
        ('method = "local"', "", "[contestants.alone] names no method", "fedavg"),
        ('method = "local"', 'method = "locl"', "no method 'locl'", "did you mean 'local'?"),
        (
            'method = "local"',
            'method = "local"\npreset = "x"',
            "local has no preset 'x'",
            "known: dualfed, fedcac",
        ),
        ('method = "local"', 'method = "local"\nset = {lr = 1}', "lr stands under set and under try", "one"),
        ("try = { lr = [0.1, 0.3] }", "try = { lr = [] }", "'try.lr' is []", "at least 1"),
        ("try = { lr = [0.1, 0.3] }", "try = { lr = 0.1 }", "'try.lr' is 0.1", "list"),
    ],
)
def test_a_wrong_word_in_a_comparison(tmp_path: Path, was: str, now: str, seen: str, expected: str) -> None:
    """It is named, with what may stand there."""
    with pytest.raises(SettingError) as caught:
        read(tmp_path, PLAN.replace(was, now, 1))
    assert seen in caught.value.seen
    assert expected in caught.value.expected


def test_what_all_share_and_each_changes(tmp_path: Path) -> None:
    """Strongest first: the value that is tried, the contestant's own, what all share, the preset."""
    text = PLAN.replace(
        'method = "fedavg"', 'method = "dualfed"\npreset = "pacs"\nset = { batch = 4, momentum = 0.25 }'
    )
    plan = read(tmp_path, text)
    settings = plan.candidates(plan.contestants[1])[0]
    assert (4, 0.25, 0.1) == (settings["batch"], settings["momentum"], settings["lr"])
    assert 40 == settings["lambda"]
    assert {"batch": 8, "lr": 0.1} == plan.candidates(plan.contestants[0])[0]


def test_the_comparisons_we_hand_out_can_be_read() -> None:
    """Each file beside the product."""
    folder = Path(__file__).parents[3] / "deploy" / "comparisons"
    files = sorted(folder.rglob("*.toml"))
    assert files
    for file in files:
        assert Comparison.read(file).contestants
