"""A site's models on disk: whole or not there, and complete ones with the run they belong to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from pfl_client.prediction.serving import read_served
from pfl_client.trainer.model_files import describe_model, write_state
from pfl_client.trainer_process.api import Measured
from pfl_common.tensors import safetensors_file
from pfl_common.tensors.state import State
from tests.client.support.runs import pin_run


def test_a_model_says_which_run_it_is_of_and_the_best_which_round(tmp_path: Path) -> None:
    """The last one says nothing of a round: its bytes are as they always were."""
    spec, first, _ = pin_run()
    best = Measured(2, 0.75, 0.5, 12)
    for name, kept in (("last", None), ("best", best)):
        write_state(first, tmp_path / name, describe_model(spec, "hospital-a", best=kept))
        with safe_open(tmp_path / name, "pt") as content:
            about = json.loads(content.metadata()["pfl"])
        assert ("hospital-a", "run-1") == (about["site"], about["spec"]["id"])
        assert (None if kept is None else vars(kept)) == about.get("best")


@pytest.mark.parametrize(("share", "said"), [(None, None), (0.15, None), (0.3, 0.3), (0.0, 0.0)])
def test_a_share_of_the_site_alone_is_said(tmp_path: Path, share: float | None, said: float | None) -> None:
    """Read back with the model, so that `pfl evaluate --part validation` finds the same samples."""
    spec, first, _ = pin_run()
    spec = replace(spec, validation=0.15)
    write_state(first, tmp_path / "model", describe_model(spec, "hospital-a", validation=share))
    assert said == read_served(tmp_path / "model").validation


def test_what_is_not_written_to_its_end_takes_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file before stays whole."""
    file = tmp_path / "model"
    write_state(State({"a": torch.ones(2)}), file)
    before = file.read_bytes()

    def break_off(*words: object) -> None:
        raise OSError("full")

    monkeypatch.setattr(safetensors_file, "write", break_off)
    with pytest.raises(OSError, match="full"):
        write_state(State({"a": torch.zeros(2)}), file)
    assert before == file.read_bytes()
