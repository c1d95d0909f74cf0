"""Files of tensors: a model that somebody sends, and weights to begin with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise

import torch
from safetensors.torch import save

from pfl_client.prediction.serving import read_served
from pfl_common import methods
from pfl_common.errors import UserError
from pfl_common.models.weights_file import read_weights
from pfl_common.tensors.safetensors_file import NAMES
from tests.fuzz.bounds import ends_in
from tests.fuzz.target import as_file, target
from tests.fuzz.targets.specifications import pin


def served() -> tuple[dict[str, torch.Tensor], dict[str, object]]:
    """A serving model of a small run: its tensors, and what it says of itself."""
    participant = methods.build_participant(pin())
    said = {"spec": json.loads(pin().to_json()), "site": "site-a", "validation": 0.1}
    best = {"round": 3, "accuracy": 0.5, "loss": 0.5, "samples": 9}
    return dict(participant.state_dict()), {**said, "best": best, "data": {"dicom_window": [40, 400]}}


def _seeds() -> list[bytes]:
    whole, said = served()
    tensors = {"w": torch.zeros(2, 2), "b": torch.ones(2, dtype=torch.float16)}
    about = {"pfl": json.dumps({"spec": json.loads(pin().to_json()), "site": "site-a"})}
    return [save(tensors), save(tensors, about), save({}), save(whole, {"pfl": json.dumps(said)})]


@target(
    "safetensors",
    UserError,
    seeds=_seeds,
    words=(b'"data_offsets":[0,16]', b'"shape":[9999999999,9]', b'"dtype":"F64"'),
)
def read(content: bytes) -> None:
    """By its header alone such a file says where its tensors lie: what is taken is what stands there."""
    file = as_file(content, "model.safetensors")
    with ends_in(UserError):
        _compare(read_weights(file).tensors, content)
    with ends_in(UserError):
        _compare(read_served(file).participant.state_dict(), content)


def _compare(tensors: Mapping[str, torch.Tensor], content: bytes) -> None:
    start = 8 + int.from_bytes(content[:8], "little")
    said = json.loads(content[8:start])
    places = []
    for name, value in tensors.items():
        begin, end = said[name]["data_offsets"]
        assert NAMES.get(value.dtype, said[name]["dtype"]) == said[name]["dtype"]
        assert list(value.shape) == said[name]["shape"]
        stored = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        assert stored == content[start + begin : start + end]
        places.append((begin, end))
    # No number belongs to two tensors.
    assert all(one[1] <= other[0] for one, other in pairwise(sorted(places)))
