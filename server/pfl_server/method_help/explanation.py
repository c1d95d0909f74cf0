"""Explains a method: its file's docstring, split at the labels, and its cost beside FedAvg."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from pfl_common import methods, models
from pfl_common.methods import Method
from pfl_common.spec.run import Json
from pfl_server.method_help.costs import look_up
from pfl_server.run.kept_figures import NETWORKS, SAMPLES, Figures, Network

_LABEL = re.compile(
    r"(?:^|(?<=\.\s))(?P<label>Rule|Travels|Travels up|Shown|Stays|Departures(?: from [^:.]{1,40})?|Costs|Choice):\s",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Words:
    """The parts of a method's docstring, by the labels that every method file has."""

    title: str
    """As the paper writes it."""
    sentence: str
    citation: str
    rule: str
    travels: str
    stays: str
    departures: Mapping[str, str]
    """From the paper, from its code, or from both: `from the paper` to the words; the empty key if it is not said."""
    costs: str
    choice: str

    @property
    def labelled(self) -> dict[str, str]:
        """The paragraphs that every method has."""
        named = {
            "Rule": self.rule,
            "Travels": self.travels,
            "Stays": self.stays,
            "Costs": self.costs,
            "Choice": self.choice,
        }
        return named | {"Departures": " ".join(self.departures.values())}


def read_words(doc: str) -> Words:
    """Cut a method's docstring at its labels; what is not said is empty."""
    title, _, rest = doc.strip().partition("\n\n")
    name, _, sentence = _flow(title).partition(": ")
    pieces = _LABEL.split(rest)
    said = {label: _flow(text) for label, text in zip(pieces[1::2], pieces[2::2], strict=True)}
    departures = {
        label.removeprefix("Departures").strip(): text
        for label, text in said.items()
        if label.startswith("Departures")
    }
    return Words(
        title=name,
        sentence=sentence,
        citation=_flow(pieces[0]),
        rule=said.get("Rule", ""),
        travels=next((said[label] for label in ("Travels", "Travels up", "Shown") if label in said), ""),
        stays=said.get("Stays", ""),
        departures=departures,
        costs=said.get("Costs", ""),
        choice=said.get("Choice", ""),
    )


def say_sums(method: Method) -> str:
    """Whether the coordinator needs no more than sums over sites, as secure aggregation would give it."""
    return f"no: {method.shows.rstrip('.')}" if method.shows else "yes"


def say_robust(method: Method) -> str:
    """Whether a robust rule can take the place of the mean, with the method's usual settings."""
    why = method.no_robust(method.settle({}))
    return f"no: {why}" if why else "yes"


def say_encoding(method: Method) -> str:
    """Whether what crosses may be rounded, with the method's usual settings."""
    why = method.no_encoding(method.settle({}))
    return f"no: {why}" if why else "yes"


def say_newcomer(method: Method) -> str:
    """What a site does that comes after the run; or why none can."""
    return method.no_newcomer or method.newcomer


def compare(
    name: str, networks: tuple[Network, ...] = NETWORKS, settings: Mapping[str, Json] | None = None
) -> list[list[str]]:
    """The cost of a round for a site beside FedAvg with its defaults: one row per figure, two columns per network."""
    rows: dict[str, list[str]] = {}
    for network in networks:
        found, plain = look_up(name, network, settings), look_up("fedavg", network)
        for words, of, digits, unit in _FIGURES:
            value, other = of(found), of(plain)
            shown = f"{value / unit:,.{digits}f}"
            beside = f"{value / other:.3f}" if other and words != KEPT else ""
            rows.setdefault(words, []).extend([shown, beside])
    return [[words, *cells] for words, cells in rows.items()]


WIDE = 120
"""Columns from which on two networks stand side by side."""
KEPT = "kept at the site, bytes"
"""FedAvg keeps next to nothing: a ratio would say nothing."""
_FIGURES: tuple[tuple[str, Callable[[Figures], float], int, float], ...] = (
    ("down, bytes a round", lambda found: found.down, 0, 1),
    ("up, bytes a round", lambda found: found.up, 0, 1),
    (KEPT, lambda found: found.kept, 0, 1),
    ("memory, × the network", lambda found: found.sets, 1, 1),
    ("memory at most, MB", lambda found: found.peak, 1, 1e6),
    ("multiply-adds a sample, M", lambda found: found.products_per_sample, 1, 1e6),
)
"""Words, the figure, digits behind the point, and the unit."""

NOTE = (
    f"Measured in the second round of a small federation on made-up pictures, {SAMPLES} at a site, with `diagnose = "
    "false`; the same on every machine. Bytes are those of the parcels' content. Kept is what a site has of its own "
    "from round to round. Memory is all tensors that are there at one time from the download to the update: network, "
    "download, gradients, momentum, copies; × the network with batches of two samples, so that models are counted, at "
    "most with batches of 32. Multiply-adds are those of matrix products and convolutions, forward and backward, in a "
    "whole round for each training sample; nothing else is counted."
)


def choose_networks(backbone: str | None) -> tuple[Network, ...]:
    """Those of the pages, or the one that is named."""
    if backbone is None:
        return NETWORKS
    models.check_name(backbone)
    return (Network(backbone),)


def show(name: str, console: Console, *, networks: tuple[Network, ...], settings: Mapping[str, Json]) -> None:
    """One method for somebody who has to choose one."""
    method = methods.load(name)
    words = read_words(method.doc)
    _print(console, f"{words.title}: {words.sentence}")
    _print(console, words.citation)
    for label, text in _paragraphs(method, words):
        console.print()
        _print(console, f"{label}: {text}")
    console.print()
    together = [networks] if console.width >= WIDE else [(network,) for network in networks]
    for chosen in together:
        head = [cell for network in chosen for cell in (network.words, "/ FedAvg")]
        rows = compare(name, chosen, settings)
        console.print(_lay_out(["a round costs one site", *head], rows), soft_wrap=False)
        console.print()
    _print(console, NOTE)
    if settings:
        _print(console, "With " + ", ".join(f"{key}={value}" for key, value in settings.items()) + ".")
    _print(console, f"Its settings: pfl-server --list-methods {name}")


def _paragraphs(method: Method, words: Words) -> Iterator[tuple[str, str]]:
    yield "Rule", words.rule
    yield "Travels", words.travels
    yield "Stays", words.stays
    yield "Sums suffice", say_sums(method)
    yield "Robust rules (--robust)", say_robust(method)
    yield "Encodings of what crosses (--encoding)", say_encoding(method)
    for origin, text in words.departures.items():
        yield f"Departures {origin}".strip(), text
    if words.costs:
        yield "Costs", words.costs
    if words.choice:
        yield "When to choose it", words.choice
    yield "A new site after the run", say_newcomer(method)


def _lay_out(head: list[str], rows: list[list[str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, cell in enumerate(head):
        table.add_column(cell, justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _flow(text: str) -> str:
    """Lines of a file as one."""
    return " ".join(text.split())


def _print(console: Console, text: str) -> None:
    lines = textwrap.wrap(text, max(40, console.width), break_long_words=False, break_on_hyphens=False)
    console.print("\n".join(lines), markup=False)
