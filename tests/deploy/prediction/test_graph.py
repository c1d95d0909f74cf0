"""Samples are drawn as they could occur; differences are seen, infinities too."""

import math
from pathlib import Path

import pytest
import torch

from pfl_client.prediction import Predictor
from pfl_common.spec.run import Model
from pfl_deploy.prediction import model_card
from pfl_deploy.prediction.graph import Form, Graph, differ, expect
from tests.client.support.runs import write_arrays
from tests.deploy.prediction.finished import finish


@pytest.mark.parametrize(
    ("model", "dtype", "most"),
    [
        (Model("cnn", (1, 8, 8), ("a", "b")), torch.uint8, 255),
        (Model("fasttext", (8,), ("a", "b"), kind="tokens", values="numbers", tokens=9), torch.int32, 8),
        (Model("mlp", (3,), ("a", "b"), kind="table", values="numbers"), torch.float32, 6),
    ],
)
def test_samples_are_drawn_as_they_occur(model: Model, dtype: torch.dtype, most: float) -> None:
    """In type, size and range; twice the same."""
    form = Form(model)
    drawn = form.draw(50)
    assert (dtype, (50, *model.shape)) == (drawn.dtype, tuple(drawn.shape))
    assert drawn.max() <= most
    assert torch.equal(drawn, form.draw(50))
    assert not torch.equal(drawn[:7], form.draw(7))


def test_scaling_is_the_sites_own() -> None:
    """Channels of windows one by one, columns of tables one by one."""
    for model in (
        Model(
            "har_cnn",
            (2, 4),
            ("a", "b"),
            kind="windows",
            values="numbers",
            mean=(5.0, 50.0),
            deviation=(1.0, 9.0),
        ),
        Model(
            "mlp", (2,), ("a", "b"), kind="table", values="numbers", mean=(5.0, 50.0), deviation=(1.0, 9.0)
        ),
    ):
        form = Form(model)
        raw = form.draw(500)
        mean, deviation = form.moments()
        inside = ((raw.double() - mean) / deviation).float()
        assert torch.equal(form.prepare(raw), inside)
        assert abs(float(inside.mean())) < 0.2


def test_differences_are_seen() -> None:
    """Relative to large numbers, absolute below one; other infinities or other shapes are no small difference."""
    one = torch.tensor([[1.0, -math.inf, 200.0]])
    assert 0.0 == differ([one], [one])
    assert 0.01 == pytest.approx(differ([one + 2], [one]))
    assert math.inf == differ([torch.tensor([[1.0, 3.0, 200.0]])], [one])
    assert math.inf == differ([one[:, :2]], [one])
    assert math.inf == differ([torch.full((1, 1), math.nan)], [torch.zeros(1, 1)])


def test_scaled_channels_are_in_the_graph(tmp_path: Path) -> None:
    """It takes the site's bytes as they are; its card says what becomes of them. Changes by chance are not in it."""
    folders = [write_arrays(tmp_path / name, seed=at) for at, name in enumerate(("a", "b"))]
    run = {"method": "fedavg", "rounds": 1, "backbone": "mlp", "normalise": "agreed", "augment": "medical"}
    sites = finish(folders, tmp_path / "state", **run)
    predictor = Predictor.load(next(sites.glob("a/**/serving.safetensors")))
    graph = Graph(predictor)
    samples = graph.form.draw(7)
    with torch.no_grad():
        assert 0.0 == differ(graph(samples), expect(predictor, graph.form, samples))
    [mean] = predictor.served.spec.model.pixel_mean
    assert f"mean {mean:.6g}" in model_card.write(predictor, tmp_path / "m.onnx", "onnx", "")
