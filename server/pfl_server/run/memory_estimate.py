"""Estimates the memory that a run's training takes, without taking it, and explains a shortage."""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pfl_common import methods
from pfl_common.errors import RunFailed
from pfl_common.spec.run import RunSpec

COPIES = 5
"""Of the model while it trains: the first one, the copy that trains, gradients, what is sent, what is summed."""
PASSES = 2
"""Each layer's output is held for the way back, and its gradient beside it."""
NO_MEMORY = 71
"""How a rehearsal's own process ends when it is refused memory; one that the system ends is ended by SIGKILL."""
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL, NO_MEMORY)


@dataclass(frozen=True)
class Appetite:
    """The bytes of the model, and of its layers' outputs for one sample."""

    model: int
    sample: int

    def at(self, samples: int) -> int:
        """Bytes while this many samples are trained on at once."""
        return COPIES * self.model + PASSES * samples * self.sample


def estimate(spec: RunSpec) -> Appetite:
    """By a pass of one sample through a network that has shapes and no numbers."""
    with torch.device("meta"):
        participant = methods.build_participant(spec).eval()
        model = sum(value.nbytes for value in participant.state_dict().values())
        outputs = [4 * math.prod(spec.model.shape)]

        def note(_layer: nn.Module, _given: object, made: object) -> None:
            if isinstance(made, Tensor):
                outputs.append(made.nbytes)

        layers = [layer for layer in participant.encoder.modules() if not list(layer.children())]
        hooks = [layer.register_forward_hook(note) for layer in layers]
        numbers = torch.int64 if spec.model.tokens else torch.float32
        participant.encoder(torch.empty((1, *spec.model.shape), dtype=numbers))
        for hook in hooks:
            hook.remove()
    return Appetite(model, sum(outputs))


def lacks_memory(error: BaseException) -> bool:
    """Whether Python or torch was refused memory."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate" in str(error))


def explain_end(spec: RunSpec, code: int, *, samples: int) -> RunFailed:
    """Why a rehearsal's process ended, with what to do about it."""
    if code not in _KILLED:
        return RunFailed(f"the rehearsal of {spec.method} ended with {code}: see the log above")
    how = "" if code == NO_MEMORY else f", it ended with {code}, most often the system's answer to that"
    return explain_hunger(spec, how, samples=samples)


def explain_hunger(spec: RunSpec, how: str = "", *, samples: int) -> RunFailed:
    """The error for a rehearsal without memory: what was too large, its need, and the settings that reduce it."""
    need, batch = estimate(spec), spec.settings.get("batch", 32)
    size = "x".join(map(str, spec.model.shape))
    images = "smaller pictures: --image-size 224; " if len(spec.model.shape) == 3 else ""
    if spec.model.tokens:
        images = f"fewer words than {spec.model.tokens}: --vocabulary FILE; shorter texts: --length 200; "
    site = need.at(batch) if isinstance(batch, int) else need.at(samples)
    return RunFailed(
        f"the rehearsal of {spec.method} lacked memory on this machine{how}\n"
        f"  expected: about {_say(need.at(samples))} here, for {spec.model.backbone} ({_say(need.model)}) "
        f"on samples of {size}; a site needs about {_say(site)} for a batch of {batch}\n"
        f"  what to do: {images}a smaller network: --backbone cnn; a smaller batch: --set batch=8; or more memory"
    )


def _say(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{max(1, round(size / 1e6))} MB"
