"""What sites hold of the encoded tensors where downloads cross as changes: see `spec.encoding`.

Coordinator and sites come to it in two ways, from the change and from the whole, with the same arithmetic: one float32
addition for each number. So they come to the same bits on every machine, and a hash says whether they did.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pfl_common.spec import digests
from pfl_common.spec.digests import Digests
from pfl_common.spec.encoded_form import Form, read_form
from pfl_common.spec.manifest import Manifest, changing_names
from pfl_common.tensors import mapped
from pfl_common.tensors.packing import CHUNK, pack, unpack
from pfl_common.tensors.state import State

SENT = "~sent"
"""The branch of it in a site's generation and in a checkpoint; no tensor of a model has such a name."""


def follow(before: Mapping[str, Tensor], state: Mapping[str, Tensor], manifest: Manifest) -> State:
    """What sites hold after a download: what they held `before`, and of its difference from the state what crosses."""
    with mapped.draft(before) as room:
        for entry in manifest:
            form = read_form(entry.dtype)
            if form is not None and form.is_change:
                _follow_one(entry.name, form, before[entry.name], state[entry.name], room)
        return State(room.tensors())


def _follow_one(name: str, form: Form, before: Tensor, value: Tensor, room: mapped.Draft) -> None:
    held, wanted = before.reshape(-1), value.detach().reshape(-1)
    for start in range(0, len(held), CHUNK):
        old = held[start : start + CHUNK]
        raw = pack(form, wanted[start : start + CHUNK] - old)
        room.put(name, start, unpack(form, raw, len(old)).add_(old))


def digest_of(held: Mapping[str, Tensor], manifest: Manifest, by: Digests) -> str:
    """The hash of what a site holds: its numbers in the order of the manifest of changes."""
    hashed = digests.start(by)
    for name in changing_names(manifest):
        hashed.update(held[name].detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()
