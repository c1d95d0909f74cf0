"""What the pictures of an evaluation show, before they are drawn; and that they are drawn."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pfl_common.errors import SettingError
from pfl_deploy.prediction import charts
from pfl_deploy.prediction.measures import Bin

BINS = [Bin(0.4, 0.5, 3, 0.45, 1 / 3), Bin(0.9, 1.0, 5, 0.97, 0.8)]


def test_each_number_has_its_place() -> None:
    """Rows are classes, columns predictions; a dot for each bin at its own confidence."""
    matrix = charts.chart_confusion(np.array([[3.0, 1.0], [0.0, 2.0]]), ("a", "b"))
    assert (((3, 1), (0, 2)), ("a", "b")) == (matrix.cells, matrix.names)
    diagonal, own = charts.chart_calibration(BINS).lines
    assert ({0.0: 0.0, 1.0: 1.0}, {0.45: 1 / 3, 0.97: 0.8}) == (diagonal.points, own.points)


@pytest.mark.parametrize("classes", [2, 60])
def test_both_are_drawn(classes: int, tmp_path: Path) -> None:
    """Of few classes and of many; names with a dollar sign are no formulas."""
    names = [f"${number}$" for number in range(classes)]
    for path in charts.draw(np.eye(classes), BINS, names, tmp_path / "plots"):
        with Image.open(path) as picture:
            assert len(np.unique(np.asarray(picture.convert("L")))) > 10


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is computed."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SettingError) as error:
        charts.check_drawing()
    assert "pfl-net[reports]" in str(error.value)
