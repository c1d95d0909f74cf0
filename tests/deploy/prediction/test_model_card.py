"""What a card says has to be done before the graph, for pictures of each range."""

import pytest

from pfl_common.spec.run import Model
from pfl_common.spec.table_schema import Column
from pfl_deploy.prediction import model_card
from pfl_deploy.prediction.graph import Form


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "resized to 8 x 6 (Pillow bilinear), channels first. In the graph: division by 255."),
        ({"values": "wide", "low": 5, "high": 4095}, "low 5, high 4095. In the graph"),
        ({"values": "wide", "per_picture": True}, "each picture's own"),
        (
            {"values": "unit", "low": 0, "high": 1, "mean": (0.5,), "deviation": (0.2,)},
            "clipped to 0..1, low 0, high 1.",
        ),
    ],
)
def test_pictures(given: dict[str, object], words: str) -> None:
    """Decoding, size and range are said; the rest is inside."""
    said = model_card._tell_preparation(Form(Model("cnn", (1, 8, 6), ("a", "b"), **given)))
    assert words in said
    assert "grey (ITU-R 601)" in said


def test_rows_of_tables() -> None:
    """Column by column: who uses the graph elsewhere has to make the same numbers."""
    table = (
        Column("age", missing=True, mean=50, deviation=4),
        Column("ward", categorical=True, categories=("a", "b")),
        Column("town", categorical=True, hashed=16),
    )
    model = Model("mlp", (22,), ("ill", "well"), kind="table", values="numbers", table=table)
    said = model_card._tell_preparation(Form(model))
    assert "a row becomes 22 numbers" in said
    assert "- `age`: (x - 50) / 4, 0 where it is missing; then 1 where it is missing" in said
    assert "- `ward`: a 1 in the place of its category (`a`, `b`, any other)" in said
    assert "its SHA-256 among 16" in said
