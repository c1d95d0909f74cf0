"""`pfl export`: every method in every form answers as the model does, and what does not is not kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pfl_client.prediction import Predictor
from pfl_common import methods
from pfl_deploy.cli import main
from pfl_deploy.prediction import export as exporting
from pfl_deploy.prediction.graph import Graph
from tests.client.data.written import write_table, write_texts, write_windows
from tests.client.prediction.served import finish_site
from tests.deploy.prediction.finished import finish
from tests.words import check_clear, speak

FORMS = ("safetensors", "torch", "onnx")


def exported(model: Path, to: str, out: Path, *words: str) -> dict[str, Any]:
    """What the command says of a file it wrote."""
    if to == "onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
    said = speak(main, "export", model, "--to", to, "--out", out, "--json", *words)
    check_clear(said, 0)
    return json.loads(said.out)


def run_onnx(file: Path, samples: np.ndarray) -> dict[str, np.ndarray]:
    """Each output by name, without any code of ours."""
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"samples": samples}), strict=True))


@pytest.mark.parametrize("method", methods.names())
def test_a_graph_of_each_method_answers_as_predict_does(method: str, tmp_path: Path) -> None:
    """From raw bytes of the site's own pictures to probabilities: as `Predictor` says for the file."""
    desk, model, _ = finish_site(tmp_path, method)
    told = exported(model, "torch", tmp_path / "m.pt2")
    assert 0.0 == told["difference"]
    with np.load(desk.folder.path / "test.npz") as file:
        raw = torch.from_numpy(file["x"][:, None])
    program = torch.export.load(tmp_path / "m.pt2").module()
    with torch.no_grad():
        shares, *scores = program(raw)
    predictor = Predictor.load(model)
    expected = [list(a.probabilities.values()) for a in predictor.predict(desk.folder.path / "test.npz")]
    assert np.allclose(expected, shares.numpy(), atol=1e-6)
    assert 1 + len(predictor.heads) == len(scores)


@pytest.mark.parametrize("method", ["dualfed", "fedproto", "spherefed"])
def test_onnx_answers_as_predict_does(method: str, tmp_path: Path) -> None:
    """By its own runtime; heads have their names; classes stand in the file."""
    settings = {"calibrate": True} if method == "spherefed" else {}
    desk, model, _ = finish_site(tmp_path, method, **settings)
    told = exported(model, "onnx", tmp_path / "m.onnx")
    assert told["difference"] < 1e-5
    with np.load(desk.folder.path / "test.npz") as file:
        found = run_onnx(tmp_path / "m.onnx", file["x"][:, None])
    predictor = Predictor.load(model)
    expected = [list(a.probabilities.values()) for a in predictor.predict(desk.folder.path / "test.npz")]
    assert np.allclose(expected, found["probabilities"], atol=1e-5)
    assert {"probabilities", "scores", *(f"scores_{head}" for head in predictor.heads)} == found.keys()
    import onnx

    about = {entry.key: entry.value for entry in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert ["cat", "dog", "owl"] == json.loads(about["classes"])


KINDS = {
    "texts": lambda folder: write_texts(folder, ["the", "bad", "fever", "good"]),
    "windows": write_windows,
    "tables": write_table,
}


@pytest.mark.parametrize("kind", KINDS)
def test_preprocessing_is_in_the_graph(kind: str, tmp_path: Path) -> None:
    """Numbers go in as the site has them: the mean and deviation of the run are inside."""
    data = KINDS[kind](tmp_path / "data")
    state = finish([data], tmp_path, set={"lr": 0.1, "batch": 8}) / "data"
    for to, ending in (("torch", "pt2"), ("onnx", "onnx")):
        assert exported(state, to, tmp_path / f"m.{ending}")["difference"] < 1e-5
    with np.load(data / "test.npz") as file:
        x = file["x"]
    if kind != "texts":  # whose words have the run's numbers in the graph, not the site's
        raw = x.transpose(0, 2, 1) if kind == "windows" else x
        found = run_onnx(tmp_path / "m.onnx", np.ascontiguousarray(raw, np.float32))
        expected = [list(a.probabilities.values()) for a in Predictor.load(state).predict(data / "test.npz")]
        assert np.allclose(expected, found["probabilities"], atol=1e-5)
    card = (tmp_path / "m.md").read_text()
    assert (
        "Before: words become numbers" if kind == "texts" else "the mean of all sites is taken away"
    ) in card


def test_safetensors_is_the_model_itself(tmp_path: Path) -> None:
    """And its card says what it is, how good it was, and what to mind."""
    _, model, _ = finish_site(tmp_path, "fedrod")
    history = {
        "task": "000003-1-finish",
        "metrics": {},
        "scores": {"pre/test/combined": {"accuracy": 0.75, "samples": 8}},
    }
    (model.parents[1] / "history.jsonl").write_text(json.dumps(history) + "\n")
    out = tmp_path / "copy.safetensors"
    exported(model, "safetensors", out)
    assert model.read_bytes() == out.read_bytes()
    assert Predictor.load(out).classes == ("cat", "dog", "owl")
    card = (tmp_path / "copy.md").read_text()
    for words in (
        "hospital-a",
        "run-1",
        "`fedrod`",
        '["cat", "dog", "owl"]',
        "| test/combined | 0.7500 | 8 |",
        "metadata",
    ):
        assert words in card, words


def test_a_graph_that_answers_otherwise_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is left, no card either."""
    _, model, _ = finish_site(tmp_path)
    real = Graph.forward
    monkeypatch.setattr(
        Graph, "forward", lambda self, samples: tuple(1.01 * one for one in real(self, samples))
    )
    out = tmp_path / "out"
    out.mkdir()
    said = speak(main, "export", model, "--to", "torch", "--out", out / "m.pt2")
    check_clear(said, 2, "gives other outputs than the model")
    assert [] == list(out.iterdir())


def test_a_model_that_draws_is_refused(tmp_path: Path) -> None:
    """FedCP with noise in its policy."""
    _, model, _ = finish_site(tmp_path, "fedcp", policy="gumbel")
    said = speak(main, "export", model, "--to", "torch", "--out", tmp_path / "m.pt2")
    check_clear(said, 2, "draws when it predicts")


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a runtime it is refused, unless asked for: then the card says so."""
    pytest.importorskip("onnxscript")
    _, model, _ = finish_site(tmp_path)
    words = ("export", model, "--to", "onnx", "--out", tmp_path / "m.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    check_clear(speak(main, *words), 2, "could not be checked", "pfl-net[export]", "--unchecked")
    assert not (tmp_path / "m.onnx").exists()
    check_clear(speak(main, *words, "--unchecked"), 0, "NOT checked")
    assert "NOT checked" in (tmp_path / "m.md").read_text()
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    check_clear(speak(main, *words, "--unchecked"), 2, "ONNX needs onnxscript", "pfl-net[export]")


def test_wrong_words(tmp_path: Path) -> None:
    """A form, an ending, the model itself, a folder that is not there."""
    _, model, _ = finish_site(tmp_path)
    for words, phrase in (
        (("--to", "onx"), "did you mean 'onnx'"),
        (("--to", "torch", "--out", tmp_path / "m.onnx"), "*.pt2"),
        (("--out", model), "is the model itself"),
        (("--out", tmp_path / "none" / "m.safetensors"), "cannot be written"),
    ):
        check_clear(speak(main, "export", model, *words), 2, phrase)
    assert model.is_file()
    assert exporting.ENDINGS.keys() == set(FORMS)
