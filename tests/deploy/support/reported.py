"""Runs to report on: three small ones that were really played, and journals written line by line."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

from pfl_common import evaluation
from pfl_common.spec.messages import Receipt, Scores
from pfl_common.spec.run import ClientId, RunSpec
from pfl_deploy.cli import main
from pfl_server.decisions.sampling import Draw
from pfl_server.store.journal import Journal
from pfl_server.telemetry.course import Course
from tests.deploy.support.processes import write_site
from tests.words import Spoken, check_clear, speak

SITES = ("hospital_a", "hospital_b", "hospital_c")
ROUNDS = 3


def pfl(*words: str | Path) -> Spoken:
    """The program with these words."""
    return speak(main, *words)


@dataclass(frozen=True)
class Played:
    """Local-only, FedAvg and DualFed, one after the other, by one coordinator and the same sites."""

    folder: Path

    def run(self, method: str) -> Path:
        """A run's folder."""
        return next(self.folder.glob(f"coordinator/runs/{method}-*"))

    def spec(self, method: str) -> RunSpec:
        """What a run pinned, as a site keeps it."""
        return RunSpec.from_json(next(self.folder.glob(f"sites/*/runs/{method}-*/spec.json")).read_bytes())

    def history(self, method: str, site: str) -> list[dict[str, object]]:
        """A site's own book."""
        file = next(self.folder.glob(f"sites/{site}/runs/{method}-*/history.jsonl"))
        return [json.loads(line) for line in file.read_text().splitlines()]

    def accuracies(self, method: str, task: str, measure: str) -> list[float]:
        """What each site wrote down for a task, in site order."""
        return [
            line["scores"][measure]["accuracy"]
            for site in SITES
            for line in self.history(method, site)
            if task == line["task"]
        ]


def play(folder: Path) -> Played:
    """Three sites of different size, three rounds of each method."""
    for seed, site in enumerate(SITES):
        write_site(folder / "data" / site, samples=18 + 12 * seed, size=12, seed=seed)
    for method in ("local", "fedavg", "dualfed"):
        words = ("--method", method, "--rounds", str(ROUNDS), "--backbone", "resnet8", "--seed", "5")
        words += ("--set", "epochs=6", "--set", "lr=0.02", "--set", "momentum=0.5")
        said = pfl("simulate", "--data", folder / "data", "--out", folder / "played", "--json", *words)
        check_clear(said, 0)
    return Played(folder / "played")


def report(run: str | Path, out: Path, *words: str | Path) -> tuple[dict[str, object], str]:
    """The numbers and the page of a report without pictures, which shows means over few sites too."""
    check_clear(pfl("report", run, "--out", out, "--no-pictures", "--fewest-reporters", "1", *words), 0)
    return json.loads((out / "report.json").read_text()), (out / "report.html").read_text()


def measured(*accuracies: float, samples: int = 100) -> Scores:
    """What the sites of these accuracies say together."""
    return evaluation.add(
        {"pre/test/combined": evaluation.vector(round(a * samples), samples, 1.0 - a)} for a in accuracies
    )


class Book:
    """A journal written by hand."""

    def __init__(self, folder: Path, spec: RunSpec, *, sites: Sequence[ClientId]) -> None:
        self.folder, self.sites, self.spec = folder / spec.id, tuple(sites), spec
        self.journal = Journal(self.folder / "journal.sqlite", durability="process")
        for site in sites:
            self.journal.register(site, "{}", late=False)
        self.journal.begin(spec.id, replace(spec, roster=tuple(sites)).to_json())

    def commit(
        self,
        number: int,
        *,
        lost: dict[ClientId, str] | None = None,
        course: Course | None = None,
        accuracies: Sequence[float] = (),
    ) -> None:
        """A round that is closed; what was measured before its training."""
        losses = lost or {}
        attempt = self.journal.open_attempt(number, self.sites, Draw(self.sites, frozenset()))
        counted = [site for site in self.sites if site not in losses]
        for site in counted:
            receipt = Receipt(self.spec.id, f"{number:06d}-{attempt}-train", site, "0" * 64)
            self.journal.receive(receipt, number, attempt, "spooled")
        self.journal.commit(number, attempt, counted, losses, course=course)
        if accuracies:
            self.journal.sum_up([f"{number:06d}-{attempt}-train"], measured(*accuracies))

    def abandon(
        self, number: int, losses: dict[ClientId, str], reason: str, *, course: Course | None
    ) -> None:
        """An attempt that is given up."""
        attempt = self.journal.open_attempt(number, self.sites, Draw(self.sites, frozenset()))
        self.journal.abandon(number, attempt, losses, reason, course=course)

    def close(self, status: str = "finished", words: str = "") -> Path:
        """The run's folder, when all is written."""
        if status != "running":
            self.journal.end(status, words)
        self.journal.close()
        return self.folder


class Page(HTMLParser):
    """Ids, tags, words and rows of a page, and everything that would make a browser ask somebody else."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.asked: list[str] = []
        self.attributes: set[str] = set()
        self.rows: list[list[str]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at everything that is opened."""
        named = dict(attrs)
        self.ids += [named["id"] or ""] if "id" in named else []
        self.tags.add(tag)
        self.attributes |= set(named)
        asked = (named.get(name) or "" for name in ("src", "href", "srcset", "data", "poster", "action"))
        self.asked += [where for where in asked if where and not where.startswith("data:")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        """Words, and which cell they are in."""
        self.words.append(data)
        if self.lasttag in ("td", "th") and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data

    def row(self, *begin: str) -> list[str]:
        """The row that begins with these cells."""
        rows = ([cell.strip() for cell in row] for row in self.rows)
        return next(row for row in rows if list(begin) == row[: len(begin)])


def deviation(values: Sequence[float]) -> float:
    """Over sites, not over a sample of them."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
