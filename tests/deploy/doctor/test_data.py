"""`pfl doctor --data FOLDER`: what the site would take, and each file that cannot be read by its name."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from pfl_client.data import BadFile, Findings
from pfl_deploy.cli import main
from pfl_deploy.doctor import data
from pfl_deploy.doctor.data import examine_data
from pfl_deploy.doctor.examination import show
from pfl_deploy.doctor.result import Check, exit_code
from tests.client.data.written import make_patients, write_rows
from tests.deploy.support.processes import write_site
from tests.words import check_clear, speak


def look(folder: Path) -> list[Check]:
    """The findings."""
    return list(examine_data(folder))


def said(found: list[Check], level: str = "") -> str:
    """All words of one level, or all."""
    return "\n".join(f"{c.about}: {c.words} {c.advice}" for c in found if level in ("", c.level))


def write_pictures(folder: Path, *, sizes: tuple[int, ...] = (16,), mode: str = "L") -> Path:
    """Pictures in class folders."""
    for part, count, lighter in (("train", 6, 0), ("test", 3, 20)):
        for place, name in enumerate(("ill", "well")):
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                size = sizes[number % len(sizes)]
                shade = np.full((size, size), 40 + 90 * place + number + lighter, dtype=np.uint8)
                Image.fromarray(shade).convert(mode).save(folder / part / name / f"{number}.png")
    return folder


def test_a_sound_folder_of_pictures(tmp_path: Path) -> None:
    """Layout, kind, size, counts by part and class, the name the site would have; nothing to warn of."""
    found = look(write_pictures(tmp_path / "Hospital A"))
    assert {"ok"} == {check.level for check in found}, said(found)
    words = said(found)
    for phrase in (
        "images in parts",
        "16x16",
        "12 samples, ill: 6, well: 6",
        "6 samples, ill: 3, well: 3",
        "hospital_a",
    ):
        assert phrase in words


def test_arrays_with_their_range(tmp_path: Path) -> None:
    """As what they were recognised, and between which numbers they lie."""
    folder = tmp_path / "lab"
    folder.mkdir()
    for part, count in (("train", 12), ("test", 6)):
        x = np.linspace(-3, 8, count * 5, dtype=np.float32).reshape(count, 5)
        np.savez(folder / f"{part}.npz", x=x, y=np.arange(count) % 2)
    words = said(look(folder))
    for fact in ("train.npz", "5 columns", "-3..8", "from -3 to 8"):
        assert fact in words
    assert "ok" == look(write_site(tmp_path / "other", samples=12))[0].level


def test_every_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """With its path, where it stands in its folder, and why; odd sizes are a warning."""
    folder = write_pictures(tmp_path / "hospital_b", sizes=(16, 20))
    notes, cut = folder / "train" / "ill" / "notes.txt", folder / "test" / "well" / "0.png"
    notes.write_text("no picture")
    cut.write_bytes(cut.read_bytes()[:40])
    found = look(folder)
    named = [check for check in found if check.about == "unreadable file"]
    assert {str(notes), str(cut)} == {path for path in (str(notes), str(cut)) if path in said(named)}
    assert 2 == len(named)
    assert all("file " in check.words and check.advice for check in named)
    assert "sizes" in said(found, "warning")
    assert 0 == exit_code(found), "a site leaves them out and goes on"


def test_pictures_cut_short_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A half JPEG and the first third of a PNG have good headers; the command names both, as JSON too."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = write_pictures(tmp_path / "hospital_c")
    values = np.random.default_rng(3).integers(0, 256, (48, 48), dtype=np.uint8)
    half, third = folder / "train" / "ill" / "half.jpg", folder / "test" / "well" / "third.png"
    for file, share in ((half, 2), (third, 3)):
        Image.fromarray(values).save(file)
        file.write_bytes(file.read_bytes()[: file.stat().st_size // share])
    told = json.loads(speak(main, "doctor", "--json", "--data", folder).out)
    named = [check for check in told["checks"] if check["about"] == "unreadable file"]
    assert {
        f"{half} (file 7 of train/ill): it is damaged or cut short",
        f"{third} (file 4 of test/well): it is damaged or cut short",
    } == {check["words"] for check in named}
    counts = {check["about"]: check["words"] for check in told["checks"]}
    assert "12 samples, ill: 6, well: 6" == counts["data, train"]
    check_clear(speak(main, "doctor", "--data", folder), 0, "half.jpg", "third.png", "2 of 20 files")


def test_a_file_that_may_not_be_read_is_no_broken_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thing is to be done about it."""
    closed = BadFile("file 2 of train/ill", tmp_path / "1.png", "no permission to read it", denied=True)
    found = Findings("images in parts", unreadable=(closed,))
    monkeypatch.setattr(data, "look_through", lambda folder: found)
    (check,) = [check for check in look(tmp_path) if check.about == "unreadable file"]
    for fact in (str(closed.path), "file 2 of train/ill", "no permission"):
        assert fact in check.words
    assert "chmod" in check.advice


@pytest.mark.parametrize("name", [b"a\xff", b"a\x1b[2Jb"])
def test_a_name_that_no_terminal_can_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    """It is told by its numbers, and ends nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))
    told = speak(main, "doctor", "--data", folder)
    check_clear(told, 3, "does not exist", "a\\")
    told.out.encode()
    assert "\x1b" not in told.out
    assert 3 == json.loads(speak(main, "doctor", "--json", "--data", folder).out)["exit_code"]


def test_a_folder_that_is_of_no_use_is_an_error(tmp_path: Path) -> None:
    """With the exit code of the site's own refusal."""
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "nowhere"):
        found = look(folder)
        assert 3 == exit_code(found), said(found)
        assert said(found, "error")
    with_nothing = write_pictures(tmp_path / "hospital_d")
    for file in with_nothing.rglob("*.png"):
        file.write_text("no picture")
    found = look(with_nothing)
    assert (3, 18) == (exit_code(found), sum(check.about == "unreadable file" for check in found))


def test_many_classes_are_told_in_short(tmp_path: Path) -> None:
    """From the smallest to the largest."""
    classes = [f"c{number:02}" for number in range(20)]
    write_site(tmp_path / "many", samples=45, classes=classes, size=80)
    assert re.search(r"45 samples of 20 classes.* 2 \(", said(look(tmp_path / "many")))


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder stands first; its error is the exit code, in words and as JSON."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "empty").mkdir()
    check_clear(
        speak(main, "doctor", "--data", tmp_path / "empty"), 3, "error", "the data folder is empty", "->"
    )
    told = json.loads(speak(main, "doctor", "--json", "--data", write_pictures(tmp_path / "a")).out)
    assert (0, "data") == (told["exit_code"], told["checks"][0]["about"])


def test_only_the_level_is_coloured() -> None:
    """What is said is read, not looked at."""
    shown = io.StringIO()
    show(Check("a", "error", "b"), Console(file=shown, force_terminal=True, color_system="standard"))
    assert shown.getvalue().rstrip().endswith("\x1b[0ma: b")


def test_a_table_is_told_with_what_would_leave(tmp_path: Path) -> None:
    """Its owner sees the columns whose categories go by name before a site begins."""
    write_rows(tmp_path / "ward" / "data.csv", make_patients())
    words = said(look(tmp_path / "ward"))
    assert "a table in data.csv, divided by this program; recognised as a table of 3 columns" in words
    assert "the site would tell the names of 3 columns" in words
    assert "4 categories of 2 columns by name ('sex', 'ward')" in words
