"""Pictures of all kinds are predicted as they were trained on, in folders and in lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from pfl_client import data
from pfl_client.data import picture_list
from pfl_client.data.image_decoding import Target
from pfl_client.prediction.inputs import Inputs, Unread, Wanted, list_inputs
from pfl_client.prediction.listed_pictures import read_listed
from pfl_client.trainer_process.api import DataFolder
from tests.client.data.drawn import halves, write_dicom
from tests.client.data.test_images import draw, spec
from tests.client.data.test_picture_list import CLASSES, draw_listed, write_list


def write_mixed(folder: Path) -> Path:
    """A list of a PNG, a TIFF of 16 bits, a WebP and a DICOM file, for each class."""
    rows = []
    for place, label in enumerate(CLASSES):
        values = halves(20 * place, 200)
        scans = folder / "scans"
        write_dicom(scans / f"{label}-0", (values * 10).astype(np.int16))
        Image.fromarray((values * 200).astype(np.uint16)).save(scans / f"{label}-1.tif")
        Image.fromarray(values.astype(np.uint8)).save(scans / f"{label}-2.webp")
        Image.fromarray(values.astype(np.uint8)).save(scans / f"{label}-3.png")
        names = [f"{label}-0", f"{label}-1.tif", f"{label}-2.webp", f"{label}-3.png"]
        rows += [{"file": f"scans/{name}", "label": label, "patient": f"p{place}"} for name in names]
    write_list(folder / "train.csv", rows)
    (folder / "data.json").write_text('{"dicom_window": [1000, 2000]}')
    return folder


def test_every_kind_is_read_by_the_code_that_read_it_for_training(tmp_path: Path) -> None:
    """One by one, and by the list: the same bytes as in training, classes and patients beside them."""
    run = spec((3, 8, 8), CLASSES, kind="image", values="wide", low=0, high=40_000)
    folder = write_mixed(tmp_path / "site")
    trained = data.load(DataFolder(folder, "site"), run).train
    told: list[Unread] = []
    asked = Inputs(run, "site", wanted=Wanted(folder, labelled=True), unread=told.append)
    blocks = list(asked.blocks([folder / "train.csv"], most=3))
    assert [3, 3, 2] == [len(block) for block in blocks]
    assert trained.x.tolist() == [x for block in blocks for x in block.x.tolist()]
    assert trained.y.tolist() == [y for block in blocks for y in block.labels.tolist()]
    assert ["p0"] * 4 + ["p1"] * 4 == [group for block in blocks for group in block.groups]
    alone = list(
        Inputs(run, "site", wanted=Wanted(folder), unread=told.append).blocks(list_inputs([folder]), most=99)
    )
    assert sorted(trained.x.tolist()) == sorted(x for block in alone for x in block.x.tolist())
    assert [] == told


def test_a_list_without_classes_is_predicted(tmp_path: Path) -> None:
    """What cannot be read is told by its row; the others go on."""
    rows = [{"path": row["file"]} for row in draw_listed(tmp_path)]
    draw(tmp_path / "scans" / "2.png").write_text("no picture")
    told: list[Unread] = []
    wanted = Inputs(spec(classes=CLASSES), "site", wanted=Wanted(), unread=told.append)
    (block,) = wanted.blocks([write_list(tmp_path / "new.parquet", rows)], most=99)
    assert (7, 0) == (len(block), len(block.labels))
    assert tmp_path / "scans" / "7.png" == block.files[-1]
    (unread,) = told
    assert (tmp_path / "scans" / "2.png", 1, 3) == (unread.file, unread.place, unread.row)


def test_pixels_come_in_blocks(tmp_path: Path) -> None:
    """Never all of them at once."""
    named = picture_list.read_list(write_list(tmp_path / "new.csv", draw_listed(tmp_path)), tmp_path)
    blocks = list(read_listed((one for one, _ in named), Target((1, 4, 4)), most=3, bad=lambda *_: None))
    assert [3, 3, 2] == [len(x) for _, x in blocks]
