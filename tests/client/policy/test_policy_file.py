"""Finding and reading policy.toml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pfl_client.policy.policy_file import find, list_methods, read
from pfl_client.policy.rules import Policy
from pfl_common import methods
from pfl_common.errors import SettingError
from tests.client.policy.policies import write_policy

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "policy.toml"


def test_the_file_that_was_named_then_the_sites_own_then_the_users(tmp_path: Path) -> None:
    """The nearest one alone counts: rules of two files are not mixed."""
    own, user = tmp_path / "a", tmp_path
    assert find(None, own, user) is None
    write_policy(user, "")
    assert user / "policy.toml" == find(None, own, user)
    write_policy(own, "")
    assert own / "policy.toml" == find(None, own, user)
    assert tmp_path / "other.toml" == find(tmp_path / "other.toml", own, user)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[run]\nrounds = 3", r"(?s)\[run\].*did you mean 'runs'"),
        ("[runs]\nround = 3", r"(?s)\[runs\] has no setting 'round'.*did you mean 'rounds'"),
        ("rounds = 3", r"(?s)rounds stands outside a section.*below \[runs\]"),
        ("[runs]\nrounds = -1", "rounds"),
        ("[runs]\nrounds = 'many'", "a whole number"),
        ("[runs]\nmethods = ['fedavgg']", "did you mean 'fedavg'"),
        ("[runs]\nmethods = []", "no run could ever begin"),
        ("[runs]\nsums = 'sure'", "'secure'"),
        ("[uploads]\nlargest = 'big'", "a size such as"),
        ("[uploads]\nlargest = '0'", "a size above 0"),
        ("[joining]\nclass_names = 'maybe'", "'hashed'"),
        ("[metrics]\nscores = 3", "true or false"),
        ("runs = ", "is not TOML"),
    ],
)
def test_what_is_wrong_is_an_error_with_the_nearest_word(tmp_path: Path, text: str, words: str) -> None:
    """The site does not start: a misspelt rule would protect nobody."""
    with pytest.raises(SettingError) as error:
        write_policy(tmp_path, text)
    assert re.search(words, str(error.value)), str(error.value)
    assert "policy.toml" in str(error.value)


def test_a_file_that_was_named_and_is_not_there(tmp_path: Path) -> None:
    """It is an error: to go on without the rules somebody wrote would be worse."""
    with pytest.raises(SettingError, match=r"gone\.toml cannot be read"):
        read(tmp_path / "gone.toml")


def test_the_example_says_the_defaults() -> None:
    """Every rule stands in it, and nothing that it says changes anything."""
    policy = read(EXAMPLE)
    assert {} == policy.changed()
    text = EXAMPLE.read_text()
    assert set() == {
        name for table in Policy().every().values() for name in table if f"{name} = " not in text
    }


def test_methods_are_known_without_loading_them() -> None:
    """The same as those that are loaded by name."""
    assert methods.list_names() == list_methods()
