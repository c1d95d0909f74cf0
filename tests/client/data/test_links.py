"""Links in a data folder are an error unless its owner asked for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pfl_client import data
from pfl_client.data.links import places
from pfl_common.errors import DataError
from tests.client.data.test_images import draw, folder, spec
from tests.client.data.written import write_rows


def move_aside(path: Path) -> None:
    """Put a file or a folder elsewhere on the disk, and a link in its place."""
    away = path.parents[1] if path.parent.name == "site" else path.parents[3]
    aside = away / "aside" / path.name
    aside.parent.mkdir(exist_ok=True)
    path.rename(aside)
    path.symlink_to(aside)


def classes(site: Path) -> Path:
    """Pictures in class folders; one class lies elsewhere."""
    for label, colour in (("cat", 9), ("dog", 200)):
        for n in range(4):
            draw(site / label / f"{n}.png", colour=colour + n)
    return site / "dog"


def parts(site: Path) -> Path:
    """Pictures in parts; the training part lies elsewhere."""
    for label, colour in (("cat", 9), ("dog", 200)):
        draw(site / "train" / label / "Smith.png", colour=colour)
    return site / "train"


def one_file(site: Path) -> Path:
    """The same; one picture lies elsewhere."""
    parts(site)
    return site / "train" / "cat" / "Smith.png"


def patients(site: Path) -> Path:
    """Pictures by patient; one patient lies elsewhere."""
    for label in ("cat", "dog"):
        for patient in ("Smith", "Jones", "Brown", "Green", "White"):
            draw(site / "train" / label / patient / "1.png", colour=len(label + patient))
    (site / "data.json").write_text(json.dumps({"groups": "folder"}))
    return site / "train" / "cat" / "Smith"


def arrays(site: Path) -> Path:
    """A file of arrays."""
    site.mkdir()
    np.savez(site / "train.npz", x=np.zeros((4, 4, 4, 1), np.uint8), y=np.arange(4) % 2)
    return site / "train.npz"


def names(site: Path) -> Path:
    """What a file of arrays calls its classes."""
    arrays(site)
    (site / "classes.json").write_text('["cat", "dog"]')
    return site / "classes.json"


def rows(site: Path) -> Path:
    """A table."""
    site.mkdir()
    return write_rows(site / "train.csv", [{"age": n, "label": "ab"[n % 2]} for n in range(6)])


def said(site: Path) -> Path:
    """What a site says of its data."""
    parts(site)
    (site / "data.json").write_text('{"kind": "image"}')
    return site / "data.json"


@pytest.mark.parametrize("make", [classes, parts, one_file, patients, arrays, names, rows, said])
def test_a_link_is_an_error_unless_it_is_asked_for(make: Callable[[Path], Path], tmp_path: Path) -> None:
    """Whatever is a link; its name may be a patient's, so only its place is said. Asked for, it is followed."""
    site = tmp_path / "site"
    linked = make(site)
    before = data.describe(folder(site))
    move_aside(linked)
    with pytest.raises(DataError, match=r"entry \d of .* is a link") as error:
        data.describe(folder(site))
    assert "Smith" not in f"{error.value.seen}{error.value.advice}"
    assert linked.name in error.value.file
    assert before == data.describe(folder(site, follow_links=True))


def test_the_data_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    """Its owner named it."""
    classes(tmp_path / "site")
    (tmp_path / "link").symlink_to(tmp_path / "site")
    assert ("cat", "dog") == data.describe(folder(tmp_path / "link")).classes


def test_what_is_no_data_may_be_a_link(tmp_path: Path) -> None:
    """A note, a hidden folder: nothing of them is read."""
    parts(tmp_path / "site")
    for name in ("notes.txt", ".cache", "docs"):
        (tmp_path / "site" / name).symlink_to(tmp_path)
    assert 2 == data.describe(folder(tmp_path / "site")).samples


def test_the_environment_says_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For `pfl simulate` and others, which read folders without a site's settings."""
    move_aside(classes(tmp_path / "site"))
    monkeypatch.setenv("PFL_FOLLOW_LINKS", "true")
    assert 2 == len(data.load(folder(tmp_path / "site"), spec()).counts)


def test_a_place_is_that_of_ls(tmp_path: Path) -> None:
    """Hidden entries are not counted."""
    for name in ("b", ".a", "a"):
        (tmp_path / name).touch()
    assert {"a": 1, "b": 2} == {path.name: place for path, place in places(tmp_path).items()}
