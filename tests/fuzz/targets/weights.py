"""Files of tensors: a model that somebody sends, and weights to begin with."""

from __future__ import annotations

import json

import torch
from safetensors.torch import save

from pfl_client.prediction.serving import read_served
from pfl_common.errors import UserError
from pfl_common.models.weights_file import read_weights
from tests.fuzz.target import as_file, target
from tests.fuzz.targets.specifications import pin


def _seeds() -> list[bytes]:
    tensors = {"w": torch.zeros(2, 2), "b": torch.ones(2, dtype=torch.float16)}
    about = {"pfl": json.dumps({"spec": json.loads(pin().to_json()), "site": "site-a"})}
    return [save(tensors), save(tensors, about), save({})]


@target(
    "safetensors",
    UserError,
    seeds=_seeds,
    words=(b'"data_offsets":[0,16]', b'"shape":[9999999999,9]', b'"dtype":"F64"'),
)
def read(content: bytes) -> None:
    """By its header alone such a file says where its tensors lie."""
    file = as_file(content, "model.safetensors")
    for reader in (read_weights, read_served):
        try:
            reader(file)
        except UserError:
            continue
