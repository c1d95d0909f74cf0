"""Estimates the memory that a run's training takes, without taking it, and explains a shortage."""

from __future__ import annotations

import math
import signal
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from pfl_common import methods
from pfl_common.app import plugins
from pfl_common.errors import RunFailed
from pfl_common.models.without_numbers import without_numbers
from pfl_common.spec.run import RunSpec
from pfl_server.run.kept_figures import NETWORKS, read_kept

COPIES = 2.5
"""Models that a rehearsal holds at most, whatever the method; a model is all that a site of it holds. It is the sums in
float64, or the first model while its values are drawn, or the model that trains with what its method has beside it;
and half a model of what is computed with its largest tensors. `python -m tests.benchmarks.rehearsal` measures it.
"""
PASSES = 2
"""Each layer's output is held for the way back, and its gradient beside it."""
SMALL = 64 << 20
"""Bytes of a model with which a pass is really made: without numbers torch loads its compiler, a second's work."""
NO_MEMORY = 71
"""How a rehearsal's own process ends when it is refused memory; one that the system ends is ended by SIGKILL."""
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL, NO_MEMORY)


@dataclass(frozen=True)
class Appetite:
    """The bytes of the model, and of its layers' outputs for one sample."""

    model: int
    sample: int

    def at(self, samples: int) -> int:
        """Bytes of a rehearsal while this many samples are trained on at once."""
        return round(COPIES * self.model) + PASSES * samples * self.sample


def estimate(spec: RunSpec) -> Appetite:
    """By a pass of one sample, whose outcome is of no matter: only the layers' outputs are measured."""
    sample = 4 * math.prod(spec.model.shape)
    with without_numbers():
        participant = methods.build_participant(spec).eval()
    model = _size(participant)
    if small := model <= SMALL and sample <= SMALL // 16:
        participant = methods.build_participant(spec).eval()
    outputs = [sample]

    def note(_layer: nn.Module, _given: object, made: object) -> None:
        if isinstance(made, Tensor):
            outputs.append(made.nbytes)

    for layer in participant.encoder.modules():
        if not list(layer.children()):
            layer.register_forward_hook(note)
    numbers = torch.int64 if spec.model.tokens else torch.float32
    with nullcontext() if small else without_numbers(), torch.no_grad():
        participant.encoder(torch.zeros((1, *spec.model.shape), dtype=numbers))
    return Appetite(model, sum(outputs))


def estimate_site(spec: RunSpec, batch: int) -> int:
    """Bytes of a training at a site, where nothing is spared: the download, gradients and momentum are there too."""
    need = estimate(spec)
    return round(_count_models(spec) * _measure(_plain(spec))) + PASSES * batch * need.sample


def _count_models(spec: RunSpec) -> float:
    """Networks' worth of memory in training, as measured; of a method from elsewhere as FedAvg's for each it holds."""
    measured = read_kept()[NETWORKS[-1].words]
    if spec.method in measured:
        return measured[spec.method].sets
    return measured["fedavg"].sets * _measure(spec) / _measure(_plain(spec))


def _plain(spec: RunSpec) -> RunSpec:
    """A run of the network and nothing else."""
    packages = plugins.pin("fedavg", spec.model.backbone)
    return replace(spec, method="fedavg", settings={}, packages=packages, frozen=())


def _measure(spec: RunSpec) -> int:
    """Bytes of all that a site holds of a run's method."""
    with without_numbers():
        return _size(methods.build_participant(spec))


def _size(participant: nn.Module) -> int:
    return sum(value.nbytes for value in participant.state_dict().values())


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
    site = estimate_site(spec, batch if isinstance(batch, int) else samples)
    return RunFailed(
        f"the rehearsal of {spec.method} lacked memory on this machine{how}\n"
        f"  expected: about {_say(need.at(samples))} here, for {spec.model.backbone} ({_say(need.model)}) "
        f"on samples of {size}; a site needs about {_say(site)} for a batch of {batch}\n"
        f"  what to do: {images}a smaller network: --backbone cnn; a smaller batch: --set batch=8; or more memory"
    )


def _say(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{max(1, round(size / 1e6))} MB"
