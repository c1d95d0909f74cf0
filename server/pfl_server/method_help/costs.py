"""Measures a method's cost for a site (bytes, memory, arithmetic) on a fixed network with made-up samples.

Nothing here reads a clock: the same code gives the same figures on every machine. A small federation plays two rounds;
the second is measured, since in the first a site has nothing of its own yet.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import weakref
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any  # what an operation takes and gives has any type

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from pfl_common import methods
from pfl_common.app import plugins
from pfl_common.app.config import dump
from pfl_common.learning.method import Arrivals, LocalData, Participant, Samples
from pfl_common.methods import Method
from pfl_common.randomness import generators
from pfl_common.spec.manifest import Manifest
from pfl_common.spec.run import Json, Kind, Model, RunSpec, Task
from pfl_common.tensors.state import State, load_into
from pfl_common.tensors.summing import Sum
from pfl_common.tensors.update import Up, flatten
from pfl_server.run.kept_figures import KEPT, NETWORKS, SAMPLES, Figures, Network, read_kept
from pfl_server.run.rehearsal import Rehearsed, rehearse

FEW = 4
"""A site's training samples where models are counted: two batches of two."""
NEIGHBOURS = 6
"""Sites of the small federation where a download is made of other sites' models."""
ROUNDS = 10


def look_up(name: str, network: Network, settings: Mapping[str, Json] | None = None) -> Figures:
    """Figures of the defaults from the file; of other settings, networks and methods they are measured now."""
    known = {} if settings else read_kept().get(network.words, {})
    return known.get(name) or measure(name, network, settings)


def write_kept(names: Collection[str]) -> None:
    """Measure these methods on every network of the pages; what is known of the others stays."""
    for network in NETWORKS:
        for name in names:
            _keep(network, name, measure(name, network))


def _keep(network: Network, name: str, found: Figures) -> None:
    """Write one method's figures at once; what is known of the others stays, but of methods that are gone."""
    kept = read_kept()
    kept.setdefault(network.words, {})[name] = found
    plain = {
        words: {name: asdict(figures) for name, figures in rows.items() if name in methods.names()}
        for words, rows in kept.items()
    }
    KEPT.write_text(json.dumps(plain, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def measure(name: str, network: Network, settings: Mapping[str, Json] | None = None) -> Figures:
    """Play a method's second round at one site, and count."""
    method = methods.load(name)
    spec = describe(method, network, settings or {})
    few = dataclasses.replace(spec, settings={**spec.settings, "batch": 2, "epochs": 1})
    small, whole = _Federation(method, few, FEW), _Federation(method, spec, SAMPLES)
    products, down, up = whole.count_products()
    return Figures(
        down=down,
        up=up,
        kept=whole.kept,
        model=_size(_plain(spec)),
        held=small.count_held(),
        peak=whole.count_held(),
        products=products,
    )


def describe(method: Method, network: Network, settings: Mapping[str, Json]) -> RunSpec:
    """A run of this method on this network."""
    model = Model(network.backbone, network.shape, tuple(f"class {n}" for n in range(network.classes)))
    roster = tuple(f"site-{number}" for number in range(NEIGHBOURS))
    # What a site measures for a curve is no part of the method, and is left out on request.
    settled = dump(method.settle({"diagnose": False, **settings}))
    packages = plugins.pin(method.name, network.backbone)
    return RunSpec("figures", method.name, settled, model, roster, rounds=ROUNDS, seed=0, packages=packages)


def pin(method: Method, spec: RunSpec) -> dict[str, Manifest]:
    """Every parcel of a run, as the rehearsal before it pins them."""
    return rehearse(method, spec, _template(spec))


def usual_phase(method: Method, spec: RunSpec) -> str:
    """The phase that most rounds have; of equals the first."""
    config = method.settle(spec.settings)
    phases = [method.phase(config, number, spec.rounds) for number in range(1, spec.rounds + 1)]
    return max(dict.fromkeys(phases), key=phases.count)


def _plain(spec: RunSpec) -> State:
    """The network that FedAvg shares."""
    packages = plugins.pin("fedavg", spec.model.backbone)
    plain = dataclasses.replace(spec, method="fedavg", settings={}, packages=packages)
    return State.of(_template(plain))


def _size(state: State) -> int:
    return sum(value.numel() * value.itemsize for value in state.values())


def _template(spec: RunSpec) -> Participant:
    template = methods.build_participant(spec)
    generators.initialise(template, spec.seed)
    return template


class _Federation:
    """Sites with made-up samples, after their first round together."""

    def __init__(self, method: Method, spec: RunSpec, samples: int) -> None:
        self._method, self._spec = method, spec
        self._phase = usual_phase(method, spec)
        self._template, self._data = _template(spec), make_up(spec, samples)
        self._half = method.build_server(spec)
        self._state = self._half.start(self._template, spec.seed)
        # Only where others' models come down one by one does it matter how many others there are.
        count = NEIGHBOURS if method.shows else 1
        self._vault = State()
        with generators.scope(spec.seed, "figures"):
            self._begin(spec.roster[:count])

    def _task(self, number: int) -> Task:
        return Task(Kind.TRAIN, number, self._spec.rounds, phase=self._phase, since=number - 1)

    def _begin(self, sites: tuple[str, ...]) -> None:
        """The first round."""
        total, shown = Sum(), dict[str, Rehearsed]()
        for site in sites:
            participant, task = copy.deepcopy(self._template), self._task(1)
            up = self._work(participant, self._half.welcome(self._state), task)
            total.add(up.summed)
            shown[site] = Rehearsed(f"{site}@1", up.shown.apply(torch.clone))
            if site == sites[0]:
                self._vault = State.of(participant, participant.stays(self._phase))
        self._state = self._half.close(self._state, Arrivals(total, shown), self._task(1)).state

    def _work(self, participant: Participant, down: State, task: Task) -> Up:
        participant.receive(down, task)
        participant.learn(self._data, task)
        return participant.report(self._data, task)

    @property
    def kept(self) -> int:
        """Bytes of what stays at the site."""
        return _size(self._vault)

    def _second(self) -> tuple[int, int]:
        """The first site's second round, from its vault and a download of its own; gives bytes down and up."""
        task = self._task(2)
        participant = copy.deepcopy(self._template)
        load_into(participant, self._vault)
        down = self._half.send(self._state, self._spec.roster[0], task).apply(torch.clone)
        up = self._work(participant, down, task)
        return _size(down), _size(flatten(up))

    def count_held(self) -> int:
        """Most bytes of tensors that are there at one time."""
        alive = Alive()
        with generators.scope(self._spec.seed, "figures"), alive:
            self._second()
        return alive.most

    def count_products(self) -> tuple[int, int, int]:
        """Multiply-adds, of which torch counts two operations each; and the bytes that crossed."""
        counter = FlopCounterMode(display=False)
        with generators.scope(self._spec.seed, "figures"), counter:
            down, up = self._second()
        return int(counter.get_total_flops()) // 2, down, up


def make_up(spec: RunSpec, samples: int) -> LocalData:
    """Samples of all classes in turn."""
    x = torch.rand((samples, *spec.model.shape), generator=generators.generator(spec.seed, "figures"))
    part = Samples(x, torch.arange(samples) % len(spec.model.classes))
    return LocalData(part, part, part, len(spec.model.classes), spec.roster[0], spec.seed)


class Alive(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Counts the bytes of all tensors created since it began and still in memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now, self.most = 0, 0
        self._held: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Do what was asked, then look at what is new."""
        found = func(*args, **(kwargs or {}))
        given = {_place(value) for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)}
        for value in tree_leaves(found):
            # A view lies where the tensor lies that it looks at.
            if isinstance(value, Tensor) and not (_place(value) in given or _place(value) in self._held):
                self._take(value)
        return found

    def _take(self, value: Tensor) -> None:
        place, storage = _place(value), value.untyped_storage()
        size = storage.nbytes()

        def forget(_: object) -> None:
            del self._held[place]
            self.now -= size

        self._held[place] = weakref.ref(storage, forget)
        self.now += size
        self.most = max(self.most, self.now)


def _place(value: Tensor) -> int:
    place: int = value.untyped_storage()._cdata
    return place
