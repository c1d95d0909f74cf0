"""A command that takes rules has one option for each, where it says so, and none of them twice."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated

import typer
from typer.testing import CliRunner

from pfl_common.app.rule_options import RuleOptions, Typed, flatten, taking_rules
from pfl_common.spec.rules import AskedRules, terms_of

app = typer.Typer(add_completion=False, rich_markup_mode=None)
seen: list[dict[str, object]] = []


@app.command()
@taking_rules
def play(
    first: Annotated[str, typer.Option(help="The first.")],
    few: Annotated[Typed, RuleOptions(("seed", "candidates"))] = None,
    second: Annotated[int | None, typer.Option(help="The second.")] = None,
    others: Annotated[Typed, RuleOptions()] = None,
    names: Annotated[list[str] | None, typer.Option(help="The last.")] = None,
) -> None:
    """Say what came."""
    seen.append(flatten(locals()))


def shown() -> dict[str, str]:
    """Each option of the help with its words, in order."""
    lines = CliRunner().invoke(app, ["--help"], terminal_width=200).output.splitlines()
    return {line.split()[0]: line.split("  ")[-1].strip() for line in lines if line.strip().startswith("--")}


def test_rules_stand_where_the_command_says() -> None:
    """Those it names in one place, all others in another."""
    rest = [one.name for one in fields(AskedRules) if one.name not in ("seed", "candidates")]
    names = ["first", "seed", "candidates", "second", *rest, "names", "help"]
    assert [f"--{name.replace('_', '-')}" for name in names] == list(shown())


def test_an_option_says_what_the_rule_means() -> None:
    """In the rule's own words."""
    told = shown()
    for one in fields(AskedRules):
        assert terms_of(one).sentence == told[f"--{one.name.replace('_', '-')}"]


def test_what_is_typed_comes_by_the_rules_names() -> None:
    """Numbers as numbers, words as words; nothing for what was not typed, which a file may name."""
    words = ["--first", "x", "--seed", "7", "--quorum", ".5", "--round-seconds", "9", "--second", "2"]
    assert 0 == CliRunner().invoke(app, words).exit_code
    given = {name: value for name, value in seen.pop().items() if value is not None}
    assert {"first": "x", "seed": 7, "quorum": ".5", "round_seconds": 9.0, "second": 2} == given


def test_a_word_of_the_wrong_kind_is_refused() -> None:
    """As with any option."""
    said = CliRunner().invoke(app, ["--first", "x", "--seed", "many"])
    assert 2 == said.exit_code
    assert "--seed" in said.output
    assert [] == seen


def test_a_shell_completes_the_words_of_a_rule() -> None:
    """Where it takes few words; where it takes a number there is nothing to complete."""
    options = {one.name: one for one in typer.main.get_command(app).params}
    context = typer.Context(typer.main.get_command(app))
    found = [one.value for one in options["candidates"].shell_complete(context, "p")]
    assert ["present"] == found
    assert [] == options["seed"].shell_complete(context, "p")
