"""Small pictures of many kinds, whose left side is dark and whose right side is light."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

CANARY = "Canary^Patient"
"""Stands in every tag of a DICOM file that says who the patient is."""
_PERSONAL = {
    "PatientName": CANARY,
    "PatientID": "canary-id-77",
    "PatientAddress": "canary street",
    "OtherPatientNames": CANARY,
    "InstitutionName": "canary hospital",
    "StudyDescription": "canary study",
    "AccessionNumber": "canary-12",
    "ReferringPhysicianName": "Canary^Doctor",
}


def halves(low: float, high: float, *, side: int = 8) -> np.ndarray:
    """Numbers that are low on the left and high on the right."""
    values = np.full((side, side), low)
    values[:, side // 2 :] = high
    return values


def write_dicom(path: Path, pixels: np.ndarray, *, personal: bool = True, **tags: Any) -> Path:
    """A DICOM file of these whole numbers, grey (height, width) or colour (height, width, 3)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = Dataset()
    found.file_meta = FileMetaDataset()
    found.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    found.file_meta.MediaStorageSOPClassUID = found.SOPClassUID = CTImageStorage
    found.file_meta.MediaStorageSOPInstanceUID = found.SOPInstanceUID = generate_uid()
    found.Rows, found.Columns = pixels.shape[:2]
    found.SamplesPerPixel = 1 if pixels.ndim == 2 else pixels.shape[2]
    found.PhotometricInterpretation = "MONOCHROME2" if pixels.ndim == 2 else "RGB"
    if pixels.ndim == 3:
        found.PlanarConfiguration = 0
    bits = 8 * pixels.dtype.itemsize
    found.BitsAllocated, found.BitsStored, found.HighBit = bits, bits, bits - 1
    found.PixelRepresentation = int(pixels.dtype.kind == "i")
    found.PixelData = pixels.tobytes()
    for name, value in ({**_PERSONAL, **tags} if personal else tags).items():
        setattr(found, name, value)
    found.save_as(path, enforce_file_format=True)
    return path


def write_pages(path: Path, *pages: np.ndarray) -> Path:
    """A TIFF, GIF or WebP of several pictures."""
    path.parent.mkdir(parents=True, exist_ok=True)
    first, *others = [Image.fromarray(page) for page in pages]
    first.save(path, save_all=True, append_images=others)
    return path
