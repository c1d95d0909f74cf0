"""Every method is one file in this folder, found by its name: adding a method is adding a file."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from math import isfinite
from types import ModuleType

from pfl_common import models
from pfl_common.app import plugins
from pfl_common.app.config import settle
from pfl_common.errors import SettingError, nearest
from pfl_common.learning.arithmetic import Arithmetic
from pfl_common.learning.method import Arrivals, Averaging, Closed, Participant, ServerHalf, Settings
from pfl_common.learning.partition import has_batch_norm
from pfl_common.models import Backbone, ProjectorShape
from pfl_common.models.without_numbers import without_numbers
from pfl_common.spec.packages import Package
from pfl_common.spec.run import ClientId, Json, RunSpec, Task
from pfl_common.tensors.state import State
from pfl_common.tensors.update import SUM

EVERYWHERE: Mapping[str, str] = {
    "features": "What leaves the encoder, on at most 512 test samples after each training. sparsity: the share of "
    "components that are next to nothing. separation: R² of the classes, 1 when each class is one direction of its "
    "own, 0 when classes lie no further apart than samples of one class.",
}
"""Sentences for what every site tells, whatever its method."""

USUAL_NEWCOMER = "What stays at a site trains ten times E epochs; what travels is taken as it is."
"""Of a method that says nothing of its own, as of an installed package: what `Participant.adapt` does by itself."""


@dataclass(frozen=True)
class Method:
    """A method's file as loaded: its three names and its optional texts."""

    name: str
    config: type[Settings]
    client: type[Participant]
    server: type[ServerHalf]
    phase: Callable[[Settings, int, int], str]
    per_client: bool
    shows: str
    presets: Mapping[str, Mapping[str, Json]]
    diagnostics: Mapping[str, str]
    accounted_bytes: Callable[[Participant, int], int]
    """Bytes of one transfer as a report counts them, from a site's half and the bytes that are sent."""
    newcomer: str
    """What a site does that comes after the run and fits its own part to the shared state, in a sentence."""
    no_newcomer: str
    """Why no such site is possible; empty where it is."""
    no_robust: Callable[[Settings], str]
    """Why no robust rule can take the place of the mean, with these settings; empty where one can."""
    no_encoding: Callable[[Settings], str]
    """Why what crosses must be exact to the last digit, with these settings; empty where it may be rounded."""
    doc: str
    module: ModuleType
    package: Package | None = None
    """The installed package it comes from; None of those of this folder."""

    @classmethod
    def of(cls, module: ModuleType, *, name: str = "", package: Package | None = None) -> Method:
        """Read a module that has the names of a method; its own name is the file's."""
        return cls(
            name=name or module.__name__.rpartition(".")[2],
            config=module.Config,
            client=module.Client,
            server=module.Server,
            phase=getattr(module, "phase", _one_phase),
            per_client=getattr(module, "PER_CLIENT", False),
            shows=getattr(module, "SHOWS", ""),
            presets=getattr(module, "PRESETS", {}),
            diagnostics={**EVERYWHERE, **getattr(module, "DIAGNOSTICS", {})},
            accounted_bytes=getattr(module, "accounted_bytes", _as_sent),
            newcomer=getattr(module, "NEWCOMER", USUAL_NEWCOMER),
            no_newcomer=getattr(module, "NO_NEWCOMER", ""),
            no_robust=getattr(module, "no_robust", _works_with_a_mean(module)),
            no_encoding=getattr(module, "no_encoding", _bears_rounding(module)),
            doc=module.__doc__ or "",
            module=module,
            package=package,
        )

    @property
    def sends_alike(self) -> bool:
        """Whether every site is sent the same in a round, at first the numbers of its first model: then what each was
        sent before is known.
        """
        usual = ("start", "send", "welcome")
        alike = all(getattr(self.server, name, None) is getattr(Averaging, name) for name in usual)
        return alike and not self.per_client

    def settle(self, given: Mapping[str, Json | str]) -> Settings:
        """The method's settings from what the user gave."""
        return settle(self.config, given, what=self.name)

    def build_client(self, spec: RunSpec, backbone: Backbone) -> Participant:
        """A site's half, with layers not yet initialised by name."""
        client = self.client(self.settle(spec.settings), backbone, len(spec.model.classes))
        client.arithmetic = Arithmetic(spec.precision)
        if client.settings.batch == 1 and has_batch_norm(client):
            raise SettingError(
                f"batch is 1, and {self.name} on {backbone.name or 'this backbone'} has batch norm",
                expected="2 or more: the variance of one sample is not defined, and nothing would be trained",
                advice="choose a larger batch, or a network without batch norm (backbone cnn, for example)",
            )
        if backbone.frozen and next(client.parameters(), None) is None:
            raise SettingError(
                f"--freeze {','.join(backbone.frozen)} leaves {self.name} nothing to train",
                expected="a module or tensor that can still learn",
                advice="freeze less, or choose a method with a head of its own",
            )
        return client

    def build_server(self, spec: RunSpec) -> ServerHalf:
        """The coordinator's half."""
        return self.server(self.settle(spec.settings), spec)

    def close(self, half: ServerHalf, state: State, *, arrivals: Arrivals, task: Task) -> Closed:
        """The state after a round, and of what the coordinator's half has to tell all that is a number."""
        closed = half.close(state, arrivals, task)
        finite = {name: float(value) for name, value in closed.numbers.items() if isfinite(value)}
        return Closed(closed.state, finite)

    def compared(self, half: ServerHalf, state: State, client: ClientId) -> State:
        """What a site's update is compared with, by the names of its parcel: by default the values it was sent."""
        if hasattr(half, "compared"):
            return half.compared(state, client)
        # A half from outside that was written before there was this.
        return state.within(SUM)

    def begin(self, half: ServerHalf, first: State, last: State) -> State:
        """The state before the first round of a run that begins from another; only of a method that says how."""
        if not hasattr(half, "begin"):
            raise SettingError(
                f"the method {self.name} does not say how a run begins from another one's state",
                expected="a method whose Server has `begin`, as all of this release",
                advice="begin the run without --begin-from",
            )
        return half.begin(first, last)

    def phases(self, config: Settings, rounds: int) -> list[tuple[str, int]]:
        """Each phase with the first round it occurs in."""
        first: dict[str, int] = {}
        for number in range(1, rounds + 1):
            first.setdefault(self.phase(config, number, rounds), number)
        return list(first.items())


def names() -> tuple[str, ...]:
    """The methods of this folder."""
    return tuple(sorted(info.name for info in pkgutil.iter_modules(__path__)))


def list_names() -> tuple[str, ...]:
    """All methods there are, those of installed packages last."""
    return (*names(), *plugins.names("method"))


def load(name: str) -> Method:
    """A method by name; a wrong name is an error that tells the nearest right one."""
    plugin = plugins.find("method", name, names())
    if plugin is not None:
        return _read_plugin(plugin)
    if name not in names():
        raise SettingError(f"there is no method {name!r}", expected=nearest(name, list_names()))
    return Method.of(import_module(f"{__name__}.{name}"))


def _read_plugin(plugin: plugins.Plugin) -> Method:
    module = plugin.load()
    if not isinstance(module, ModuleType):
        raise plugin.fault("is no module")
    for name, kind in {"Config": Settings, "Client": Participant, "Server": object}.items():
        own = getattr(module, name, None)
        if not (isinstance(own, type) and issubclass(own, kind)):
            raise plugin.fault(f"has no class {name}" + f" below {kind.__name__}" * (kind is not object))
    return Method.of(module, name=plugin.name, package=plugin.package)


def count_charged(spec: RunSpec) -> int:
    """Bytes that a method's paper charges a transfer with although nobody sends them: 0 for nearly all methods."""
    method = load(spec.method)
    if method.accounted_bytes is _as_sent:
        return 0
    with without_numbers():
        return method.accounted_bytes(build_participant(spec), 0)


def build_participant(spec: RunSpec) -> Participant:
    """The site's half of a run's method on the run's backbone, before its layers have their first values."""
    plugins.check_pinned(spec)
    projector = ProjectorShape() if spec.model.encoder_projector else None
    backbone = models.build(
        spec.model.backbone,
        shape=spec.model.shape,
        classes=len(spec.model.classes),
        tokens=spec.model.tokens,
        projector=projector,
    )
    return load(spec.method).build_client(spec, replace(backbone, frozen=spec.frozen))


def _works_with_a_mean(module: ModuleType) -> Callable[[Settings], str]:
    """The answer for a method that does not say itself whether a robust rule can take the place of the mean."""
    if getattr(module, "SHOWS", ""):
        why = "the coordinator works with the sites' single models, there is no mean"
    elif not issubclass(module.Server, Averaging):
        why = "its coordinator's half does not say what it makes of the updates"
    else:
        why = ""
    return lambda config: why


def _bears_rounding(module: ModuleType) -> Callable[[Settings], str]:
    """The answer for a method that does not say itself whether what it shares may be rounded."""
    if getattr(module, "SHOWS", ""):
        why = "the coordinator works with the sites' single models and what they differ in, which have to be exact"
    elif getattr(module.Server, "compared", None) is not Averaging.compared:
        why = "its coordinator's half does not say that updates are changes of the state that sites are sent"
    else:
        why = ""
    return lambda config: why


def _as_sent(client: Participant, sent: int) -> int:
    return sent


def _one_phase(config: Settings, number: int, rounds: int) -> str:
    return "train"
