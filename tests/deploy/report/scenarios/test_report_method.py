"""The report's part about the method: its numbers by round in sentences, what crosses, whose folders it takes."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from pfl_common import methods
from pfl_common.learning.method import Participant
from pfl_common.learning.partition import of_type
from pfl_common.methods import build_participant
from pfl_common.spec.run import RunSpec
from pfl_deploy.report.charts.model import scale_around
from pfl_deploy.report.charts.select import draw_all
from pfl_deploy.report.make import Asked, gather
from pfl_server.store.journal import Journal
from pfl_server.telemetry.course import Course
from tests.deploy.support.processes import write_site
from tests.deploy.support.reported import SITES, Book, Page, pfl, report
from tests.words import check_clear

ROUNDS = 3


@dataclass(frozen=True)
class Runs:
    """One small simulation of each of some methods, each in a folder of its own."""

    folder: Path

    def spec(self, method: str) -> RunSpec:
        """What a run pinned, as a site keeps it."""
        file = next(self.folder.glob(f"{method}/sites/{SITES[0]}/runs/*/spec.json"))
        return RunSpec.from_json(file.read_bytes())

    def courses(self, method: str) -> list[Course]:
        """How the rounds went, from the coordinator's journal."""
        journal = Journal(next(self.folder.glob(f"{method}/coordinator/runs/*/journal.sqlite")))
        found = journal.course()
        journal.close()
        return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """FedCAC until its circles are empty, FedProto, FedBN, and every site on its own."""
    folder = tmp_path_factory.mktemp("runs")
    for seed, site in enumerate(SITES):
        write_site(folder / "data" / site, samples=18 + 12 * seed, size=12, seed=seed)
    for method, words in (("fedcac", ["--set", "beta=2"]), ("fedproto", []), ("fedbn", []), ("local", [])):
        words += ["--method", method, "--rounds", str(ROUNDS), "--backbone", "resnet8", "--json"]
        check_clear(pfl("simulate", "--data", folder / "data", "--out", folder / method, *words), 0)
    return Runs(folder)


def test_circles_are_told_round_by_round(runs: Runs, tmp_path: Path) -> None:
    """As many as the journal has; after round beta nobody has any; each picture with its sentence."""
    numbers, text = report(runs.folder / "fedcac", tmp_path)
    told = numbers["diagnostics"]
    courses = runs.courses("fedcac")
    assert list(range(1, ROUNDS + 1)) == [course.round for course in courses]
    for course in courses:
        found = {name: curve[str(course.round)] for name, curve in told.items() if str(course.round) in curve}
        assert dict(course.diagnostics) == found
        assert 0 <= found["circle/least"] <= found["circle/mean"] <= found["circle/most"] <= len(SITES) - 1
        assert found["overlap/mean"] <= found["overlap/most"]
    # Some pair attains the largest overlap, and the threshold is no higher until round beta.
    assert [True, True, False] == [told["circle/most"][str(number)] > 0 for number in (1, 2, 3)]
    assert {"1", "2"} == told["overlap/threshold"].keys()
    words = "".join(Page(text).words)
    for family in ("circle", "overlap", "critical", "loss", "mask_density", "mask_jaccard"):
        assert f"<h3>{family}</h3>" in text
        assert methods.load("fedcac").diagnostics[family] in words


def test_the_picture_shows_what_was_told(runs: Runs) -> None:
    """The mean with a band from the fewest to the most; lines that are compared have names at their ends."""
    facts = gather(Asked(str(runs.folder / "fedcac"), fewest=1))
    charts, told = draw_all(facts), facts.run.diagnostics
    (mean,) = charts["told_circle"].lines
    assert {float(number): value for number, value in told["circle/mean"].items()} == mean.points
    ends = {float(n): (told["circle/least"][n], told["circle/most"][n]) for n in told["circle/mean"]}
    assert ends == mean.band
    assert ["mean", "most", "threshold"] == [line.end.split()[0] for line in charts["told_overlap"].lines]
    assert not any("decile" in line.name for line in charts["accuracy"].lines)


def test_the_coordinator_tells_without_any_sites_folder(runs: Runs, tmp_path: Path) -> None:
    """Only its own folder is there: circles are on the page, and no site's own number."""
    run = next(runs.folder.glob("fedcac/coordinator/runs/*"))
    shutil.copytree(run, tmp_path / run.name)
    numbers, text = report(tmp_path / run.name, tmp_path / "out")
    assert "<h3>circle</h3>" in text
    assert ({}, {}) == (numbers["learning"], numbers["accuracy_by_site"])
    assert not [site for site in SITES for name in numbers["diagnostics"] if site in name]
    assert "<h3>mask_jaccard</h3>" in text, "of what sites tell it has the sums"
    assert not [site for site in SITES for name in numbers["learning_summed"] if site in name]


def test_prototypes_are_told_of(runs: Runs, tmp_path: Path) -> None:
    """From the first round on how many there are, from the second on how far they went."""
    told = report(runs.folder / "fedproto", tmp_path)[0]["diagnostics"]
    assert {"classes", "prototypes/moved", "prototypes/apart"} == told.keys()
    assert ({"1", "2", "3"}, {"2", "3"}) == (told["classes"].keys(), told["prototypes/moved"].keys())


def sizes(client: Participant, names: set[str]) -> int:
    """How many numbers some tensors have."""
    return sum(value.numel() for name, value in client.state_dict().items() if name in names)


@pytest.mark.parametrize("method", ["fedbn", "fedcac", "fedproto", "local"])
def test_what_crosses_and_what_stays(runs: Runs, method: str, tmp_path: Path) -> None:
    """What the method's own rule says: all but batch norms, all, prototypes alone, nothing."""
    from torch.nn.modules.batchnorm import _BatchNorm

    numbers, text = report(runs.folder / method, tmp_path)
    client = build_participant(runs.spec(method))
    every = set(client.state_dict())
    counters = {name for name in every if name.endswith("num_batches_tracked")}
    shared = {
        "fedbn": every - set(of_type(client, _BatchNorm)),
        "fedcac": every - counters - {"has_mask"},
        "fedproto": {"prototypes", "known"},
        "local": set[str](),
    }[method]
    sharing = numbers["sharing"]
    assert sizes(client, shared) == sum(part["shared"] for part in sharing["parts"])
    assert sizes(client, every) == sum(part["numbers"] for part in sharing["parts"])
    assert sorted(every - shared) == [name for name, _ in sharing["staying"]]
    assert (method == "fedcac") is sharing["shown"]
    words = "".join(Page(text).words)
    if shared:
        seen = "sees each site's own update" if method == "fedcac" else "needs only sums over sites"
        assert f"The coordinator {seen}." in words
        row = next(part for part in sharing["parts"] if part["module"] == "encoder")
        figures = [f"{row[name]:,}" for name in ("numbers", "shared")]
        assert ["encoder", *figures, f"{row['numbers'] - row['shared']:,}"] == Page(text).row("encoder")
    else:
        assert re.search(rf"[Nn]othing .*{sizes(client, every):,} numbers", words)


def test_a_folder_of_other_sites_is_said_to_be_wrong(runs: Runs, tmp_path: Path) -> None:
    """What lies there and which sites the run has; nothing is written."""
    run, other = next(runs.folder.glob("fedcac/coordinator/runs/*")), runs.folder / "fedbn" / "sites"
    alone = tmp_path / run.name
    shutil.copytree(run, alone)
    words = ("report", alone, "--no-pictures", "--out", tmp_path / "out")
    said = pfl(*words, "--sites", other)
    check_clear(said, 2, f"holds no state of a site of run {run.name}", "fedbn", *SITES)
    (tmp_path / "empty").mkdir()
    check_clear(pfl(*words, "--sites", tmp_path / "empty"), 2, "it holds no site's state at all", *SITES)
    right = runs.folder / "fedcac" / "sites" / SITES[1]
    check_clear(pfl(*words, "--sites", right, "--sites", other), 2, f"--sites {other}")
    assert not (tmp_path / "out").exists()
    check_clear(pfl(*words, "--sites", right), 0)
    assert [SITES[1]] == list(json.loads((tmp_path / "out" / "report.json").read_text())["learning"])


def test_a_folder_of_a_run_beside_it_or_of_a_site_that_has_not_begun_is_right(
    runs: Runs, tmp_path: Path
) -> None:
    """Each run takes what is its own; a site that has joined and done nothing yet has no numbers."""
    for method in ("fedcac", "fedbn"):
        run = next(runs.folder.glob(f"{method}/coordinator/runs/*"))
        shutil.copytree(run, tmp_path / run.name)
    runs_of = {method: next(tmp_path.glob(f"{method}-*")) for method in ("fedcac", "fedbn")}
    words = ("--beside", str(runs_of["fedbn"]), "--sites", runs.folder / "fedbn" / "sites")
    numbers, _ = report(runs_of["fedcac"], tmp_path / "out", *words)
    assert ({}, set(SITES)) == (numbers["learning"], set(numbers["beside"][0]["learning"]))
    new = tmp_path / "new" / SITES[0] / "runs" / runs_of["fedcac"].name
    new.mkdir(parents=True)
    (new / "spec.json").write_text(runs.spec("fedcac").to_json())
    assert {} == report(runs_of["fedcac"], tmp_path / "out", "--sites", tmp_path / "new")[0]["learning"]


def test_a_method_that_is_gone_has_no_sentences_and_a_page(runs: Runs, tmp_path: Path) -> None:
    """Numbers of a method this release does not have are shown as they are, whatever they are called."""
    text = runs.spec("fedproto").to_json().replace('"method":"fedproto"', '"method":"fedgone"')
    book = Book(tmp_path, RunSpec.from_json(text), sites=SITES)
    told = {"<u>x/mean": 1.0, "<u>x/least": -1.0, "<u>x/most": 2.0, "flat": 0.0}
    for number in (1, 2):
        course = Course(number, 1, 10.0 * number, 10.0 * number + 5, {}, {}, told)
        book.commit(number, course=course, accuracies=(0.5, 0.6, 0.7))
    out = tmp_path / "out"
    check_clear(pfl("report", book.close(), "--out", out, "--fewest-reporters", "1"), 0)
    page = Page((out / "report.html").read_text())
    assert "u" not in page.tags
    assert "<u>x" in page.words
    assert (out / "told_flat.png").is_file()
    assert [{"1": value, "2": value} for _, value in sorted(told.items())] == list(
        json.loads((out / "report.json").read_text())["diagnostics"].values()
    )


@pytest.mark.parametrize(
    ("values", "ends"),
    [([0.681, 0.699], (0.68, 0.7)), ([0.5, 0.5], (0, 0.6)), ([], (0, 1)), ([-3.0, 5.0], (-4, 6))],
)
def test_axes_around_values_end_at_round_numbers(values: list[float], ends: tuple[float, float]) -> None:
    """Near what is shown; a single value stands on an axis from zero."""
    scale = scale_around(values)
    assert pytest.approx(ends) == (scale.low, scale.high)
    assert all(scale.low <= value <= scale.high for value in values)
