"""The demo's display while it trains: a live table on a terminal, one line per round in a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Measured:
    """The sites' measurements of the state after a round; 0 is the state before the first."""

    after: int
    accuracy: Mapping[str, float]


class Board:
    """Accuracy by site and method, and the current activity."""

    def __init__(self, console: Console, sites: Sequence[str], titles: Sequence[str]) -> None:
        self._console, self._sites, self._titles = console, sites, titles
        self._accuracy: dict[str, dict[str, float]] = {}
        self._progress: dict[str, str] = {}
        self._live = (
            Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        )

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, words: str) -> None:
        """Something that happens once."""
        self._console.print(words, markup=False, highlight=False)

    def close_round(
        self, title: str, number: int, rounds: int, *, seconds: float, measured: Measured
    ) -> None:
        """A round is over. What it has reached is mostly known a round later, so which one was measured is said."""
        progress = f"{title}: round {number} of {rounds}, {seconds:.1f} s"
        if not measured.after:
            measured = Measured(0, {})
        else:
            progress += f"; accuracy after round {measured.after}"
        self._update(title, progress, measured.accuracy)
        if not self._live:
            listed = [f"{site} {100 * value:.1f}" for site, value in sorted(measured.accuracy.items())]
            self.say(progress + (": " + "  ".join(listed) if listed else ""))

    def finish(self, title: str, accuracy: Mapping[str, float], seconds: float) -> None:
        """A run is over."""
        self._update(title, f"{title}: done in {seconds:.0f} s", accuracy)
        if not self._live:
            self.say(self._progress[title])

    def _update(self, title: str, progress: str, accuracy: Mapping[str, float]) -> None:
        self._progress[title] = progress
        self._accuracy[title] = dict(accuracy)
        if self._live:
            self._live.update(self._render())

    def _render(self) -> RenderableType:
        table = Table(
            "site",
            title="accuracy on each site's own test data, in percent",
            title_justify="left",
        )
        for title in self._titles:
            table.add_column(title, justify="right", min_width=8)
        for site in self._sites:
            table.add_row(site, *(self._cell(title, site) for title in self._titles))
        return Group(table, Text("\n".join(self._progress.values())))

    def _cell(self, title: str, site: str) -> str:
        value = self._accuracy.get(title, {}).get(site)
        return "" if value is None else f"{100 * value:.1f}"
