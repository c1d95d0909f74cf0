"""Broken files can be found: by their place in a log, by their name on a terminal and for `pfl doctor`."""

from __future__ import annotations

import hashlib
import os
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import numpy as np
import pytest
from PIL import Image
from structlog.testing import capture_logs

from pfl_client import data
from pfl_client.data import findings, image_decoding
from pfl_client.trainer_process.api import DataFolder
from pfl_common.app.logs import HERE_ALONE
from pfl_common.errors import DataError
from tests.client.data.test_images import draw, folder, spec

NAME = "1x-patient-smith.png"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Two classes of three images; between the first two of one lies a file that is none."""
    for place, label in enumerate(("cat", "dog")):
        for n in range(3):
            draw(tmp_path / "train" / label / f"{n}.png", colour=100 * place + n)
        draw(tmp_path / "test" / label / "t.png", colour=100 * place + 50)
    draw(tmp_path / "train" / "cat" / "10.png")
    (tmp_path / "train" / "cat" / NAME).write_text("no image")
    (tmp_path / "train" / "cat" / ".hidden").write_text("not shown by ls")
    (tmp_path / "train" / "cat" / "0-notes").mkdir()
    return tmp_path


def test_the_place_is_that_in_the_folder_as_ls_shows_it(broken: Path) -> None:
    """0-notes, 0.png, 1.png, 10.png, 1x-..., 2.png: folders count, hidden files do not, the division plays no part."""
    (words,) = data.describe(folder(broken)).warnings
    assert "1 of 10 files are no images that can be read and are left out: file 5 of train/cat" == words
    listing = sorted(name for name in os.listdir(broken / "train" / "cat") if not name.startswith("."))
    assert NAME == listing[5 - 1]


def test_an_undivided_folder_has_the_same_places(tmp_path: Path) -> None:
    """Whichever part our division puts a file into."""
    for n in range(30):
        draw(tmp_path / "cat" / f"{n:02}.png")
        draw(tmp_path / "dog" / f"{n:02}.png")
    for n in (4, 17, 25):
        (tmp_path / "cat" / f"{n:02}.png").write_text("no image")
    words = next(words for words in data.describe(folder(tmp_path)).warnings if "no images" in words)
    places = {f"file {n + 1} of cat" for n in (4, 17, 25)}
    assert places == set(words.rpartition("left out: ")[2].split("; "))


@pytest.mark.parametrize("ask", ["describe", "load"])
def test_a_log_has_place_and_digest_a_terminal_the_name(broken: Path, ask: str) -> None:
    """The name stands under the key that only a terminal shows."""
    with capture_logs() as lines:
        data.describe(folder(broken)) if ask == "describe" else data.load(folder(broken), spec())
    (line,) = [line for line in lines if line["event"] == "a file is left out"]
    assert {"file": f"train/cat/{NAME}"} == line.pop(HERE_ALONE)
    assert "smith" not in str(line)
    assert "file 5 of train/cat" == line["position"]
    assert hashlib.sha256(b"no image").hexdigest().startswith(line["sha256"])


def test_no_permission_is_not_no_image(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said as such, in its own warning; a folder without any readable file says so too."""
    opening = image_decoding.Image.open

    def refuse(file: BinaryIO, **given: object) -> object:
        if Path(file.name).name in ("0.png", NAME):
            raise PermissionError(13, "Permission denied", file.name)
        return opening(file, **given)

    monkeypatch.setattr(image_decoding.Image, "open", refuse)
    (words,) = data.describe(folder(broken, most_bad=0.3)).warnings
    places = "file 2 of train/cat; file 5 of train/cat; file 1 of train/dog"
    assert f"3 of 10 files may not be read (Permission denied) and are left out: {places}" == words
    monkeypatch.setattr(
        image_decoding.Image, "open", lambda file, **given: refuse(SimpleNamespace(name="0.png"), **given)
    )
    with pytest.raises(
        DataError, match="none of the training files of site-3 may be read: Permission denied"
    ):
        data.describe(folder(broken))


def test_a_folder_that_may_not_be_listed(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system says it: words, and the folder's name for the terminal alone."""
    listing = Path.iterdir

    def refuse(path: Path) -> object:
        if path.name == "cat":
            raise PermissionError(13, "Permission denied", str(path))
        return listing(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(DataError, match="may not be read: Permission denied") as error:
        data.describe(folder(broken))
    assert error.value.file.endswith("cat")
    assert "smith" not in str(error.value)


def test_arrays_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not "cannot be read as arrays"."""
    np.savez(tmp_path / "train.npz", x=np.zeros((2, 4), np.float32), y=np.array([0, 1]))

    def refuse(path: Path, *_: object) -> object:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"train.npz may not be read: Permission denied"):
        data.describe(DataFolder(tmp_path, "site-3"))


def make_entry(folder: Path, name: bytes) -> bytes:
    """A path below a folder that no text can name."""
    return os.path.join(os.fsencode(folder), name)


def test_a_class_that_is_no_text_is_refused_in_words(broken: Path) -> None:
    """Its bytes are shown safely, and how to find it."""
    os.mkdir(make_entry(broken / "train", b"caf\xe9"))
    with pytest.raises(DataError, match="is not UTF-8") as error:
        data.describe(folder(broken))
    assert r"b'caf\xe9'" in error.value.seen
    assert r"shows as caf\351, at" in error.value.advice, "as ls -b writes it"
    str(error.value).encode()


def test_a_name_is_escaped_as_ls_does(broken: Path) -> None:
    """Bytes that are no text as octal digits, spaces and backslashes marked; what can be read stays."""
    os.mkdir(make_entry(broken / "train", "ä b\\\t\x01".encode() + b"\xe4\xff"))
    with pytest.raises(DataError, match="is not UTF-8") as error:
        data.describe(folder(broken))
    assert r"shows as ä\ b\\\t\001\344\377, at" in error.value.advice


@pytest.mark.parametrize("divided", [True, False])
def test_files_whose_names_are_no_text_are_read(tmp_path: Path, divided: bool) -> None:
    """Their pixels are as good as any; a broken one is named safely."""
    for label in ("cat", "dog"):
        for n in range(4):
            draw(tmp_path / ("train" if divided else "") / label / f"{n}.png")
    inside = tmp_path / ("train" if divided else "") / "cat"
    os.rename(inside / "0.png", make_entry(inside, b"\xff0.png"))
    with open(make_entry(inside, b"\xfe1.png"), "w") as file:
        file.write("no image")
    with capture_logs() as lines:
        seen = data.describe(folder(tmp_path))
    (line,) = [line for line in lines if line["event"] == "a file is left out"]
    line[HERE_ALONE]["file"].encode()
    assert 64 == len(seen.data)
    read = data.load(folder(tmp_path), spec())
    assert 8 == len(read.train) + len(read.test)


def test_a_folder_is_looked_through(broken: Path) -> None:
    """Layout, counts by part and class, sizes, what was recognised, and each bad file with place, path and reason."""
    found = data.look_through(broken)
    assert "images in parts" == found.layout
    assert ({"cat": 4, "dog": 3}, {"cat": 1, "dog": 1}) == (found.counts["train"], found.counts["test"])
    assert found.description is not None
    assert ((4, 4, 9),) == found.description.sizes
    for fact in ("8 bits", "1x4x4"):
        assert fact in found.recognised
    (bad,) = found.unreadable
    assert ("file 5 of train/cat", broken / "train" / "cat" / NAME, "its format is not known") == (
        bad.position,
        bad.path,
        bad.why,
    )
    assert found.warnings
    assert found.error is None


def noise(path: Path, *, bits: int = 8) -> Path:
    """A picture that does not fit into its file's first bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(7).integers(
        0, 2**bits, (48, 40), dtype=np.uint16 if bits == 16 else np.uint8
    )
    Image.fromarray(values).save(path)
    return path


@pytest.mark.parametrize(("name", "bits"), [("a.png", 8), ("a.png", 16), ("a.jpg", 8)])
@pytest.mark.parametrize("part", ["train", "test"])
def test_a_picture_cut_short_is_found(tmp_path: Path, name: str, bits: int, part: str) -> None:
    """Its first bytes are in order, so that a start counts it; who looks through the folder reads it to its end."""
    for place, label in enumerate(("cat", "dog")):
        for number in range(2 + place):
            noise(tmp_path / part / label / f"{number}-{name}", bits=bits)
            noise(tmp_path / "train" / label / f"{number}-{name}", bits=bits)
    cut = noise(tmp_path / part / "dog" / f"1-{name}", bits=bits)
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    found = data.look_through(tmp_path)
    (bad,) = found.unreadable
    assert (cut, f"file 2 of {part}/dog", "it is damaged or cut short") == (bad.path, bad.position, bad.why)
    assert {"cat": 2, "dog": 2} == found.counts[part]
    with capture_logs() as lines:
        read = data.load(folder(tmp_path), spec(shape=(1, 4, 4), low=0, high=65535))
    (line,) = [line for line in lines if line["event"] == "files are left out"]
    total = found.description.samples + sum(found.counts["test"].values()) + 1
    assert (1, total, len(read.train)) == (line["number"], line["of"], line["samples"])
    assert 4 == len(read.train if part == "train" else read.test), (
        "what the doctor names, training leaves out"
    )


def test_pictures_are_let_go_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, one at a time is decoded, and none at a site's start."""
    for number in range(4):
        noise(tmp_path / "train" / "cat" / f"{number}.png")
    kept, alive = [], []
    reading = image_decoding.read

    def read(path: Path, target: object) -> object:
        alive.append(sum(one() is not None for one in kept))
        pixel = reading(path, target)
        kept.append(weakref.ref(pixel))
        return pixel

    monkeypatch.setattr(image_decoding, "read", read)
    data.describe(folder(tmp_path))
    assert not alive
    data.look_through(tmp_path)
    assert [0] * 4 == alive


def test_a_folder_that_cannot_be_used_is_looked_through_too(broken: Path) -> None:
    """The bad files are told even where nothing else is left."""
    for file in (broken / "train").rglob("*.png"):
        file.write_text("no image")
    found = data.look_through(broken)
    assert 8 == len(found.unreadable)
    assert isinstance(found.error, DataError)
    assert "nothing" == found.recognised
    assert isinstance(data.look_through(broken / "nowhere").error, DataError)


def test_arrays_are_looked_through(tmp_path: Path) -> None:
    """Counts by the classes' names."""
    np.savez(tmp_path / "train.npz", x=np.zeros((3, 4), np.float32), y=np.array([1, 2, 2]))
    found = data.look_through(tmp_path)
    assert ("arrays in train.npz", {"1": 1, "2": 2}) == (found.layout, found.counts["train"])


def test_a_bad_file_that_cannot_even_be_opened_has_no_digest(tmp_path: Path) -> None:
    """Nothing is made up."""
    assert "" == findings.BadFile("file 1 of cat", tmp_path / "gone.png", "it has gone").digest()
