"""`pfl`: simulations and splits as a researcher types them, and what is said when a word is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from pfl_common.spec.run import RunSpec
from pfl_deploy.cli import main
from pfl_deploy.datasets import sources
from pfl_deploy.datasets.domains import Sizes
from pfl_deploy.datasets.labelled import Source
from pfl_deploy.datasets.npm_archives import Pin
from pfl_deploy.datasets.split import OF_DIGITS, OF_LABELLED, PARTITIONS, SOURCES, Plan
from pfl_deploy.simulation.tables import show_sites
from tests.deploy.support.processes import write_site
from tests.words import Spoken, check_clear, speak


def pfl(*words: str | Path) -> Spoken:
    """The program with these words."""
    return speak(main, *words)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user works, with two sites of arrays below `data`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for seed, name in enumerate(("hospital_a", "hospital_b")):
        write_site(tmp_path / "data" / name, samples=12 + 6 * seed, size=12, seed=seed)
    return tmp_path


def write_tree(folder: Path, *, shade: int) -> None:
    """Images in class folders, without train and test folders."""
    for place, name in enumerate(("ill", "well")):
        (folder / name).mkdir(parents=True)
        for number in range(8):
            pixels = np.full((12, 12), shade + 120 * place + number, dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def test_a_simulation_of_arrays(here: Path) -> None:
    """Each site's accuracy as JSON; the run's specification, played again elsewhere, gives the same bytes."""
    words = ("--method", "dualfed", "--rounds", "2", "--seed", "3", "--set", "lr=0.05")
    said = pfl("simulate", "--data", "data", "--json", *words)
    check_clear(said, 0)
    told = json.loads(said.out)
    assert {"hospital_a", "hospital_b"} == told["accuracy"].keys()
    assert {"test/combined", "test/global", "test/personal"} <= {
        name.removeprefix("pre/") for name in told["accuracy"]["hospital_a"]
    }
    spec = RunSpec.from_json(
        (next(here.glob("pfl-simulation/sites/hospital_a/runs/*")) / "spec.json").read_bytes()
    )
    assert (told["run"], 3, 0.05) == (spec.id, spec.seed, spec.settings["lr"])

    (here / "spec.json").write_text(spec.to_json())
    again = pfl("simulate", "--data", "data", "--json", "--spec", "spec.json", "--out", "again")
    check_clear(again, 0)
    assert told == json.loads(again.out)
    models = [
        here / out / "sites" / "hospital_b" / "runs" / spec.id / "serving"
        for out in ("pfl-simulation", "again")
    ]
    first, second = (folder / "serving.safetensors" for folder in models)
    assert first.read_bytes() == second.read_bytes()


def test_a_simulation_of_image_folders(here: Path) -> None:
    """Folders of images are as good as arrays, and the table names each site."""
    for shade, name in enumerate(("Hospital A", "hospital_b")):
        write_tree(here / "images" / name, shade=40 + shade)
    said = pfl("simulate", "--data", "images", "--method", "fedavg", "--rounds", "1")
    check_clear(said, 0, "hospital_a", "hospital_b", "test", "combined")


@pytest.mark.parametrize(("width", "columns"), [(80, 4), (77, 4), (76, 3), (10, 1)])
def test_a_table_of_sites_can_be_read_in_any_width(width: int, columns: int) -> None:
    """The test accuracy of the whole model is always there, and no name is cut."""
    name = "the_hospital_of_a_long_name"
    measures = [f"pre/{split}/{part}" for split in ("test", "validation") for part in ("combined", "global")]
    console = Console(width=width, file=StringIO(), soft_wrap=True, highlight=False)
    show_sites({name: {measure: place / 8 for place, measure in enumerate(measures)}}, console)
    said = console.file.getvalue()  # type: ignore[attr-defined]  # it is the StringIO from above
    shown = [figure for figure in ("0.000", "0.125", "0.250", "0.375") if figure in said]
    assert ["0.000", "0.125", "0.250", "0.375"][:columns] == shown, said
    assert name in said, said
    assert (columns < len(measures)) == ("more in a wider terminal" in said), said
    assert columns == 1 or width >= max(map(len, said.splitlines())), said


@pytest.mark.parametrize(
    ("words", "code", "phrases"),
    [
        (("--data", "nowhere"), 3, ("nowhere holds no data folders", "one folder per site", "pfl split")),
        (("--data", "data", "--method", "dualfde"), 2, ("no method 'dualfde'", "did you mean 'dualfed'?")),
        (("--data", "data", "--set", "lamda=1"), 2, ("dualfed has no setting 'lamda'", "'lambda'")),
        (("--data", "data", "--backbone", "cn"), 2, ("'cn'", "did you mean 'cnn'?")),
        (
            ("--data", "data", "--participation", "2"),
            2,
            ("participation is '2'", "a ratio above 0 and at most 1"),
        ),
        (("--data", "data", "--participation", "half"), 2, ("participation is 'half'", "write 0.5")),
        (("--data", "data", "--participation", "hospital_c"), 2, ("names hospital_c", "known: hospital_a")),
        (("--data", "data", "--set", "lr=-1"), 2, ("setting 'lr' is '-1'", "more than 0")),
        (("--data", "data", "--rounds", "0"), 2, ("setting 'rounds' is 0", "from 1")),
        (("--data", "data", "--drop", "1"), 2, ("setting 'drop' is 1.0", "no site ever reports")),
        (("--data", "data", "--image-size", "3"), 2, ("'image_size' is 3", "8 or more")),
        (("--data", "data", "--rounds", "many"), 2, ("--rounds is 'many'", "pfl simulate --help")),
        (("--method", "fedavg"), 2, ("--data is missing", "one data folder per site")),
        (("--data", "data", "--spec", "no.json"), 2, ("--spec no.json cannot be read", "spec.json")),
        (("--data", "data", "--spec", "data/hospital_a/classes.json"), 2, ("is no specification of a run",)),
        (("--data", "data", "--config", "no.toml"), 2, ("--config no.toml cannot be read",)),
        (("--data", "data", "--out", "data/hospital_a/train.npz"), 4, ("cannot be made", "--state")),
    ],
)
def test_a_simulation_with_a_wrong_word(
    here: Path, words: tuple[str, ...], code: int, phrases: tuple[str, ...]
) -> None:
    """The word is named, with the nearest right one, and nothing has begun."""
    check_clear(pfl("simulate", *words), code, *phrases)
    assert not (here / "pfl-simulation" / "coordinator" / "runs").exists()


@pytest.mark.parametrize(
    ("words", "phrases"),
    [
        (("statu",), ("no command 'statu'", "did you mean status?", "pfl --help")),
        (("--verson",), ("no option --verson", "did you mean --version")),
        (("status", "--serve", "x"), ("no option --serve", "did you mean --server", "pfl status --help")),
        (("status", "more"), ("nothing is expected where 'more' stands",)),
        (("invite",), ("NAME is missing", "The site's name")),
        (("demo", "--rounds", "0"), ("--rounds is '0'", "expected: 1 or more")),
        (("compare", "x.toml", "--data", "d", "--jobs", "0"), ("--jobs is '0'", "expected: 1 or more")),
    ],
)
def test_a_wrong_word_of_the_hand_tool(words: tuple[str, ...], phrases: tuple[str, ...]) -> None:
    """One form of errors, also for what the command line's library refuses."""
    said = pfl(*words)
    check_clear(said, 2, *phrases)
    assert said.err.startswith("pfl: ")
    assert "Usage:" not in said.text


def test_no_word_at_all_shows_the_commands() -> None:
    """As before with exit code 2: a script that forgets the command is wrong."""
    said = pfl()
    assert (2, "") == (said.code, said.out)
    assert "simulate" in said.err
    assert 0 == pfl("-h").code
    assert pfl("--version").out.startswith("pfl 0.")


def test_a_specification_of_other_sites(here: Path) -> None:
    """Sites are compared by name."""
    check_clear(pfl("simulate", "--data", "data", "--rounds", "1", "--method", "local", "--json"), 0)
    spec = next(here.glob("pfl-simulation/sites/hospital_a/runs/*/spec.json"))
    (here / "data" / "hospital_b").rename(here / "data" / "hospital_c")
    said = pfl("simulate", "--data", "data", "--spec", spec, "--out", "again")
    check_clear(said, 2, "is for hospital_a, hospital_b; --data holds hospital_a, hospital_c", "called alike")


def test_two_folders_with_one_name(here: Path) -> None:
    """Names that differ in letters that a site's name cannot have are one name."""
    write_site(here / "data" / "Hospital A", samples=12)
    said = pfl("simulate", "--data", "data")
    check_clear(said, 2, "two data folders are named 'hospital_a'", "one name per site", "rename one")


def test_one_class_everywhere(here: Path) -> None:
    """A federation without anything to tell apart ends at once."""
    for name in ("hospital_a", "hospital_b"):
        write_site(here / "ill" / name, samples=8, classes=("ill",))
    said = pfl("simulate", "--data", "ill", "--json")
    check_clear(said, 3, "the whole federation knows 1 class (ill)", "at least two classes over all sites")


def fetch_nothing(pin: Pin, cache: Path) -> Path:
    """What was typed is looked at first."""
    raise AssertionError(f"{pin.name} was fetched")


def cut_digits(stock: sources.Stock) -> Source:
    """The digits of scikit-learn as if their authors had cut them in two."""
    whole = sources.optdigits()
    half = np.arange(len(whole.train)) % 2
    return replace(
        whole, train=whole.train.take(np.flatnonzero(half)), test=whole.train.take(np.flatnonzero(1 - half))
    )


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_split(here: Path, partition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every partition makes one folder per site, twice the same."""
    monkeypatch.setitem(SOURCES, "cut", cut_digits)
    for out in ("one", "two"):
        heeded = ("--beta", "0.5") if "dirichlet" in partition else ()
        said = pfl("split", "cut", "--out", out, "--partition", partition, "--sites", "5", *heeded)
        check_clear(said, 0)
        assert [str(path) for path in sorted(Path(out).iterdir()) if path.is_dir()] == said.out.split()
    sites = sorted(path.name for path in Path("one").iterdir() if path.is_dir())
    assert 5 == len(sites)
    for name in sites:
        for part in ("train.npz", "test.npz"):
            assert (here / "one" / name / part).read_bytes() == (here / "two" / name / part).read_bytes()
            with np.load(here / "one" / name / part) as arrays:
                assert (len(arrays["y"]), (8, 8)) == (len(arrays["x"]), arrays["x"].shape[1:3])
                assert len(arrays["y"]) > 0


def test_a_split_into_images_that_a_simulation_takes(here: Path) -> None:
    """What `pfl split` writes, `pfl simulate` reads."""
    split = (
        "--out",
        "sites",
        "--partition",
        "iid",
        "--sites",
        "3",
        "--form",
        "images",
        "--validation",
        "0.2",
    )
    check_clear(pfl("split", "optdigits", *split), 0, "sites/")
    said = pfl("simulate", "--data", "sites", "--method", "local", "--rounds", "1", "--json")
    check_clear(said, 0)
    (first, *others) = json.loads(said.out)["accuracy"].values()
    assert 2 == len(others)
    assert "pre/validation/combined" in first
    again = pfl("split", "optdigits", *split)
    check_clear(again, 3, "sites/site_00 exists and is not empty", "expected: a new folder", "what to do:")


@pytest.mark.parametrize(
    ("words", "phrases"),
    [
        (("optdigit", "--out", "o"), ("no data set 'optdigit'", "did you mean 'optdigits'?")),
        (("optdigits", "--out", "o", "--partition", "dirichle"), ("'dirichle'", "did you mean 'dirichlet'?")),
        (("digits", "--out", "o", "--domains", "mnits"), ("no digit domain 'mnits'", "did you mean")),
        (("optdigits", "--out", "o", "--form", "png"), ("--form is 'png'", "npz or images")),
        (("digits", "--out", "o", "--domains", ","), ("--domains is ','", "some of mnist, mnist_m")),
        (
            ("digits", "--out", "o", "--domains", "synth,hand,synth"),
            ("names synth twice", "each domain once"),
        ),
        (("digits", "--out", "o", "--train", "0"), ("train=0", "at least 1 for train and test")),
        (("digits", "--out", "o", "--shifted", "-1"), ("shifted=-1", "0 or more for validation and shifted")),
        (("digits", "--out", "o", "--test", "2501"), ("2501 test pictures asked of mnist_m", "at most 2500")),
        (("digits", "--out", "o", "--train", "1500"), ("asked of optdigits", "at most 1797 in all")),
        (("mnist", "--out", "o", "--partition", "dirichle"), ("'dirichle'", "did you mean 'dirichlet'?")),
        (("mnist", "--out", "o", "--sites", "0"), ("--sites is 0", "1 or more")),
        (("mnist", "--out", "o", "--beta", "nan"), ("--beta is nan", "a number above 0")),
        (("mnist", "--out", "o", "--beta", "-1"), ("--beta is -1.0", "a number above 0")),
        (("mnist", "--out", "o", "--validation", "1"), ("--validation is 1.0", "less than 1")),
        (("mnist", "--out", "o", "--validation", "-0.1"), ("--validation is -0.1", "0 or more")),
        (
            ("mnist", "--out", "o", "--partition", "pathological", "--classes-per-site", "0"),
            ("--classes-per-site is 0", "1 or more"),
        ),
        (("optdigits", "--out", "o", "--sites", "100000"), ("100000 sites", "1 to 1797 sites")),
        (
            ("optdigits", "--out", "o", "--partition", "pathological", "--classes-per-site", "99"),
            ("99 classes", "1 to 10"),
        ),
        (
            ("optdigits", "--out", "o", "--partition", "two-classes"),
            ("has no test part", "iid, pathological, dirichlet"),
        ),
    ],
)
def test_a_split_with_a_wrong_word(
    here: Path, words: tuple[str, ...], phrases: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word is named, nothing is fetched and nothing is written."""
    monkeypatch.setattr(sources, "obtain", fetch_nothing)
    check_clear(pfl("split", *words), 2, *phrases)
    assert not (here / "o").exists()


@pytest.mark.parametrize(
    ("words", "phrases"),
    [
        (("digits", "--partition", "iid"), ("--partition says nothing to the data set digits", "mnist, fashion")),
        (("digits", "--sites", "6"), ("--sites says nothing to the data set digits", "--domains, --train")),
        (("digits", "--beta", "1"), ("--beta says nothing",)),
        (("digits", "--classes-per-site", "2"), ("--classes-per-site says nothing",)),
        (("digits", "--validation", "0.2"), ("--validation says nothing", "--validation-images")),
        (("mnist", "--domains", "mnist"), ("--domains says nothing to the data set mnist", "--domains with digits")),
        (("mnist", "--train", "300"), ("--train says nothing to the data set mnist", "--partition, --sites")),
        (("fashion", "--test", "300"), ("--test says nothing to the data set fashion",)),
        (("optdigits", "--validation-images", "200"), ("--validation-images says nothing", "with digits")),
        (("cifar10", "--shifted", "10"), ("--shifted says nothing to the data set cifar10",)),
        (("mnist", "--partition", "iid", "--beta", "1"), ("--beta says nothing to the partition iid", "dirichlet or")),
        (("mnist", "--partition", "two-classes", "--beta", "1"), ("--beta says nothing to the partition two-classes",)),
        (("mnist", "--classes-per-site", "2"), ("nothing to the partition dirichlet", "--partition pathological")),
        (("digits", "--domains", "mnist,optdigits", "--shifted", "5"), ("--shifted says nothing to mnist, optdigits",)),
        (("digits", "--domains", "synth", "--cache", "c"), ("--cache says nothing to synth", "mnist or mnist_m")),
        (("optdigits", "--cache", "c"), ("--cache says nothing to optdigits", "mnist or cifar10")),
    ],
)  # fmt: skip
def test_a_split_refuses_words_it_would_ignore(
    here: Path, words: tuple[str, ...], phrases: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who types a word expects something of it, even if it is what would be done anyway."""
    monkeypatch.setattr(sources, "obtain", fetch_nothing)
    check_clear(pfl("split", *words, "--out", "o"), 2, *phrases, "leave it out")
    assert not (here / "o").exists()


def test_a_splits_help_names_the_defaults() -> None:
    """They stand in two places: where they are used, and in the text of the help."""
    said = " ".join(pfl("split", "--help").out.split())
    lines = {line.split()[0]: line for line in said.split(" --")[1:]}
    fields = {word: getattr(Sizes(), field) for word, field in OF_DIGITS.items() if word != "shifted"}
    fields |= {word: getattr(Plan(), word) for word in OF_LABELLED}
    for word, value in fields.items():
        assert f"[default: {value}]" in lines[word.replace("_", "-")]
    assert "[default: as many as" in lines["shifted"]
    assert "[default: all six]" in lines["domains"]


def test_what_a_split_keeps_of_its_words(here: Path) -> None:
    """Beside the data stands what they were cut by, and nothing that was not heeded."""
    check_clear(pfl("split", "optdigits", "--out", "iid", "--partition", "iid", "--sites", "2"), 0)
    check_clear(
        pfl("split", "optdigits", "--out", "d", "--sites", "2", "--beta", "5", "--validation", "0.1"), 0
    )
    iid, dirichlet = (
        json.loads((here / out / "site_00" / "origin.json").read_text()) for out in ("iid", "d")
    )
    assert ("iid", set()) == (iid["partition"], {"beta", "validation", "classes_per_site"} & set(iid))
    assert ("dirichlet", 5.0, 0.1) == (dirichlet["partition"], dirichlet["beta"], dirichlet["validation"])


def test_a_split_into_a_file(here: Path) -> None:
    """What lies where the folders should be is named before a data set is fetched."""
    (here / "notes").write_text("mine")
    for out in ("notes", "notes/sites"):
        check_clear(
            pfl("split", "digits", "--out", out), 2, f"--out {out}", "notes is a file", "choose another"
        )
    assert "mine" == (here / "notes").read_text()


def test_a_simulation_waits_for_everybody(tmp_path: Path) -> None:
    """Nobody is ever away in one process: on a busy machine the same sites count as on an idle one."""
    from pfl_deploy.simulation import tables

    given = {name: None for name in ("config", "set_", "spec", "method", "rounds")}
    settings, _ = tables.server_settings(given, folders=[tmp_path], state=tmp_path)
    assert 1.0 == settings.quorum
