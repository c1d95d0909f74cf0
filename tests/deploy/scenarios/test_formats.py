"""One task, brought by each site in a format of its own, from its folder to a model that is good for all of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from structlog.testing import capture_logs

from pfl_client.data import look_through
from pfl_client.prediction import Predictor
from pfl_common.app.config import settle
from pfl_deploy.simulation.simulate import simulate
from pfl_server.settings import ServerSettings
from tests.client.data.drawn import CANARY, write_dicom
from tests.client.data.test_picture_list import write_list

CLASSES = ("benign", "malign")
SIDE, PATIENTS, EACH = 16, 8, 2


def scan(place: int, patient: int, number: int) -> np.ndarray:
    """Grey levels from 0 to 1: the upper half is light in one class, the lower in the other."""
    rng = np.random.default_rng([place, patient, number])
    picture = rng.uniform(0, 0.4, (SIDE, SIDE))
    picture[place * SIDE // 2 : (place + 1) * SIDE // 2] += 0.5
    return picture


def scans() -> list[tuple[str, int, int, np.ndarray]]:
    """Class, patient and number of all of a site."""
    return [
        (label, patient, number, scan(place, patient + 100 * place, number))
        for place, label in enumerate(CLASSES)
        for patient in range(PATIENTS)
        for number in range(EACH)
    ]


def write_jpegs(folder: Path) -> Path:
    """Photographs in colour, lying on their side as EXIF says, in a folder for each patient; not divided."""
    for label, patient, number, picture in scans():
        upright = Image.fromarray((picture * 255).astype(np.uint8)).convert("RGB")
        exif = Image.Exif()
        exif[0x112] = 6
        path = folder / label / f"{label} {CANARY} {patient}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        upright.transpose(Image.Transpose.ROTATE_90).save(path, exif=exif, quality=95)
    (folder / "data.json").write_text('{"groups": "folder"}')
    return folder


def write_tiffs(folder: Path) -> Path:
    """Scans of 16 bits in parts, of which 12 are used."""
    for label, patient, number, picture in scans():
        path = folder / ("test" if patient % 4 == 0 else "train") / label / f"{patient}-{number}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((picture * 4095).astype(np.uint16)).save(path)
    return folder


def write_dicoms(folder: Path) -> Path:
    """DICOM files, light where values are small, in one folder; a list says class, patient and part."""
    rows = []
    for label, patient, number, picture in scans():
        name = f"scans/{label}{patient}-{number}"
        values = ((1 - picture) * 2000).astype(np.int16)
        tags = {"PhotometricInterpretation": "MONOCHROME1", "RescaleIntercept": -1000, "RescaleSlope": 1}
        write_dicom(folder / name, values, **tags)
        part = "test" if patient % 4 == 0 else "train"
        rows.append({"file": name, "label": label, "patient": f"{CANARY} {label} {patient}", "part": part})
    write_list(folder / "samples.csv", rows)
    (folder / "data.json").write_text('{"dicom_window": [0, 2000]}')
    return folder


def write_arrays(folder: Path) -> Path:
    """Bytes."""
    folder.mkdir()
    for part, chosen in (("train", (1, 2, 3)), ("test", (0,))):
        own = [one for one in scans() if one[1] % 4 in chosen]
        x = np.stack([(picture * 255).astype(np.uint8) for *_, picture in own])
        np.savez(folder / f"{part}.npz", x=x, y=[CLASSES.index(label) for label, *_ in own])
    (folder / "classes.json").write_text(json.dumps(CLASSES))
    return folder


SITES: dict[str, Callable[[Path], Path]] = {
    "clinic_jpeg": write_jpegs,
    "clinic_tiff": write_tiffs,
    "clinic_dicom": write_dicoms,
    "clinic_npz": write_arrays,
}


def check_window(folder: Path, place: Path) -> None:
    """New files are shown in the window that the site has trained with, wherever they lie."""
    (model,) = (place / "sites").glob(f"**/{folder.name}/**/serving.safetensors")
    (place / "new").mkdir()
    file = next((folder / "scans").iterdir())
    copy = shutil.copy(file, place / "new" / "1.dcm")
    predictor = Predictor.load(model)
    (here,), (there,) = (list(predictor.predict(path, like=folder)) for path in (file, copy))
    assert here.probabilities == next(predictor.predict(copy)).probabilities == there.probabilities
    (place / "new" / "data.json").write_text('{"dicom_window": [0, 20000]}')
    assert here.probabilities != next(predictor.predict(copy)).probabilities


def test_one_task_in_four_formats(tmp_path: Path) -> None:
    """Each site learns what all know, no name of a patient is said, and the model takes every site's files."""
    folders = [write(tmp_path / name) for name, write in SITES.items()]
    words = {"method": "fedavg", "rounds": 4, "sites": 4, "state": tmp_path / "coordinator"}
    settings = settle(ServerSettings, {**words, "set": {"batch": 8}}, what="test")
    with capture_logs() as lines:
        result = simulate(settings, folders, tmp_path / "sites")
    said = str([line for line in lines if line.get("log_level") != "debug"])
    curves = {site: curve.last("pre/test/combined") for site, curve in result.curves().items()}
    assert dict.fromkeys(SITES, 1.0) == curves
    assert "a quarter of the groups" in said
    assert "canary" not in said.lower()
    kept = [
        path for name in ("sites", "coordinator") for path in (tmp_path / name).rglob("*") if path.is_file()
    ]
    assert [] == [path for path in kept if b"canary" in path.read_bytes().lower()]
    (model,) = (tmp_path / "sites").glob("**/clinic_npz/**/serving.safetensors")
    predictor = Predictor.load(model)
    assert ((3, SIDE, SIDE), "wide") == (
        predictor.served.spec.model.shape,
        predictor.served.spec.model.values,
    )
    for folder in folders[:3]:
        for answer in predictor.predict(folder):
            assert answer.label in str(answer.file.relative_to(folder))
    check_window(folders[2], tmp_path)
    for folder in folders:
        assert look_through(folder).error is None
