"""The two pictures of an evaluation: the confusion of classes, and accuracy by confidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pfl_common.errors import SettingError
from pfl_deploy.prediction.measures import Bin, Numbers
from pfl_deploy.report.charts.model import Line, LineChart, MatrixChart, percent_scale


def draw(confusion: Numbers, bins: Sequence[Bin], classes: Sequence[str], folder: Path) -> list[Path]:
    """Both as PNG files."""
    check_drawing()
    from pfl_deploy.report.charts import png

    folder.mkdir(parents=True, exist_ok=True)
    png.save(chart_confusion(confusion, classes), folder / "confusion.png")
    png.save(chart_calibration(bins), folder / "calibration.png")
    return [folder / "confusion.png", folder / "calibration.png"]


def check_drawing() -> None:
    """Refuse at the start if the drawing library is missing."""
    try:
        import matplotlib  # noqa: F401  # whether it is there
    except ImportError:
        raise SettingError(
            "--plots needs matplotlib, which is not installed",
            expected="the optional extra `reports`",
            advice="pip install 'pfl-net[reports]', or leave --plots out",
        ) from None


def chart_confusion(confusion: Numbers, classes: Sequence[str]) -> MatrixChart:
    """The confusion matrix: a row for each true class, a column for each predicted one."""
    cells = tuple(tuple(int(cell) for cell in row) for row in confusion)
    return MatrixChart(
        "What samples of each class were taken for", tuple(classes), cells, "class", "prediction"
    )


def chart_calibration(bins: Sequence[Bin]) -> LineChart:
    """Accuracy by confidence, in percent; on the diagonal the two are equal."""
    lines = (
        Line("as it should be", "local", {0.0: 0.0, 1.0: 1.0}, style="dashed"),
        Line("this model", "run", {one.confidence: one.accuracy for one in bins}),
    )
    across, up = percent_scale("probability of the predicted class"), percent_scale("accuracy")
    return LineChart("Accuracy by confidence, in percent", lines, across, up)
