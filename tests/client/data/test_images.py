"""Image folders: what is described, what is read, what is refused."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pfl_client import data
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from pfl_common.spec.run import Model, RunSpec

SITE = "site-3"


def spec(
    shape: tuple[int, ...] = (1, 4, 4), classes: tuple[str, ...] = ("cat", "dog"), **model: Any
) -> RunSpec:
    """A run that only says what its samples are like."""
    return RunSpec("r", "fedavg", {}, Model("mlp", shape, classes, **model), rounds=1, seed=5, roster=(SITE,))


def draw(path: Path, *, size: tuple[int, int] = (4, 4), colour: int | tuple[int, int, int] = 9) -> Path:
    """One image of one colour; `size` is width, height."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L" if isinstance(colour, int) else "RGB", size, colour).save(path)
    return path


def folder(path: Path, **settings: Any) -> DataFolder:
    """A data folder of the site."""
    return DataFolder(path, SITE, **settings)


@pytest.mark.parametrize(
    "said", [{"kind": "tokens"}, {"vocabulary": 9}, {"columns": ["a"]}, {"layout": "time_channels"}]
)
def test_image_files_are_nothing_else(small: Path, said: object) -> None:
    """What `data.json` says of texts, tables and windows is refused beside them."""
    (small / "data.json").write_text(json.dumps(said))
    with pytest.raises(DataError, match="for 'kind', and the folder holds image files"):
        data.describe(folder(small))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Two classes, three training and one test image each, colours that tell them apart."""
    for place, label in enumerate(("dog", "cat")):
        for n in range(3):
            draw(tmp_path / "train" / label / f"{n}.png", colour=100 * place + n)
        draw(tmp_path / "test" / label / "t.png", colour=100 * place + 50)
    return tmp_path


def test_a_folder_is_described(small: Path) -> None:
    """Shape, sorted class names and the number of training images come from the files; nothing is odd."""
    seen = data.describe(folder(small))
    assert ((1, 4, 4), ("cat", "dog"), 6, "image", ()) == (
        seen.shape,
        seen.classes,
        seen.samples,
        seen.kind,
        seen.warnings,
    )


def test_images_come_in_the_order_of_their_names(small: Path) -> None:
    """Samples are sorted by class and file name, whatever order the file system lists them in."""
    read = data.load(folder(small), spec())
    assert [100, 101, 102, 0, 1, 2] == read.train.x[:, 0, 0, 0].tolist()
    assert [0, 0, 0, 1, 1, 1] == read.train.y.tolist()
    assert [150, 50] == read.test.x[:, 0, 0, 0].tolist()
    assert 0 == len(read.validation)


def test_a_shifted_test_of_pictures(small: Path) -> None:
    """`shifted/<class>/` beside the other parts is a second test, which says nothing in choosing the run's size."""
    assert 0 == len(data.load(folder(small), spec()).shifted)
    before = data.describe(folder(small))
    for number in range(20):
        large = Image.fromarray(np.full((16, 16, 3), 77, np.uint8))
        (small / "shifted" / "dog").mkdir(parents=True, exist_ok=True)
        large.save(small / "shifted" / "dog" / f"{number}.png")
    after = data.describe(folder(small))
    assert (before.shape, before.samples, ()) == (after.shape, after.samples, after.warnings)
    read = data.load(folder(small), spec())
    assert ([77] * 20, [1] * 20) == (read.shifted.x[:, 0, 0, 0].tolist(), read.shifted.y.tolist())
    assert (6, 2) == (len(read.train), len(read.test))


def test_shifted_alone_is_the_name_of_a_class(tmp_path: Path) -> None:
    """A folder that we divide ourselves may have a class of any name."""
    for place, label in enumerate(("shifted", "whole")):
        for n in range(8):
            draw(tmp_path / label / f"{n}.png", colour=100 * place + n)
    assert ("shifted", "whole") == data.describe(folder(tmp_path)).classes


def test_the_order_does_not_depend_on_the_file_system(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that lists backwards gives the same samples."""
    before = data.load(folder(small), spec()).train.x
    listing = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: sorted(listing(path), reverse=True))
    assert before.equal(data.load(folder(small), spec()).train.x)


def test_classes_are_numbered_by_name(small: Path) -> None:
    """A site that lacks a class uses the run's numbers for the others."""
    read = data.load(folder(small), spec(classes=("ant", "cat", "cow", "dog")))
    assert [0, 3, 0, 3] == read.counts.tolist()
    assert 4 == read.classes


def test_a_class_the_run_does_not_know_is_refused(small: Path) -> None:
    """The error names site, class and the nearest class of the run."""
    with pytest.raises(DataError, match="site-3 has class 'dog' the run does not know") as caught:
        data.load(folder(small), spec(classes=("cat", "dogs")))
    assert "did you mean 'dogs'" in caught.value.advice


def test_a_name_with_an_accent_is_one_name(tmp_path: Path) -> None:
    """macOS writes an accent as a letter of its own; the class is the same."""
    draw(tmp_path / "train" / "e\u0301t\u0301" / "1.png")
    draw(tmp_path / "train" / "b" / "1.png")
    assert ("b", "\u00e9t\u0301") == data.describe(folder(tmp_path)).classes


def test_images_are_resized_to_the_run(tmp_path: Path) -> None:
    """An image of another size is resized: half black, half white stays so."""
    draw(tmp_path / "train" / "cat" / "1.png", size=(8, 8))
    halves = np.zeros((8, 8), dtype=np.uint8)
    halves[:, 4:] = 200
    Image.fromarray(halves).save(tmp_path / "train" / "cat" / "2.png")
    read = data.load(folder(tmp_path), spec((1, 2, 2)))
    assert (2, 1, 2, 2) == tuple(read.train.x.shape)
    left, right = read.train.x[1, 0, 0].tolist()
    assert left < 50 < 150 < right


def test_width_and_height_are_not_mixed_up(tmp_path: Path) -> None:
    """Samples are channels, height, width; files speak of width first."""
    draw(tmp_path / "train" / "cat" / "1.png", size=(6, 3))
    assert (1, 3, 6) == data.describe(folder(tmp_path)).shape
    assert (1, 1, 3, 6) == tuple(data.load(folder(tmp_path), spec((1, 3, 6))).train.x.shape)


def test_grey_becomes_colour_and_colour_grey(tmp_path: Path) -> None:
    """Grey is repeated in all channels; colour becomes its brightness."""
    draw(tmp_path / "train" / "cat" / "1.png", colour=77)
    draw(tmp_path / "train" / "dog" / "1.png", colour=(255, 0, 0))
    assert (3, 4, 4) == data.describe(folder(tmp_path)).shape
    coloured = data.load(folder(tmp_path), spec((3, 4, 4))).train.x
    assert [[77, 77, 77], [255, 0, 0]] == coloured[:, :, 0, 0].tolist()
    assert [77, 76] == data.load(folder(tmp_path), spec((1, 4, 4))).train.x[:, 0, 0, 0].tolist()


def test_mixed_sizes_are_a_warning_and_strictly_an_error(small: Path) -> None:
    """The most common size is reported; with --strict-data the sizes are named and refused."""
    draw(small / "train" / "cat" / "9.png", size=(10, 10))
    seen = data.describe(folder(small))
    assert (1, 4, 4) == seen.shape
    (words,) = seen.warnings
    assert re.search(r"\b2 .*4x4 \(8 images\), 10x10 \(1 images\)", words)
    with pytest.raises(DataError, match="2 different sizes"):
        data.describe(folder(small, strict=True))


def test_a_file_that_is_no_image_is_left_out(small: Path) -> None:
    """The warning, which may be logged, says its position; its name stays here."""
    (small / "train" / "cat" / "1x-patient-smith.png").write_text("no image")
    seen = data.describe(folder(small))
    assert (
        "1 of 9 files are no images that can be read and are left out: file 3 of train/cat",
    ) == seen.warnings
    assert 6 == len(data.load(folder(small), spec()).train)


def test_a_file_that_is_no_image_is_strictly_an_error(small: Path) -> None:
    """The position is in the part that may be logged, the name only in the part for the terminal."""
    (small / "train" / "cat" / "1x-patient-smith.png").write_text("no image")
    for ask in (data.describe, lambda place: data.load(place, spec())):
        with pytest.raises(DataError, match="file 3 of train/cat") as caught:
            ask(folder(small, strict=True))
        assert "smith" not in caught.value.seen
        assert os.path.join("train", "cat", "1x-patient-smith.png") == caught.value.file
        assert "smith" not in str(caught.value)


def test_an_image_cut_short_is_left_out_when_it_is_read(small: Path) -> None:
    """Its first bytes look well; when its pixels are missing it does not become a sample."""
    path = draw(small / "train" / "cat" / "9.bmp", size=(40, 40))
    path.write_bytes(path.read_bytes()[:200])
    assert 7 == data.describe(folder(small)).samples
    assert 6 == len(data.load(folder(small), spec()).train)


def test_no_readable_image_is_an_error(tmp_path: Path) -> None:
    """A folder of anything but images has a clear end."""
    (tmp_path / "train" / "cat").mkdir(parents=True)
    (tmp_path / "train" / "cat" / "a.png").write_text("no image")
    with pytest.raises(DataError, match="none of the training files of site-3"):
        data.describe(folder(tmp_path))
    with pytest.raises(DataError, match="none of the training files of site-3"):
        data.load(folder(tmp_path), spec())


def test_one_class_is_a_warning_and_strictly_an_error(small: Path) -> None:
    """At one site that is allowed; the federation may know other classes."""
    for n in range(3):
        (small / "train" / "cat" / f"{n}.png").unlink()
    (small / "test" / "cat" / "t.png").unlink()
    seen = data.describe(folder(small))
    assert ("dog",) == seen.classes
    assert any("one class" in text and "'dog'" in text for text in seen.warnings)
    assert any("'train/cat', 'test/cat'" in words for words in seen.warnings)
    with pytest.raises(DataError, match="'dog' alone"):
        data.describe(folder(small, strict=True))


def test_classes_without_test_or_training_images_are_named(small: Path) -> None:
    """What cannot be measured, and what cannot be learned, is said."""
    (small / "test" / "cat" / "t.png").rename(small / "test" / "t.png")
    draw(small / "test" / "cow" / "1.png")
    assert {"no test samples of 'cat'", "no training samples of 'cow'"} <= set(
        data.describe(folder(small)).warnings
    )


def test_a_run_on_other_samples_is_refused(small: Path) -> None:
    """Images do not become sensor readings."""
    with pytest.raises(DataError, match=r"the shape \(128, 6\)"):
        data.load(folder(small), spec((128, 6)))


def test_files_of_the_system_are_no_samples(small: Path) -> None:
    """What file managers leave behind is not reported as an unreadable image."""
    (small / "train" / "cat" / ".DS_Store").write_text("x")
    (small / "train" / "cat" / "Thumbs.db").write_text("x")
    assert () == data.describe(folder(small)).warnings


@pytest.mark.parametrize("content", [b"no picture", b""])
def test_a_class_of_unreadable_files_is_none_for_both_readers(small: Path, content: bytes) -> None:
    """The site does not tell of it when it joins, so the run does not know it: reading for the run does not either."""
    for part in ("train", "test"):
        (small / part / "owl").mkdir()
        (small / part / "owl" / "1.png").write_bytes(content)
    lenient = folder(small, most_bad=1.0)
    assert ("cat", "dog") == data.describe(lenient).classes
    read = data.load(lenient, spec())
    assert (6, 2) == (len(read.train), len(read.test))
    assert ("cat", "dog") == data.look_through(small).description.classes


def test_a_class_with_one_readable_file_is_one_for_both_readers(small: Path) -> None:
    """Then a run without it is not this site's."""
    draw(small / "train" / "owl" / "2.png", colour=77)
    (small / "train" / "owl" / "1.png").write_bytes(b"no picture")
    lenient = folder(small, most_bad=1.0)
    assert ("cat", "dog", "owl") == data.describe(lenient).classes
    assert 7 == len(data.load(lenient, spec(classes=("cat", "dog", "owl"))).train)
    with pytest.raises(DataError, match="has class 'owl' the run does not know"):
        data.load(lenient, spec())
