"""Sums over pictures, each counted as if it had one size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pfl_client.data import image_decoding
from pfl_client.data.picture_sums import LONGEST_SIDE, add_up, measure, sum_files
from pfl_common.spec.run import NOT_SUMMED, Moments


def looked(path: Path, values: np.ndarray) -> tuple[Path, image_decoding.Look]:
    """An image file with these values, and its head."""
    Image.fromarray(values).save(path)
    return path, image_decoding.look(path)


def test_by_hand() -> None:
    """Means 2 and 4, mean squares 5 and 20, each over ten numbers; of four pictures nothing is told."""
    pictures = [measure(np.array([[[1, 3]], [[2, 6]]]))] * 5
    assert Moments(50, (100.0, 200.0), (250.0, 1000.0)) == add_up(pictures, numbers=10)
    assert NOT_SUMMED == add_up(pictures[:4], numbers=10)


def test_files_of_bytes_count_alike(tmp_path: Path) -> None:
    """Whatever their size; one that cannot be read is passed over; large ones as if they were brought to a size."""
    files = [looked(tmp_path / f"{n}.png", np.full((4 + n, 5, 3), (9, 0, 255), np.uint8)) for n in range(6)]
    (tmp_path / "5.png").write_bytes(b"no picture any more")
    found = sum_files(files, (3, 2, 1000), (0, 255), wide=False)
    count = 5 * 2 * LONGEST_SIDE
    assert Moments(count, (9.0 * count, 0.0, 255.0 * count), (81.0 * count, 0.0, 255.0**2 * count)) == found


def test_of_16_bits_the_raw_values(tmp_path: Path) -> None:
    """Between the ends that the site declares; pictures of 8 bits beside them are not in these sums."""
    wide = [looked(tmp_path / f"w{n}.png", np.array([[100, 4000]], np.uint16)) for n in range(5)]
    files = [*wide, looked(tmp_path / "b.png", np.zeros((2, 2), np.uint8))]
    found = sum_files(files, (1, 1, 2), (0.0, 3000.0), wide=True)
    assert (10, pytest.approx((15500.0,)), pytest.approx((5 * (100**2 + 3000**2),))) == (
        found.count,
        found.sums,
        found.squares,
    )
