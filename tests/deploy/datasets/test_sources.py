"""Published data sets: their raw forms are read exactly, and what is missing is named."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile

import numpy as np
import pytest
from PIL import Image

from pfl_common.errors import DataError
from pfl_deploy.datasets import sources
from pfl_deploy.datasets.labelled import Labelled
from pfl_deploy.datasets.npm_archives import Pin
from pfl_deploy.datasets.sources import Stock, idx


def idx_bytes(array):
    """An array of bytes in the idx form."""
    head = b"\x00\x00\x08" + bytes([array.ndim])
    return head + np.asarray(array.shape, ">u4").tobytes() + array.tobytes()


def idx_files(prefix=""):
    """Four idx files as MNIST has them, 3 + 2 pictures."""
    rng = np.random.default_rng(0)
    return {
        f"{prefix}train-images-idx3-ubyte": idx_bytes(rng.integers(0, 256, (3, 28, 28), np.uint8)),
        f"{prefix}train-labels-idx1-ubyte": idx_bytes(np.array([7, 0, 9], np.uint8)),
        f"{prefix}t10k-images-idx3-ubyte": idx_bytes(rng.integers(0, 256, (2, 28, 28), np.uint8)),
        f"{prefix}t10k-labels-idx1-ubyte": idx_bytes(np.array([1, 2], np.uint8)),
    }


def png(array):
    """A picture's bytes."""
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG")
    return stream.getvalue()


def put_package(monkeypatch, cache, attribute, files):
    """A small package in the cache under the name and hash the source looks for."""
    pin = getattr(sources, attribute)
    path = cache / pin.file
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    fitting = Pin(pin.name, pin.version, hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(sources, attribute, fitting)


def test_idx_keeps_shape_and_values():
    """Big-endian lengths, then the bytes."""
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    assert array.tolist() == idx(idx_bytes(array)).tolist()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x00",
        b"\x00\x00\x0d\x01\x00\x00\x00\x00",
        b"\x00\x00\x08\x03\x00",
        b"\x00\x00\x08\x01\x00\x00\x00\x05ab",
    ],
    ids=["nothing", "stump", "floats", "no lengths", "too short"],
)
def test_idx_refuses_what_is_not_a_file_of_bytes(content):
    """Damage is an error in words."""
    with pytest.raises(DataError, match="an idx file"):
        idx(content)


def test_mnist_is_read_from_its_package(tmp_path, monkeypatch):
    """Pictures, labels, class names and the licence."""
    put_package(monkeypatch, tmp_path, "MNIST_PIN", idx_files("package/data/"))
    source = sources.mnist(Stock(cache=tmp_path))
    assert (3, 28, 28) == source.train.x.shape
    assert [7, 0, 9] == source.train.y.tolist()
    assert [1, 2] == source.test.y.tolist()
    assert tuple("0123456789") == tuple(source.classes)
    assert "CC BY-SA" in source.licence


def test_fashion_is_read_from_the_installed_files(tmp_path):
    """The Debian package's four gz files."""
    for name, content in idx_files().items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    source = sources.fashion(Stock(fashion=tmp_path))
    assert "ankle boot" == source.classes[source.train.y[2]]
    assert (2, 28, 28) == source.test.x.shape


@pytest.mark.parametrize("damage", ["absent", "no gzip", "torn"])
def test_fashion_that_cannot_be_read_names_its_package(tmp_path, damage):
    """Not installed or damaged: the error says what to install."""
    if damage != "absent":
        for name, content in idx_files().items():
            packed = gzip.compress(content)
            (tmp_path / f"{name}.gz").write_bytes(
                content if damage == "no gzip" else packed[: len(packed) // 2]
            )
    with pytest.raises(DataError, match="dataset-fashion-mnist"):
        sources.fashion(Stock(fashion=tmp_path))


def test_cifar10_rows_become_pictures(tmp_path, monkeypatch):
    """One row of a sheet is one picture, row by row, with its colours; the batches follow each other."""
    rng = np.random.default_rng(1)
    pictures = rng.integers(0, 256, (12, 32, 32, 3), np.uint8)
    sheets = [png(pair.reshape(2, 1024, 3)) for pair in pictures.reshape(6, 2, 32, 32, 3)]
    files = {f"package/data_batch_{number}.png": sheets[number - 1] for number in range(1, 6)}
    files |= {
        "package/test_batch.png": sheets[5],
        "package/train_lables.json": json.dumps(list(range(10))).encode(),
        "package/test_lables.json": b"[3, 5]",
    }
    put_package(monkeypatch, tmp_path, "CIFAR_PIN", files)
    source = sources.cifar10(Stock(cache=tmp_path))
    assert np.array_equal(pictures[:10], source.train.x)
    assert np.array_equal(pictures[10:], source.test.x)
    assert ["cat", "dog"] == [source.classes[label] for label in source.test.y]


def test_optdigits_has_all_digits_and_no_test_part():
    """1,797 pictures, stretched from 0..16 to 0..255."""
    source = sources.optdigits()
    assert (1797, 8, 8) == source.train.x.shape
    assert (0, 255) == (source.train.x.min(), source.train.x.max())
    assert 0 == len(source.test)
    assert 1797 == len(source.pooled())
    assert set(range(10)) == set(source.train.y.tolist())


def test_pooled_numbers_training_before_test_examples(tmp_path, monkeypatch):
    """Index 3 of 3 + 2 is the first test example."""
    put_package(monkeypatch, tmp_path, "MNIST_PIN", idx_files("package/data/"))
    source = sources.mnist(Stock(cache=tmp_path))
    assert source.test.x[0].tolist() == source.pooled().take(np.array([3])).x[0].tolist()


def test_labels_and_examples_must_match():
    """A data set with more pictures than labels is refused at once."""
    with pytest.raises(ValueError, match="2 examples but 3 labels"):
        Labelled(np.zeros((2, 4)), np.zeros(3, np.int64))


def test_the_cache_lies_where_the_user_says(monkeypatch, tmp_path):
    """XDG_CACHE_HOME, or .cache in the home folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tmp_path / "pfl" == Stock().cache
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert tmp_path / "home" / ".cache" / "pfl" == Stock().cache
