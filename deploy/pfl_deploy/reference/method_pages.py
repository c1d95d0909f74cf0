"""Generates `deploy/methods`: a page for each method in words and figures, and one table of all.

    python -m pfl_deploy.reference.method_pages [NAME ...]

measures the named methods (all, if none is named), keeps the figures for `pfl-server --explain`, and writes the pages.
`--words` measures nothing. What tests know of a method comes from `tested.json`.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # plain values from JSON

from pfl_common import methods
from pfl_common.errors import SettingError
from pfl_server.method_help.costs import look_up, write_kept
from pfl_server.method_help.explanation import (
    NOTE,
    Words,
    compare,
    read_words,
    say_encoding,
    say_newcomer,
    say_robust,
    say_sums,
)
from pfl_server.run.kept_figures import NETWORKS

FOLDER = Path(__file__).parents[2] / "methods"
MADE = "<!-- Made by `python -m pfl_deploy.reference.method_pages`: change the method's file and make it again. -->"
SMALL = NETWORKS[0]
"""The network of the table."""


@dataclass(frozen=True)
class Tested:
    """The tests of a method, as its page shows them."""

    passed: int = 0
    marked: int = 0
    items: tuple[int, ...] = ()
    """Numbers of its worked examples in the methods' specification."""
    difference: float | None = None
    predicted: tuple[int, int] | None = None
    """Bytes up and down, as the specification predicts them."""

    @classmethod
    def read(cls, name: str) -> Tested:
        """From the file that the tests wrote; nothing of a method it does not have."""
        file = FOLDER / "tested.json"
        plain: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        row = plain.get(name, {})
        return cls(
            row.get("passed", 0),
            row.get("marked", 0),
            tuple(row.get("items", ())),
            row.get("difference"),
            tuple(row["predicted"]) if row.get("predicted") else None,
        )


def write_pages() -> Iterator[tuple[str, str]]:
    """Every file with its text."""
    yield "README.md", write_index()
    for name in methods.names():
        yield f"{name}.md", write_page(name)


def write_page(name: str) -> str:
    """One method."""
    method, tested = methods.load(name), Tested.read(name)
    words = read_words(method.doc)
    head = ["a round costs one site", *(cell for n in NETWORKS for cell in (n.words, "beside FedAvg"))]
    parts = [
        f"# {name}",
        f"{_safe(words.title)}: {_safe(words.sentence)}",
        _safe(words.citation),
        f"**Rule.** {_sentence(words.rule)}",
        f"**Travels.** {_sentence(words.travels)}",
        f"**Stays.** {_sentence(words.stays)}",
        f"**Sums suffice.** {_safe(say_sums(method).capitalize())}.",
        f"**Robust rules (`--robust`).** {_safe(say_robust(method).capitalize())}.",
        f"**Encodings of what crosses (`--encoding`).** {_safe(say_encoding(method).capitalize())}.",
        f"**When to choose it.** {_sentence(words.choice)}",
        f"**A new site after the run.** {_sentence(say_newcomer(method))}",
        "## What it costs",
        _sentence(words.costs),
        _table(head, compare(name)),
        NOTE,
        "## Departures",
        *_departures(words),
        "## How it is tested",
        _say_tested(tested),
        f"Settings, presets: `pfl-server --list-methods {name}`. [All methods](README.md).",
    ]
    return _page(parts)


def write_index() -> str:
    """One table of all methods."""
    head = [
        "method",
        "lines",
        "up, bytes",
        "beside FedAvg",
        "predicted",
        "down, bytes",
        "beside FedAvg",
        "predicted",
        "kept at the site, bytes",
        "memory",
        "multiply-adds",
        "sums suffice",
        "robust rules",
        "examples passed",
        "largest difference",
    ]
    rows = [_row(name) for name in methods.names()]
    sentences = [
        f"- [`{name}`]({name}.md): {_safe(read_words(methods.load(name).doc).sentence)}"
        for name in methods.names()
    ]
    parts = [
        "# Methods",
        "What each method costs a site in a round, and how it is tested. `pfl-server --explain NAME` prints a "
        "method's page, also for other networks and settings.",
        "\n".join(sentences),
        _table(head, rows),
        f"Lines: of its file. Bytes, memory and multiply-adds: with default settings on {SMALL.words}. Memory: how "
        "many times the plain network a site holds at the most while it trains. Multiply-adds: beside FedAvg. "
        "Predicted: what the specification of the methods says, without weights of sums, counts and statistics. "
        "Examples: cases worked in that specification that go through the method's own code. Largest difference: of "
        "any tensor to that of the method's oracle, beside the tensor's largest number; the oracle is written in plain "
        "numpy from the specification alone and plays the same absences, drop-outs and returns.",
        NOTE,
        "The figures: `python -m pfl_deploy.reference.method_pages`. "
        "What tests know: `python -m tests.common.methods.tested`.",
    ]
    return _page(parts)


def _row(name: str) -> list[str]:
    method, tested = methods.load(name), Tested.read(name)
    found, plain = look_up(name, SMALL), look_up("fedavg", SMALL)
    up, down = tested.predicted or ("", "")
    return [
        f"[`{name}`]({name}.md)",
        str(count_lines(name)),
        f"{found.up:,}",
        f"{found.up / plain.up:.3f}",
        f"{up:,}" if up != "" else "",
        f"{found.down:,}",
        f"{found.down / plain.down:.3f}",
        f"{down:,}" if down != "" else "",
        f"{found.kept:,}",
        f"{found.sets:.1f} ×",
        f"{found.products / plain.products:.2f} ×",
        "no" if method.shows else "yes",
        say_robust(method)[:3].rstrip(":"),
        f"{tested.passed} of {tested.marked}" if tested.marked else "none",
        _say_difference(tested),
    ]


def count_lines(name: str) -> int:
    """Lines of a method's file, its docstring too."""
    source = inspect.getsource(methods.load(name).module)
    return len(source.splitlines())


def _departures(words: Words) -> list[str]:
    return [
        f"**{origin.capitalize()}.** {_safe(text)}" if origin else _safe(text)
        for origin, text in words.departures.items()
    ]


def _say_tested(tested: Tested) -> str:
    cases = "No example of the methods' specification is marked as worked through its code."
    if tested.marked:
        numbers = ", ".join(map(str, tested.items))
        cases = (
            f"{tested.passed} of {tested.marked} cases of the examples worked in the methods' specification (its items "
            f"{numbers}) hold in this method's own code."
        )
    return f"{cases} Largest difference to its oracle: {_say_difference(tested)}."


def _say_difference(tested: Tested) -> str:
    return "not measured" if tested.difference is None else f"{tested.difference:.1e}"


def _page(parts: Sequence[str]) -> str:
    return "\n\n".join([MADE, *(part for part in parts if part)]) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _safe(words: str) -> str:
    """Formulas in a docstring are no emphasis and no tags."""
    made = words
    for mark in ("*", "<", "|"):
        made = made.replace(mark, f"\\{mark}")
    return made


def _sentence(words: str) -> str:
    """The same with a capital, unless it begins with a symbol or a name."""
    first = words.partition(" ")[0]
    plain = first.isascii() and first.isalpha() and (len(first) > 1 or first == "a")
    return _safe(words[0].upper() + words[1:] if plain and first.islower() else words)


def main(words: Sequence[str]) -> None:
    """Measure, then write."""
    unknown = [word for word in words if word != "--words" and word not in methods.names()]
    if unknown:
        raise SettingError(f"there is no method {unknown[0]!r}", expected="--words, or names of methods")
    if "--words" not in words:
        write_kept(list(words) or methods.names())
    pages: Mapping[str, str] = dict(write_pages())
    for old in FOLDER.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
