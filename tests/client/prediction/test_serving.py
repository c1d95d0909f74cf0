"""What is no serving model, or a broken one, is refused in words."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from pfl_client.prediction.serving import read_served
from pfl_common.errors import StateError
from tests.client.prediction.served import finish_site


def test_a_model_says_what_it_is(tmp_path: Path) -> None:
    """Site, run and method; every tensor is the file's; it is ready to predict."""
    desk, file, _ = finish_site(tmp_path, "fedper")
    served = read_served(file)
    assert ("hospital-a", desk.spec, False) == (served.site, served.spec, served.participant.training)
    own = served.participant.state_dict()
    tensors = load_file(file)
    assert tensors.keys() == own.keys()
    assert all(torch.equal(own[name], value) for name, value in tensors.items())


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    """Another file, tensors without a description, a description that is none."""
    text = tmp_path / "notes.txt"
    text.write_text("no tensors here")
    bare, odd = tmp_path / "bare.safetensors", tmp_path / "odd.safetensors"
    save_file({"weight": torch.zeros(2)}, bare)
    save_file(
        {"weight": torch.zeros(2)}, odd, {"pfl": json.dumps({"site": "a", "spec": {"method": "fedavg"}})}
    )
    for file, words in ((text, "cannot be read"), (bare, "does not say"), (odd, "cannot be read")):
        with pytest.raises(StateError, match=words):
            read_served(file)


def test_a_model_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """A tensor missing, of another shape, or with NaN in it."""
    _, file, _ = finish_site(tmp_path)
    tensors = load_file(file)
    with safe_open(file, "pt") as content:
        about = content.metadata()
    name = "head.weight"
    changes = {
        "does not fit its own description": {key: t for key, t in tensors.items() if key != name},
        "'head.weight'": {**tensors, name: torch.zeros(1)},
        "NaN or infinity in 'head.weight'": {**tensors, name: torch.full_like(tensors[name], torch.nan)},
    }
    for words, changed in changes.items():
        save_file(changed, tmp_path / "changed.safetensors", about)
        with pytest.raises(StateError) as error:
            read_served(tmp_path / "changed.safetensors")
        assert words in str(error.value)
