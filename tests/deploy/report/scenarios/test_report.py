"""`pfl report`: its numbers worked out again from what sites and coordinator wrote, its page, and what it refuses."""

from __future__ import annotations

import html
import json
import math
import re
import shlex
import shutil
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from pfl_common.evaluation import vector
from pfl_common.sealing import sealed_size
from pfl_common.spec.run import Kind, RunSpec
from pfl_deploy.report import find_run, plain_runs
from pfl_deploy.report.charts.model import scale_to, thin
from pfl_deploy.report.charts.select import distribution
from pfl_deploy.report.facts import tell
from pfl_deploy.report.sources.coordinator import read_record, subject_of
from pfl_deploy.report.sources.evaluations import read_measures
from pfl_server.decisions.sampling import Draw
from pfl_server.store.journal import Journal
from pfl_server.telemetry.course import Course
from pfl_server.telemetry.history import Curve
from tests.deploy.support.reported import (
    ROUNDS,
    SITES,
    Book,
    Page,
    Played,
    deviation,
    measured,
    pfl,
    play,
    report,
)
from tests.words import check_clear

HOSTILE = "<img src=x onerror=alert(1)></td><script>alert(1)</script>&\"'$x^2$"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Three runs of the same three sites."""
    return play(tmp_path_factory.mktemp("played"))


@pytest.fixture(scope="module")
def told(played: Played, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, object], str]:
    """The report of the DualFed run, asked for by the simulation's folder."""
    return report(played.folder, tmp_path_factory.mktemp("report"))


def test_each_point_is_the_mean_over_the_sites_own_histories(
    played: Played, told: tuple[dict[str, object], str]
) -> None:
    """What was measured before round t is of the state after t - 1; the finished models end the curve."""
    numbers, _ = told
    tasks = [f"{number:06d}-1-train" for number in range(1, ROUNDS + 1)] + [f"{ROUNDS:06d}-1-finish"]
    assert list(range(ROUNDS + 1)) == [point["after"] for point in numbers["curve"]]
    for task, point in zip(tasks, numbers["curve"], strict=True):
        own = played.accuracies("dualfed", task, "pre/test/combined")
        assert (len(SITES), pytest.approx(math.fsum(own) / 3, abs=1e-12)) == (point["sites"], point["mean"])
        assert pytest.approx(deviation(own), abs=1e-9) == point["deviation"]
        # Of three sites the worst tenth is one; the sums know it to one percent.
        assert round(min(own) * 100 + 1e-9) / 100 == point["worst_decile"]
    assert numbers["final"] == numbers["curve"][-1]
    assert max(point["mean"] for point in numbers["curve"]) == numbers["best"]["mean"]


def test_the_table_shows_the_same_numbers(played: Played, told: tuple[dict[str, object], str]) -> None:
    """Mean, pooled, deviation, worst tenth, variation in percent, of all three runs, each with its name."""
    page = Page(told[1])
    alone = played.accuracies("local", f"{ROUNDS:06d}-1-finish", "pre/test/combined")
    for method in ("dualfed", "local", "fedavg"):
        task = f"{ROUNDS:06d}-1-finish"
        own = played.accuracies(method, task, "pre/test/combined")
        tested = [9 + 6 * place for place in range(3)]
        pooled = sum(round(a * n) for a, n in zip(own, tested, strict=True)) / sum(tested)
        mean, spread = math.fsum(own) / 3, deviation(own)
        gain = "" if method == "local" else f"{100 * (mean - math.fsum(alone) / 3):+.2f}"
        shown = [f"{100 * value:.2f}" for value in (mean, pooled, spread)]
        shown += [f"{round(min(own) * 100 + 1e-9):.2f}", f"{100 * spread / mean:.2f}", "3", gain]
        assert [method, *shown, played.run(method).name] == page.row(method, shown[0])


def test_sites_and_gains_are_those_of_the_histories(
    played: Played, told: tuple[dict[str, object], str]
) -> None:
    """Each site's own end in each run, and what it has above training alone."""
    numbers, text = told
    task, page = f"{ROUNDS:06d}-1-finish", Page(text)
    ends = {
        method: dict(zip(SITES, played.accuracies(method, task, "pre/test/combined"), strict=True))
        for method in ("dualfed", "local", "fedavg")
    }
    assert ends["dualfed"] == numbers["accuracy_by_site"]
    assert ends["local"] == numbers["beside"][0]["accuracy_by_site"]
    for site in SITES:
        gain = ends["dualfed"][site] - ends["local"][site]
        assert gain == numbers["gain_by_site"][site]
        shown = [f"{100 * ends[m][site]:.2f}" for m in ("dualfed", "local", "fedavg")]
        assert [site, *shown, f"{100 * gain:+.2f}"] == page.row(site)


def test_it_says_which_runs_it_found_beside(played: Played, told: tuple[dict[str, object], str]) -> None:
    """Plain methods' runs of the same state folder are taken by themselves, and named."""
    numbers, text = told
    assert ["local", "fedavg"] == [other["kind"] for other in numbers["beside"]]
    assert [played.run(m).name for m in ("local", "fedavg")] == [other["run"] for other in numbers["beside"]]
    assert f"{played.run('fedavg').name} (fedavg" in text


def test_pinned_bytes_follow_from_the_shapes(played: Played, told: tuple[dict[str, object], str]) -> None:
    """Three downloads and three uploads a round, sealed; the first model for each site with round 1."""
    spec = played.spec("dualfed")

    def weight(manifest: tuple[object, ...]) -> int:
        sizes = {"float32": 4, "int64": 8}
        return sealed_size(sum(math.prod(e.shape) * sizes[e.dtype] for e in manifest))  # type: ignore[attr-defined]

    down, up = (weight(spec.manifest(Kind.TRAIN, "train", way)) for way in ("down", "up"))
    pinned = told[0]["bytes"]["pinned"]
    assert {"down": 3 * down + 3 * weight(spec.init_manifest), "up": 3 * up} == pinned["1"]
    assert {"down": 3 * down, "up": 3 * up} == pinned["2"] == pinned["3"]
    assert told[0]["bytes"]["measured"] is None
    assert "the specification pins" in told[1]


def test_learning_is_what_the_sites_wrote(played: Played, told: tuple[dict[str, object], str]) -> None:
    """Each metric of each round, and a chart for each."""
    for site in SITES:
        said = {line["task"]: line["metrics"] for line in played.history("dualfed", site) if line["metrics"]}
        shown = told[0]["learning"][site]
        for name in ("loss", "loss_global"):
            by_round = {str(number): said[f"{number:06d}-1-train"][name] for number in range(1, ROUNDS + 1)}
            assert by_round == shown[name]
    assert "<h3>loss_global</h3>" in told[1]


def test_the_curve_is_that_of_the_status_page(played: Played, told: tuple[dict[str, object], str]) -> None:
    """One run, two programs that tell of it, the same points."""
    journal = Journal(played.run("dualfed") / "journal.sqlite")
    curve = Curve()
    curve.recall(journal.rounds(), journal.course(), journal.scores())
    journal.close()
    status = {p.round: (p.accuracy, p.spread, p.worst_decile) for p in curve.points()}
    shown = {p["after"]: (p["mean"], p["deviation"], p["worst_decile"]) for p in told[0]["curve"]}
    del shown[0]
    assert status == shown


def test_the_page_is_whole_and_asks_nobody(played: Played, told: tuple[dict[str, object], str]) -> None:
    """Every section, no script, no address, no picture from anywhere; what ran and how to run it again."""
    numbers, text = told
    page = Page(text)
    sections = ["accuracy", "fairness", "communication", "time", "losses", "method", "setup", "missing"]
    assert sections == page.ids
    assert [] == page.asked
    assert not {"script", "link", "iframe", "img"} & page.tags
    assert not re.findall(r"https?://|url\(|@import|\snan|\sinf", text)
    where = shlex.quote(str(played.run("dualfed")))
    assert html.escape(f"pfl simulate --replay {where} --data FOLDER") in text
    assert numbers["spec"]["hash"] in text
    assert numbers["versions"]["run"]["torch"] == page.row("torch")[1]


def test_json_is_told_and_kept_and_pictures_are_drawn(played: Played, tmp_path: Path) -> None:
    """`--json` prints what lies in report.json; each chart is a PNG beside it."""
    said = pfl("report", played.run("dualfed"), "--out", tmp_path, "--json")
    check_clear(said, 0)
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(said.out)
    names = {path.stem for path in tmp_path.glob("*.png")}
    assert {"accuracy", "accuracy_over_bytes", "sites", "phases", "learning_loss"} <= names
    for path in tmp_path.glob("*.png"):
        with Image.open(path) as picture:
            assert (1024, 624) == picture.size


def course(number: int, attempt: int, opened: float, seconds: float, *, down: int, up: int) -> Course:
    """A minute of work by two sites, half a second of folding."""
    moved = {"down/train": down, "up/train": up, "up/calls": 1}
    return Course(number, attempt, opened, opened + seconds, {"work": 60.0, "fold": 0.5}, moved)


@pytest.fixture
def spec(played: Played) -> RunSpec:
    """A specification to write journals under."""
    return replace(played.spec("dualfed"), rounds=3)


def write_run(
    folder: Path, spec: RunSpec, *, sites: tuple[str, ...] = ("one", "two"), words: str = ""
) -> Path:
    """Two sites: 10 and 30 percent before round 1, 50 and 70 after it, 80 and 80 after round 2; round 2 tried twice."""
    book = Book(folder, spec, sites=sites)
    book.commit(1, course=course(1, 1, 1000.0, 10.0, down=700, up=299), accuracies=(0.1, 0.3))
    book.abandon(
        2,
        {sites[0]: "lease", sites[1]: f"diverged: {words}"},
        words,
        course=course(2, 1, 1010.0, 5.0, down=50, up=49),
    )
    book.commit(2, course=course(2, 2, 1020.0, 10.0, down=600, up=199), accuracies=(0.5, 0.7))
    book.commit(
        3, lost={sites[1]: "lease"}, course=course(3, 1, 1030.0, 10.0, down=600, up=99), accuracies=(0.8, 0.8)
    )
    book.journal.sum_up(["000003-1-finish"], measured(0.79, 0.8))
    return book.close("failed" if words else "finished", words)


def test_bytes_rounds_and_seconds_to_a_target(spec: RunSpec, tmp_path: Path) -> None:
    """60 % are reached after round 1 with its 1000 bytes in 10 s; 79 % after round 2, an abandoned attempt included."""
    run = write_run(tmp_path, spec)
    words = ("--target", "0.6", "--target", "0.79", "--target", "0.9", "--target", "0.15")
    numbers, text = report(run, tmp_path / "out", *words)
    found = [r and (r["round"], r["bytes"], r["seconds"], r["measured"]) for r in numbers["reached"]]
    assert [(0, 0, 0.0, True), (1, 1000, 10.0, True), (2, 1900, 30.0, True), None] == found
    page = Page(text)
    assert ["79.00 %", "dualfed", "2", "1.9 kB", "1,900", "30.0 s"] == page.row("79.00 %")
    assert ["90.00 %", "dualfed", "not reached", "", "", ""] == page.row("90.00 %")
    assert {"down/train": 1950, "up/train": 646, "up/calls": 4} == numbers["bytes"]["by_kind"]


def test_targets_are_shares_of_the_best_when_none_is_asked_for(spec: RunSpec, tmp_path: Path) -> None:
    """The best mean is 80 %: 72, 76 and 79.2."""
    numbers, text = report(write_run(tmp_path, spec), tmp_path / "out")
    assert (2, 0.8) == (numbers["best"]["after"], numbers["best"]["mean"])
    assert [0.72, 0.76, 0.792] == [pytest.approx(target["accuracy"]) for target in numbers["targets"]]
    assert "72.00 % (90 % of the best)" in text


def test_phases_and_losses_are_counted(spec: RunSpec, tmp_path: Path) -> None:
    """Four attempts of a minute's work; five counted updates; three losses, one attempt given up."""
    numbers, text = report(write_run(tmp_path, spec), tmp_path / "out")
    assert {"total": 240.0, "mean": 48.0} == numbers["phases"]["work"]
    assert {"total": 2.0, "mean": pytest.approx(2 / 3)} == numbers["phases"]["fold"]
    assert {"lease": 2, "diverged": 1} == numbers["losses"]
    assert {
        "one": {"asked": 4, "counted": 3, "lost": 1},
        "two": {"asked": 4, "counted": 2, "lost": 2},
    } == numbers["by_site"]
    page = Page(text)
    assert ["two", "4", "2", "2"] == page.row("two")
    assert ["a site's work", "a counted update", "48.000", "240.0"] == page.row("a site's work")
    assert re.search(r"8 updates.* 3 updates.* 1 attempt", text)


def test_the_distribution_is_that_of_the_sums(spec: RunSpec, tmp_path: Path) -> None:
    """Finished at 79 and 80 percent: two sites around the mark of 80."""
    numbers, text = report(write_run(tmp_path, spec), tmp_path / "out")
    assert {"79": 1, "80": 1} == numbers["spread"]["pre/test/combined"]
    assert "77.5 to 82.5 %: 2 sites" in text
    assert "--sites" in text


@pytest.mark.parametrize(
    ("accuracy", "place", "step"),
    [
        (0.0, 0, "0 to 2.5 %"),
        (0.8749, 17, "82.5 to 87.5 %"),
        (0.875, 18, "87.5 to 92.5 %"),
        (0.896, 18, "87.5 to 92.5 %"),
        (0.9267, 19, "92.5 to 97.5 %"),
        (1.0, 20, "97.5 to 100 %"),
    ],
)
def test_a_site_stands_in_the_step_it_belongs_to(
    spec: RunSpec, tmp_path: Path, accuracy: float, place: int, step: str
) -> None:
    """Though sums hold whole percents only; the marks stand under the middle of their steps."""
    total = {"pre/test/combined": vector(round(accuracy * 10_000), 10_000, 0.5)}
    run = tell(read_record(write_run(tmp_path, spec)), {})
    chart = distribution(replace(run, measured=read_measures({"000003-1-finish": total})))
    assert chart is not None
    assert [place] == [number for number, parts in enumerate(chart.columns) if parts["run"]]
    assert f"{step}: 1 site" == chart.names[place]
    assert {0: "0", 4: "20", 8: "40", 12: "60", 16: "80", 20: "100"} == chart.marks


def test_hostile_words_stay_words(spec: RunSpec, tmp_path: Path) -> None:
    """Names, reasons and a run's last words are shown and do nothing; pictures are drawn all the same."""
    run = write_run(tmp_path / "runs", spec, sites=(HOSTILE, f"{HOSTILE}2"), words=HOSTILE)
    check_clear(pfl("report", run, "--out", tmp_path / "out"), 0)
    page = Page((tmp_path / "out" / "report.html").read_text())
    assert not {"script", "img", "iframe"} & page.tags
    assert not [name for name in page.attributes if name.startswith("on")]
    assert [HOSTILE, "4", "3", "1"] == page.row(HOSTILE)
    assert ["2", "1", HOSTILE] == page.row("2", "1")[:3]
    assert HOSTILE in "".join(page.words)


def test_hostile_histories_stay_words(played: Played, tmp_path: Path) -> None:
    """A site's folder and what training called its numbers are a peer's words too."""
    spec = played.spec("dualfed")
    folder = tmp_path / "sites" / "<u>&x" / "runs" / spec.id
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(spec.to_json())
    line = {
        "task": "000003-1-finish",
        "scores": {"pre/test/combined": {"accuracy": 0.5}},
        "metrics": {"../<script>$": 1.0, "odd": math.inf},
    }
    lines = [{**line, "task": "000001-1-train", "scores": {}}, line]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "history.jsonl").write_text(text + '{"task": "0000')
    run = played.run("dualfed")
    out = tmp_path / "out"
    check_clear(pfl("report", run, "--out", out, "--sites", tmp_path / "sites", "--json"), 0)
    page = Page((out / "report.html").read_text())
    assert not {"script", "u"} & page.tags
    assert ["<u>&x", "50.00"] == page.row("<u>&x")[:2]
    assert "../<script>$" in page.words
    # Its family is what stands before the stroke.
    assert (out / "learning___.png").is_file()
    assert {"../<script>$": {"1": 1.0}} == json.loads((out / "report.json").read_text())["learning"]["<u>&x"]


def test_another_runs_history_of_the_same_name_is_not_taken(played: Played, tmp_path: Path) -> None:
    """The same id in another federation: its specification is another one. Alone it is a wrong folder."""
    spec = played.spec("dualfed")
    folder = tmp_path / "sites" / "stranger" / "runs" / spec.id
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(replace(spec, seed=99).to_json())
    (folder / "history.jsonl").write_text(
        '{"task": "000001-1-train", "scores": {}, "metrics": {"loss": 1}}\n'
    )
    said = pfl("report", played.run("dualfed"), "--sites", tmp_path / "sites", "--no-pictures")
    check_clear(said, 2, "holds no state of a site of run", f"{spec.id} of stranger", *SITES)
    shutil.copytree(played.folder / "sites" / SITES[0], tmp_path / "sites" / SITES[0])
    numbers, _ = report(played.run("dualfed"), tmp_path / "out", "--sites", tmp_path / "sites")
    assert set(SITES) == set(numbers["learning"])


def test_a_run_under_way_is_read_and_left_alone(spec: RunSpec, tmp_path: Path) -> None:
    """Its coordinator holds the journal open, in the middle of a round; not a byte of its folder changes."""
    book = Book(tmp_path / "runs", spec, sites=("one", "two"))
    book.commit(1, course=course(1, 1, 1000.0, 10.0, down=1, up=1), accuracies=(0.1, 0.3))
    book.journal.open_attempt(2, book.sites, Draw(book.sites, frozenset()))
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in book.folder.iterdir()}
    numbers, text = report(book.folder, tmp_path / "out")
    assert before == {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in book.folder.iterdir()
    }
    assert ("running", 1, 2) == (numbers["status"], numbers["rounds"]["committed"], len(numbers["attempts"]))
    assert "under way" in text
    book.commit(2, accuracies=(0.5, 0.5))
    book.close("running")


def test_half_a_commit_of_a_killed_coordinator_stays_where_it_is(spec: RunSpec, tmp_path: Path) -> None:
    """The report shows the last whole commit; to undo the half one is left to the coordinator that comes next."""
    run, killed = write_run(tmp_path / "runs", spec), tmp_path / "killed" / spec.id
    with closing(sqlite3.connect(run / "journal.sqlite", isolation_level=None)) as db:
        db.execute("pragma cache_size=1")
        db.execute("begin immediate")
        for number in range(200):
            db.execute("insert into handed values (?, ?, 0)", (f"{number}" * 50, "one"))
        db.execute("update attempt set status = 'abandoned'")
        shutil.copytree(run, killed)
        db.execute("rollback")
    before = {path.name: path.read_bytes() for path in killed.iterdir()}
    assert before["journal.sqlite-journal"]
    numbers, _ = report(killed, tmp_path / "out")
    assert 3 == numbers["rounds"]["committed"]
    assert before == {path.name: path.read_bytes() for path in killed.iterdir()}


def test_a_run_before_its_first_round_has_a_page(spec: RunSpec, tmp_path: Path) -> None:
    """Nothing measured, nothing spent, and said so."""
    run = Book(tmp_path / "runs", spec, sites=("one", "two")).close("running")
    numbers, text = report(run, tmp_path / "out")
    assert (None, [], {}) == (numbers["final"], numbers["curve"], numbers["phases"])
    assert "measured yet" in text


def test_an_older_journal_gives_what_it_has(played: Played, tmp_path: Path) -> None:
    """No courses, no tasks handed out: accuracy and pinned bytes stay, times are missing and said to be."""
    source = played.run("dualfed")
    old = tmp_path / "runs" / source.name
    old.mkdir(parents=True)
    (old / "journal.sqlite").write_bytes((source / "journal.sqlite").read_bytes())
    with closing(sqlite3.connect(old / "journal.sqlite")) as db:
        db.execute("drop table course")
        db.execute("drop table handed")
        db.execute("pragma user_version = 0")
        db.commit()
    new, _ = report(source, tmp_path / "new")
    numbers, text = report(old, tmp_path / "out")
    assert (new["curve"], new["bytes"]["pinned"]) == (numbers["curve"], numbers["bytes"]["pinned"])
    assert {} == numbers["phases"]
    assert "time" not in Page(text).ids
    assert "older release" in text
    with closing(sqlite3.connect(old / "journal.sqlite")) as db:
        tables = {name for (name,) in db.execute("select name from sqlite_master where type = 'table'")}
    assert "course" not in tables


def test_a_run_is_found_by_its_id(played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the state folder here; the report lies in a folder of the run's name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "nothing"))
    (tmp_path / "pfl-state").symlink_to(played.folder / "coordinator")
    name = played.run("fedavg").name
    check_clear(pfl("report", name, "--no-pictures"), 0)
    assert json.loads((tmp_path / f"report-{name}" / "report.json").read_text())["run"] == name
    said = pfl("report", "fedavg-002", "--no-pictures")
    check_clear(said, 2, "there is no run fedavg-002", name)


def test_what_cannot_be_reported_is_said(played: Played, spec: RunSpec, tmp_path: Path) -> None:
    """A wrong target, a folder that is none, a run of other sites beside this one, a journal that is none."""
    run = played.run("dualfed")
    check_clear(pfl("report", run, "--target", "90", "--no-pictures"), 2, "--target is 90", "as 0.9")
    check_clear(pfl("report", run, "--sites", tmp_path / "no", "--no-pictures"), 2, "is not a folder")
    other = Book(tmp_path, spec, sites=("x", "y")).close()
    check_clear(
        pfl("report", run, "--beside", other, "--no-pictures"), 2, "cannot stand beside", "same sites"
    )
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "journal.sqlite").write_bytes(b"no database" * 100)
    check_clear(pfl("report", broken, "--no-pictures"), 4, "cannot be read")


def test_without_matplotlib_it_says_what_to_install(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is written; without pictures nothing is missing."""
    for name in [
        name for name in sys.modules if name.startswith(("matplotlib", "pfl_deploy.report.charts.png"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    import pfl_deploy.report.charts

    monkeypatch.delattr(pfl_deploy.report.charts, "png", raising=False)
    said = pfl("report", played.run("fedavg"), "--out", tmp_path / "out")
    check_clear(said, 2, "matplotlib", "pip install 'pfl-net[reports]'", "--no-pictures")
    assert not (tmp_path / "out").exists()
    report(played.run("fedavg"), tmp_path / "out")


def test_runs_of_one_method_are_told_apart(played: Played, spec: RunSpec, tmp_path: Path) -> None:
    """By their ids; what is beside a run once stands there once."""
    run, other = write_run(tmp_path, spec), write_run(tmp_path, replace(spec, id="dualfed-200-bbbb", seed=6))
    numbers, text = report(run, tmp_path / "out", "--beside", str(other), "--beside", str(run))
    assert ["other1"] == [told["kind"] for told in numbers["beside"]]
    page = Page(text)
    assert ["", "dualfed-200-bbbb", "2", "1.9 kB", "1,900", "30.0 s"] == page.row("", "dualfed-200-bbbb")


def test_unfinished_or_other_runs_are_not_set_beside(played: Played, spec: RunSpec, tmp_path: Path) -> None:
    """Only finished runs of plain methods, of the same sites, shape and classes."""
    plain = replace(played.spec("fedavg"), rounds=3)
    run = write_run(tmp_path, spec)
    write_run(tmp_path, replace(plain, id="fedavg-100-aaaa"), sites=("one", "three"))
    Book(tmp_path, replace(plain, id="fedavg-101-aaaa"), sites=("one", "two")).close("stopped")
    record = read_record(run)
    own = subject_of(record)
    assert {} == plain_runs.find_plain_runs(find_run.find_run(str(run)), own)
    right = write_run(tmp_path, replace(plain, id="fedavg-102-aaaa"))
    assert {"fedavg": right} == plain_runs.find_plain_runs(find_run.find_run(str(run)), own)


@pytest.mark.parametrize(
    ("values", "ends"), [([0.0], (0, 1)), ([3.0], (0, 3)), ([0.31], (0, 0.4)), ([-1.0, 1.0], (-1, 1))]
)
def test_axes_end_at_round_numbers(values: list[float], ends: tuple[float, float]) -> None:
    """All values lie on them, zero too."""
    scale = scale_to(values)
    assert ends == pytest.approx((scale.low, scale.high))
    assert pytest.approx(0.0) in scale.ticks


def test_long_curves_keep_their_ends() -> None:
    """Of ten thousand points four hundred are drawn."""
    shown = thin(range(10_000))
    assert (400, 0, 9999) == (len(shown), shown[0], shown[-1])
    assert [1, 2] == thin([1, 2])


def test_a_mean_over_few_sites_is_not_reported(spec: RunSpec, tmp_path: Path) -> None:
    """Unless somebody asks for it; the page says of how many it would be, and what would show it."""
    run = write_run(tmp_path, spec)
    check_clear(pfl("report", run, "--out", tmp_path / "out", "--no-pictures"), 0)
    numbers = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (None, None) == (numbers["best"], numbers["final"])
    assert (
        "2 sites: the mean over fewer than 5 is not shown" in (tmp_path / "out" / "report.html").read_text()
    )
    shown, _ = report(run, tmp_path / "all")
    assert shown["best"] is not None
