"""What a card says has to be done before the graph, for pictures of each range."""

import pytest

from pfl_common.spec.run import Model
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
