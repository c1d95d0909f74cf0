"""Pictures in the cache: decoded once, by content; the same bytes as in memory."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pfl_client import data
from pfl_client.data import image_decoding
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from pfl_common.learning.method import LocalData
from tests.client.data.test_images import spec

RUN = spec(shape=(3, 6, 5), classes=("a", "b"))
OLD = 1_500_000_000


@pytest.fixture
def site(tmp_path: Path) -> DataFolder:
    """Pictures of two classes in two parts, changed long ago, and a cache."""
    for number in range(12):
        write(
            tmp_path / "site" / ("test" if number % 4 == 0 else "train") / "ab"[number % 2] / f"{number}.png",
            number,
        )
    return DataFolder(tmp_path / "site", "site", cache=tmp_path / "cache", cache_bytes=1 << 20)


def write(path: Path, seed: int) -> None:
    """A picture whose time is that of long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (7, 9, 3), np.uint8)).save(path)
    os.utime(path, (OLD, OLD))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were decoded."""
    names: list[str] = []
    real = image_decoding.read
    monkeypatch.setattr(
        image_decoding, "read", lambda path, target: (names.append(path.name), real(path, target))[1]
    )
    return names


def same(site: DataFolder) -> LocalData:
    """The site's samples out of the cache, after a comparison with those in memory."""
    cached, held = data.load(site, RUN), data.load(replace(site, cache=None), RUN)
    for part in ("train", "validation", "test"):
        one, other = getattr(cached, part), getattr(held, part)
        assert one.rows is not None
        assert len(one) == len(other)
        for batch, wanted in zip(one.batches(4), other.batches(4), strict=True):
            assert all(torch.equal(a, b) for a, b in zip(batch, wanted, strict=True))
    return cached


def test_a_picture_is_decoded_once(site: DataFolder, decoded: list[str]) -> None:
    """Not again for the next trainer, even if its file was copied or renamed."""
    data.load(site, RUN)
    assert 12 == len(decoded)
    (site.path / "train" / "a" / "2.png").rename(site.path / "train" / "a" / "zz.png")
    decoded.clear()
    data.load(site, RUN)
    assert [] == decoded
    same(site)


def test_what_changed_costs_itself(site: DataFolder, decoded: list[str]) -> None:
    """A changed file, one more and one less; a file that keeps size and time is seen to have changed all the same."""
    data.load(site, RUN)
    changed = site.path / "train" / "a" / "2.png"
    size = changed.stat().st_size
    content = bytearray(changed.read_bytes())
    write(changed, 99)
    (site.path / "train" / "b" / "1.png").unlink()
    write(site.path / "train" / "b" / "new.png", 77)
    decoded.clear()
    data.load(site, RUN)
    assert {"2.png", "new.png"} == set(decoded)
    same(site)
    assert size == len(content)


def test_another_size_has_rows_of_its_own(site: DataFolder, decoded: list[str]) -> None:
    """And those of the last are removed: the run does not need them."""
    data.load(site, RUN)
    data.load(site, replace(RUN, model=replace(RUN.model, shape=(1, 4, 4))))
    assert (24, 1) == (len(decoded), len(list(site.cache.glob("*.rows"))))


def test_equal_pictures_lie_beside_each_other(site: DataFolder, decoded: list[str]) -> None:
    """Each has its row; the next trainer decodes neither."""
    twin = site.path / "train" / "b" / "twin.png"
    twin.write_bytes((site.path / "train" / "a" / "2.png").read_bytes())
    data.load(site, RUN)
    decoded.clear()
    data.load(site, RUN)
    assert [] == decoded
    same(site)


def test_what_cannot_be_read_is_told_each_time(site: DataFolder, caplog: pytest.LogCaptureFixture) -> None:
    """It leaves no row; with --strict-data it ends the reading, and nothing half is left behind."""
    (site.path / "train" / "a" / "2.png").write_bytes(b"no picture")
    assert 8 == len(same(site).train) == len(data.load(site, RUN).train)
    with pytest.raises(DataError, match="is no image that can be read"):
        data.load(replace(site, strict=True, cache=site.cache / "other"), RUN)
    assert [] == list((site.cache / "other").iterdir())


def test_a_part_is_held_out_without_a_copy(site: DataFolder) -> None:
    """Its samples are places in the same file."""
    own = data.load(replace(site, hold_out=0.5), RUN)
    held = data.load(replace(site, hold_out=0.5, cache=None), RUN)
    assert own.train.x.data_ptr() == own.validation.x.data_ptr()
    for part in ("train", "validation"):
        assert torch.equal(next(getattr(own, part).batches(99))[0], next(getattr(held, part).batches(99))[0])


def test_no_name_lies_in_the_cache(site: DataFolder) -> None:
    """Nor anything else that tells whose pictures they are."""
    data.load(site, RUN)
    said = b"".join(path.read_bytes() for path in site.cache.glob("*.json"))
    assert b"png" not in said
    assert str(site.path).encode() not in said


def test_another_window_has_rows_of_its_own(site: DataFolder, decoded: list[str]) -> None:
    """What DICOM files show depends on it: rows of the last window are never taken for those of this one."""
    (site.path / "data.json").write_text('{"dicom_window": [40, 400]}')
    data.load(site, RUN)
    (site.path / "data.json").write_text('{"dicom_window": [50, 80]}')
    data.load(site, RUN)
    assert 24 == len(decoded)
