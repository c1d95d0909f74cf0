"""A short demo with real processes: what it says, what it writes, and that it is what the sites' own books say."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from pfl_client.run_folder.audit import entries
from pfl_deploy.demo.report import render
from tests.deploy.demo.conftest import ROUNDS, Played
from tests.house.skeleton import TOP

SITES = ["mnist", "mnist_m", "optdigits", "synth"]
STATES = {
    "dualfed": "sites/*/{site}/runs/*",
    "fedavg": "fedavg/sites/{site}/runs/*",
    "local": "local/sites/{site}/runs/*",
}


def folder(played: Played, method: str, site: str) -> Path:
    """Where a site kept its run of a method."""
    return next(played.plan.state.glob(STATES[method].format(site=site)))


def book(played: Played, method: str, site: str, name: str) -> list[dict[str, object]]:
    """The lines of one of a site's books."""
    return [json.loads(line) for line in (folder(played, method, site) / name).read_text().splitlines()]


@pytest.mark.parametrize("method", STATES)
def test_accuracies_are_those_of_the_histories(method: str, played: Played) -> None:
    """After the last round, each site's figure is what the site itself wrote down at the end."""
    shown = next(m for m in played.findings.methods if m.name == method)
    assert SITES == sorted(shown.final)
    for site in SITES:
        last = book(played, method, site, "history.jsonl")[-1]
        assert f"{ROUNDS:06d}-1-finish" == last["task"]
        assert last["scores"]["pre/test/combined"]["accuracy"] == shown.final[site]
        assert ROUNDS == max(shown.curves[site])
    assert {"mnist_m", "synth"} == set(shown.shifted)
    for site, value in shown.shifted.items():
        last = book(played, method, site, "history.jsonl")[-1]
        assert last["scores"]["pre/shifted/combined"]["accuracy"] == value


def test_both_tests_are_shown(played: Played) -> None:
    """On the console a row a site and their mean, then the same for the shifted test of those that have one; on the
    page a column each.
    """
    shown = [*SITES, "mean", "mnist_m, shifted", "synth, shifted", "mean, shifted"]
    assert shown == [name for name, _ in played.findings.rows]
    places = [played.said.rindex(name) for name in shown[5:]]
    assert sorted(places) == places
    page = played.plan.report.read_text()
    for method in played.findings.methods:
        assert f'<th class="n">{method.title}, shifted</th>' in page
    means = dict(played.findings.rows)
    for place in range(3):
        both = [means[f"{site}, shifted"][place] for site in ("mnist_m", "synth")]
        assert sum(both) / 2 == pytest.approx(means["mean, shifted"][place])


def test_the_run_went_over_real_processes(played: Played) -> None:
    """Every site did every round, the coordinator saw all uploads, and the programs left a log each."""
    assert ROUNDS == len(played.findings.real.round_seconds)
    logs = {path.stem for path in played.plan.logs.iterdir()}
    assert {"coordinator", *SITES, "local", "fedavg"} == logs
    for site in SITES:
        said = (played.plan.logs / f"{site}.log").read_text()
        assert ROUNDS == said.count("kind=train")
        assert "status=finished" in said


def test_bytes_are_those_of_the_audits_and_of_the_coordinator(played: Played) -> None:
    """What left is the sum over a site's audit; the coordinator counted the same in all, both ways."""
    traffic = played.findings.traffic
    for site in SITES:
        run = folder(played, "dualfed", site)
        audit = [line for line in entries(run.parent.parent, run.name) if line["kind"] == "receipt"]
        assert ROUNDS == traffic[site].uploads == len(audit)
        assert sum(line["bytes"] for line in audit) == traffic[site].sent  # type: ignore[misc]
    counted = played.findings.counters
    assert counted["up"] == sum(one.sent for one in traffic.values())
    assert counted["down"] == sum(one.received for one in traffic.values())


def test_what_stays_was_in_no_upload(played: Played) -> None:
    """The projector, the personal head and running statistics stay; encoder and global head travel."""
    parts = {(part.name, part.travels): part for part in played.findings.parts}
    assert {
        ("encoder", True),
        ("head_g", True),
        ("encoder", False),
        ("head_p", False),
        ("projector", False),
    } == set(parts)
    assert ("num_batches_tracked", "running_mean", "running_var") == parts["encoder", False].kinds


class _Page(HTMLParser):
    """Ids, and everything that would make a browser ask somebody else."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: dict[str, int] = {}
        self.asked: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.ids += [named["id"] or ""] if "id" in named else []
        self.tags[tag] = self.tags.get(tag, 0) + 1
        asked = (named.get(name) or "" for name in ("src", "href", "srcset", "data", "poster", "action"))
        self.asked += [where for where in asked if where and not where.startswith("data:")]


def test_the_report_has_all_its_parts_and_asks_nobody(played: Played) -> None:
    """One file: every section, a drawing for each site and more, pictures inside, no script, no address."""
    text = played.plan.report.read_text()
    page = _Page()
    page.feed(text)
    assert ["result", "curves", "sites", "travel", "time", "setup"] == page.ids
    assert len(SITES) + 3 == page.tags["svg"]
    assert len(SITES) == page.tags["img"]
    assert not page.asked
    assert "script" not in page.tags
    assert not re.findall(r"https?://|url\(|@import", text)


def test_the_readme_leads_to_what_is_there(played: Played) -> None:
    """Parts of the report that it names have these headings, and what it says to have stayed has stayed."""
    shown = (TOP / "README.md").read_text().partition("\n## See it work\n")[2].partition("\n## ")[0]
    named = re.findall(r"\*([^*]+)\* lists", " ".join(shown.split()))
    assert 1 == len(named)
    assert f"<h2>{named[0]}</h2>" in played.plan.report.read_text()
    stayed = {part.name for part in played.findings.parts if not part.travels}
    assert {"encoder", "head_p", "projector"} == stayed
    for part in ("projector", "personal head", "encoder's statistics"):
        assert part in " ".join(shown.split())


def test_the_report_shows_every_final_figure(played: Played) -> None:
    """Each method's value of each site stands in the table, in percent, the demo's own first. On other data than the
    sample's the step sizes were not chosen alike, and they are all that keeps the runs from being compared.
    """
    text, found = played.plan.report.read_text(), played.findings
    for method in found.methods[:-1]:
        assert ("lr 0.1, there 0.3",) == method.differences.hindering
    for site in SITES:
        values = [f"{100 * m.final[site]:.2f}" for m in (found.real, *found.methods[:-1])]
        cells = "".join(f'<td class="n">{value}</td>' for value in (*values, "not comparable"))
        assert f"<tr><td>{site}</td>{cells}" in text


def test_results_hold_what_the_report_tells(played: Played) -> None:
    """The numbers for other programs are the same."""
    results = json.loads(played.plan.results.read_text())
    assert {m.name: m.final for m in played.findings.methods} == {
        m["name"]: m["final"] for m in results["methods"]
    }
    assert played.findings.spec["hash"] == results["spec"]["hash"]


def test_the_console_tells_each_round_in_a_line(played: Played) -> None:
    """Not on a terminal: a line for each round of each method, the table, and where the report is."""
    for title in ("Alone", "FedAvg", "DualFed, simultaneous"):
        for number in range(1, ROUNDS + 1):
            assert 1 == len(re.findall(rf"^{title}: round {number} of {ROUNDS}, ", played.said, re.MULTILINE))
    assert f"the report: {played.plan.report}" in played.said
    assert "\x1b" not in played.said


def test_words_of_the_data_are_escaped(played: Played) -> None:
    """A site's name or licence cannot become part of the page."""
    from dataclasses import replace

    odd = replace(next(iter(played.findings.sites.values())), licence="<script>alert(1)</script>")
    page = _Page()
    page.feed(render(replace(played.findings, sites={**played.findings.sites, "mnist": odd})))
    assert "script" not in page.tags


def test_the_strip_shows_each_class(played: Played) -> None:
    """One picture a class, side by side."""
    import base64
    import io

    for site in played.findings.sites.values():
        with Image.open(io.BytesIO(base64.b64decode(site.strip))) as strip:
            assert 32 == strip.height
            assert 0 == strip.width % 32
            assert 5 * 32 < strip.width <= 10 * 32
