"""Follows a run while it trains: reads rounds from its log and accuracies from the sites' own histories.

The coordinator never sees a site's curve. The demo does because it owns the sites' folders.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from pfl_common.identity import site_name
from pfl_deploy.demo.live import Board, Measured
from pfl_deploy.demo.plan import Contestant, Plan
from pfl_deploy.report.sources.sites import Curve, read_numbers

_ROUND = re.compile(r"\bround closed\b.*\bround=(\d+)\b.*\bseconds=([\d.]+)")
_OPENED = "round opened"


@dataclass
class Trained:
    """A finished run: the folder each site left, and how long everything took."""

    contestant: Contestant
    folders: Mapping[str, Path]
    round_seconds: list[float]
    start_seconds: float
    seconds: float
    processes: int = 1
    counters: dict[str, int] = field(default_factory=dict)


class Follower:
    """Reads one run's log line by line and shows each closed round on the board."""

    def __init__(
        self, contestant: Contestant, plan: Plan, board: Board, folders: Callable[[], Mapping[str, Path]]
    ) -> None:
        self._contestant, self._plan, self._board, self._folders = contestant, plan, board, folders
        self._began, self._opened = perf_counter(), 0.0
        self._round_seconds: list[float] = []

    def hear(self, line: str) -> None:
        """One line of the log."""
        if _OPENED in line and not self._opened:
            self._opened = perf_counter()
        if closed := _ROUND.search(line):
            number, seconds = int(closed[1]), float(closed[2])
            self._round_seconds.append(seconds)
            title, rounds = self._contestant.title, self._plan.rounds
            self._board.close_round(title, number, rounds, seconds=seconds, measured=self._latest())

    def trained(self, folders: Mapping[str, Path], began: float) -> Trained:
        """The finished run; the board gets its last numbers."""
        now = perf_counter()
        accuracy = {
            site: last_value(read_numbers(folder).predicting("test")) for site, folder in folders.items()
        }
        self._board.finish(self._contestant.title, accuracy, now - began)
        start = (self._opened or now) - began
        return Trained(self._contestant, dict(folders), self._round_seconds, start, now - began)

    def _latest(self) -> Measured:
        """The newest round that all sites have measured: some are a round ahead of the log already."""
        curves = {site: read_numbers(folder).predicting("test") for site, folder in self._folders().items()}
        common = set.intersection(*map(set, curves.values())) if curves else set()
        after = max(common, default=0)
        return Measured(after, {site: curve[after] for site, curve in curves.items() if after in curve})


def find_folders(plan: Plan, root: Path, pattern: str) -> dict[str, Path]:
    """Where each site of a run keeps its history, so far as the folders are there."""
    names = [site_name(path) for path in plan.sites]
    found = {name: sorted(root.glob(pattern.format(site=name))) for name in names}
    return {name: paths[-1] for name, paths in found.items() if paths}


def last_value(curve: Curve) -> float:
    """The newest point."""
    return curve[max(curve)]
