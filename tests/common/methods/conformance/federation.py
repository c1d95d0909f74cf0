"""A federation without clock, network or disk, out of the product's own parts.

Every parcel goes through its pinned manifest as bytes; a site is put together anew for every task, from the
first model and its vault; the round's own state machine says what is counted.
"""

from __future__ import annotations

import copy
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import cast

import torch
from torch import Tensor

from pfl_client.trainer import tasks
from pfl_common.learning.freezing import align_copies
from pfl_common.learning.method import LocalData, Participant
from pfl_common.learning.quantities import list_quantities
from pfl_common.methods import Method
from pfl_common.randomness import generators
from pfl_common.spec.manifest import Manifest
from pfl_common.spec.run import ClientId, Json, Kind, Model, RunSpec, Task
from pfl_common.tensors import codec
from pfl_common.tensors.state import State, load_into
from pfl_common.tensors.update import Up, Weighted, flatten, unflatten
from pfl_common.tensors.update_check import Terms, check_update
from pfl_server.decisions.outlying import Outlying
from pfl_server.decisions.round import Abandon, Arrived, Close, Event, Fold, Lost, Round
from pfl_server.decisions.sampling import Draw
from pfl_server.run.rehearsal import rehearse
from pfl_server.store.spool import Spool
from pfl_server.store.tallies import PlainTally
from tests.common.support.held import Held

from .schedule import (
    CLASSES,
    INPUTS,
    LATECOMER,
    ROUNDS,
    SCHEDULE,
    SEED,
    SITES,
    Play,
    build_backbone,
    build_data,
    fill,
    reverse,
)

BASE: dict[str, Json] = {"epochs": 2, "batch": 64, "lr": 0.1, "momentum": 0.5}
"""Whole batches: shuffling cannot matter beyond rounding."""


@dataclass(frozen=True)
class Habits:
    """How one federation differs from another that must end alike."""

    dtype: torch.dtype = torch.float64
    reverse: bool = False
    """Every State is handed on with its names the other way round."""
    arrival: int = 0
    """Updates arrive in site order, turned by so many places."""
    warm: bool = False
    """A site's participant lives on from task to task; it is restored only when an attempt is given up."""
    watched: bool = True
    """Every site measures its model in every round, and what it measured is put down."""
    names: tuple[ClientId, ...] = SITES
    settings: tuple[tuple[str, Json], ...] = ()
    frozen: tuple[str, ...] = ()
    """Modules and tensors that stand still."""


@dataclass(frozen=True)
class Parcel:
    """One update as the coordinator holds it: bytes, read when asked for."""

    id: str
    content: bytes
    groups: tuple[str, ...]
    manifest: Manifest
    reversed: bool

    @property
    def header(self) -> Parcel:
        """What is said of it; the tally asks for its groups alone."""
        return self

    def source(self) -> AbstractContextManager[codec.Source]:
        """Its bytes, for the fold."""
        return nullcontext(Held(self.content))

    def up(self) -> Up:
        """The update."""
        state = codec.decode(bytearray(self.content), self.manifest, self.groups)
        return unflatten(reverse(state) if self.reversed else state)

    def load(self) -> State:
        """What was shown."""
        return self.up().shown


class Parcels:
    """The spool, in memory."""

    def __init__(self) -> None:
        self._held: dict[str, Parcel] = {}

    def admit(self, parcel: Parcel) -> None:
        """Take an update."""
        self._held[parcel.id] = parcel

    def open(self, name: str) -> Parcel:
        """An update by its id."""
        return self._held[name]


def restore(participant: Participant, init: State, kept: State) -> Participant:
    """Put a participant where the site's vault left it: the first model, and over it what was kept."""
    load_into(participant, init)
    load_into(participant, kept)
    return participant


def _copied(up: Up | None) -> Up | None:
    if up is None:
        return None
    terms = {name: Weighted(term.value.clone(), term.weight.clone()) for name, term in up.summed.items()}
    return Up(terms, up.shown.apply(torch.clone))


@dataclass(frozen=True)
class Trained:
    """What one site did in one attempt."""

    site: ClientId
    task: Task
    before: State
    """All values it started from, before the download."""
    after: State
    kept: State
    stays: frozenset[str]
    scores: Tensor | None
    """What `forward` says of the test set after training, if the federation is watched."""
    up: Up | None
    parcel: Parcel | None
    samples: Tensor
    told: Mapping[str, tuple[float, ...]]
    """Every number the site wrote down: of training, of diagnostics, of evaluations."""

    def up_state(self) -> State:
        """All that went up, weights included."""
        return flatten(self.up) if self.up is not None else State()


@dataclass(frozen=True)
class Measured:
    """One site's model before a round (or at the end), ready to predict."""

    model: State
    scores: Tensor


@dataclass
class History:
    """All that can be seen of a federation."""

    states: dict[int, State] = field(default_factory=dict)
    told: dict[int, Mapping[str, float]] = field(default_factory=dict)
    """What the coordinator's half told of each round."""
    vaults: dict[int, dict[ClientId, State]] = field(default_factory=dict)
    measured: dict[int, dict[ClientId, Measured]] = field(default_factory=dict)
    trained: list[tuple[Play, dict[ClientId, Trained]]] = field(default_factory=list)
    serving: dict[ClientId, State] = field(default_factory=dict)
    finished: dict[ClientId, State] = field(default_factory=dict)
    init: State = field(default_factory=State)
    manifests: Mapping[str, Manifest] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)


class Federation:
    """One method going through the schedule; sites are called a, b, c … here whatever name they go by."""

    def __init__(self, module: ModuleType, settings: Mapping[str, Json], habits: Habits) -> None:
        self.method, self.habits = Method.of(module), habits
        self.history = History()
        self._spec = self._pin({**BASE, **settings, **dict(habits.settings)})
        self._config = self.method.settle(self._spec.settings)
        template = self._build()
        # What a method draws with the first model follows from the seed; all else is filled over.
        generators.initialise(template, SEED)
        fill(template, habits.dtype)
        align_copies(template)
        with default_dtype(habits.dtype):
            self._spec = replace(self._spec, manifests=rehearse(self.method, self._spec, template))
        self._half = self.method.build_server(self._spec)
        self.history.manifests = self._spec.manifests
        self.history.init = self._hand_on(State.of(template), self._spec.init_manifest)
        self._state = self._turn(self._half.start(template, SEED))
        self._vaults: dict[ClientId, dict[tuple[int, int], State]] = {site: {} for site in SITES}
        self._committed: dict[int, int] = {}
        self._living: dict[ClientId, Participant] = {}
        self._parcels = Parcels()
        self._changes: dict[ClientId, float] = {}
        self._outlying = Outlying(RunSpec.change_factor)
        self._data: dict[ClientId, LocalData] = {
            site: build_data(site, name=self.name(site), dtype=habits.dtype) for site in SITES
        }

    def run(self) -> History:
        """Play the schedule, then let every site finish."""
        self.begin(len(SCHEDULE))
        with default_dtype(self.habits.dtype):
            self._finish()
        return self.history

    def begin(self, plays: int) -> History:
        """Play the schedule's first attempts only."""
        with default_dtype(self.habits.dtype):
            for play in SCHEDULE[:plays]:
                self._play(play)
        return self.history

    def name(self, site: ClientId) -> ClientId:
        """The name a site goes by."""
        return self.habits.names[SITES.index(site)]

    def phase(self, number: int) -> str:
        """The method's phase in a round."""
        return self.method.phase(self._config, number, ROUNDS)

    # -- putting together

    def _pin(self, settings: dict[str, Json]) -> RunSpec:
        model = Model("own", (INPUTS,), tuple("wxyz"[:CLASSES]))
        roster = tuple(sorted(self.name(site) for site in SITES if site != LATECOMER))
        return RunSpec("run", self.method.name, settings, model, rounds=ROUNDS, seed=SEED, roster=roster)

    def _build(self) -> Participant:
        backbone = replace(build_backbone(), frozen=self.habits.frozen)
        return self.method.build_client(self._spec, backbone)

    def _since(self, site: ClientId) -> int:
        return self._newest(site)[0]

    def _newest(self, site: ClientId) -> tuple[int, State]:
        """The newest generation of a site's vault whose attempt was committed."""
        valid = [key for key in self._vaults[site] if self._committed.get(key[0]) == key[1]]
        return (max(valid)[0], self._vaults[site][max(valid)]) if valid else (0, State())

    def _participant(self, site: ClientId) -> Participant:
        if self.habits.warm and site in self._living:
            return self._living[site]
        # As a process just started would: a new object, the first model, and over it what was kept.
        fresh = self._build().to(self.habits.dtype)
        self._living[site] = restore(fresh, self.history.init, self._turn(self._newest(site)[1]))
        return self._living[site]

    # -- parcels

    def _turn(self, state: State) -> State:
        return reverse(state) if self.habits.reverse else state

    def _hand_on(self, state: State, manifest: Manifest) -> State:
        content, groups = self._write(state, manifest)
        return self._turn(codec.decode(bytearray(content), manifest, groups))

    def _write(self, state: State, manifest: Manifest) -> tuple[bytes, tuple[str, ...]]:
        out = io.BytesIO()
        groups = codec.encode(state, manifest, out)
        return out.getvalue(), groups

    def _download(self, site: ClientId, task: Task) -> State:
        half, state = self._half, self._state
        down = half.send(state, self.name(site), task) if task.since else half.welcome(state)
        if task.since and not self.method.per_client:
            self._expect_broadcast(down, task)
        return self._hand_on(down, self._spec.manifest(task.kind, task.phase, "down"))

    def _expect_broadcast(self, down: State, task: Task) -> None:
        other = self._half.send(self._state, "somebody-else", task)
        assert down.keys() == other.keys(), "without PER_CLIENT every site is sent the same"
        assert all(torch.equal(down[name], other[name]) for name in down)

    # -- a round

    def _task(self, kind: Kind, site: ClientId, number: int, *, attempt: int = 1, drop: bool = False) -> Task:
        since, late = self._since(site), site == LATECOMER
        return Task(kind, number, ROUNDS, attempt, self.phase(number), since, drop, late)

    def _play(self, play: Play) -> None:
        if self.habits.watched:
            self.history.measured[play.number] = {site: self._measure(site, play.number) for site in SITES}
            self._evaluate(play)
        trained = {site: self._train(site, play) for site in play.cohort}
        self.history.trained.append((play, trained))
        self._count(play, trained)
        self._gather(play, trained)

    def _train(self, site: ClientId, play: Play) -> Trained:
        task = self._task(Kind.TRAIN, site, play.number, attempt=play.attempt, drop=site in play.drops)
        participant, data = self._participant(site), self._data[site]
        before = State.of(participant)
        outcome = tasks.perform(participant, data, self._download(site, task), task)
        # A participant may live on here: what it hands out is copied where a site would write it.
        up, kept = _copied(outcome.up), outcome.kept.apply(torch.clone)
        self._vaults[site][task.round, task.attempt] = kept
        parcel = self._seal(site, task, up) if up else None
        return Trained(
            site,
            task,
            before,
            State.of(participant),
            kept,
            frozenset(participant.stays(task.phase)),
            _scores(copy.deepcopy(participant), data) if self.habits.watched else None,
            up,
            parcel,
            data.train.x,
            {name: (value,) for name, value in outcome.metrics.items()}
            | {name: tuple(values) for name, values in outcome.scores.items()},
        )

    def _seal(self, site: ClientId, task: Task, up: Up) -> Parcel:
        manifest = self._spec.manifest(Kind.TRAIN, task.phase, "up")
        content, groups = self._write(flatten(up), manifest)
        self._changes[self.name(site)] = self._check(site, task, content, groups)
        parcel = Parcel(
            f"{task.round:06d}-{task.attempt}-{self.name(site)}",
            content,
            groups,
            manifest,
            self.habits.reverse,
        )
        self._parcels.admit(parcel)
        return parcel

    def _check(self, site: ClientId, task: Task, content: bytes, groups: tuple[str, ...]) -> float:
        """As a coordinator: what an honest site sends is what its method says, and within the usual bounds."""
        spec, manifest = self._spec, self._spec.manifest(Kind.TRAIN, task.phase, "up")
        terms = Terms(
            list_quantities(self._living[site], spec, task.phase),
            declared=len(self._data[site].train),
            largest_weight=spec.largest_weight,
            largest_norm=spec.largest_norm,
            largest_change=spec.largest_change,
            sent=self.method.compared(self._half, self._state, self.name(site)),
        )
        return check_update(Held(content), manifest, groups, terms)

    def _gather(self, play: Play, trained: Mapping[ClientId, Trained]) -> None:
        draw = Draw(
            tuple(sorted(self.name(site) for site in play.cohort)), frozenset(map(self.name, play.drops))
        )
        round_ = Round(draw.cohort, quorum=draw.quorum(1.0))
        # A spool in memory: the tally only ever opens an update by its id.
        tally = PlainTally(cast(Spool, self._parcels))
        for site in turned(play.cohort, self.habits.arrival):
            for order in round_.handle(self._event(play, trained[site])):
                match order:
                    case Fold(client, update):
                        tally.add(client, update)
                    case Close(counted):
                        changes = {name: self._changes[name] for name in counted}
                        assert () == self._outlying.find(changes), "honest sites are not left out"
                        self._outlying.remember(changes)
                        self._close(play, counted, tally)
                    case Abandon():
                        self._abandon(play)

    def _event(self, play: Play, trained: Trained) -> Event:
        name = self.name(trained.site)
        if trained.parcel is None:
            return Lost(name, "drop")
        return Lost(name, "lease") if trained.site in play.lost else Arrived(name, trained.parcel.id)

    def _close(self, play: Play, counted: tuple[ClientId, ...], tally: PlainTally) -> None:
        if counted:
            task = Task(Kind.TRAIN, play.number, ROUNDS, play.attempt, self.phase(play.number))
            closed = self.method.close(self._half, self._state, arrivals=tally.arrivals(), task=task)
            self._state, self.history.told[play.number] = self._turn(closed.state), closed.numbers
        if not self.habits.warm:
            # A coordinator that was started again: nothing may live in the half itself.
            self._half = self.method.build_server(self._spec)
        self._committed[play.number] = play.attempt
        self.history.states[play.number] = self._state
        self.history.vaults[play.number] = {site: self._newest(site)[1] for site in SITES}
        self.history.events["counted"] += len(counted)
        self.history.events["empty"] += not counted

    def _abandon(self, play: Play) -> None:
        self.history.events["abandoned"] += 1
        for site in play.cohort:
            self._living.pop(site)

    def _count(self, play: Play, trained: Mapping[ClientId, Trained]) -> None:
        events = self.history.events
        events["trained"] += len(trained)
        events["dropped"] += sum(t.up is None for t in trained.values())
        events["welcomed"] += sum(t.task.since == 0 for t in trained.values())
        events["late"] += sum(t.task.since == 0 and play.number > 1 for t in trained.values())
        events["returned"] += sum(0 < t.task.since < play.number - 3 for t in trained.values())

    def welcome_after_the_end(self, data: LocalData) -> Newcomer:
        """A site that was in no round fetches what the coordinator serves at the end, and fits its own part."""
        task = Task(Kind.FINISH, ROUNDS, ROUNDS, phase=self.phase(ROUNDS), late=True)
        with default_dtype(self.habits.dtype):
            down = self._hand_on(
                self._half.welcome(self._state), self._spec.manifest(Kind.FINISH, task.phase, "down")
            )
            received, fitted = (
                restore(self._build().to(self.habits.dtype), self.history.init, State()) for _ in range(2)
            )
            tasks.welcome(received, data, down, task)
            received.personalise(data, task)
            outcome = tasks.adapt(fitted, data, down, task)
        assert (None, 0) == (outcome.up, len(outcome.kept)), (
            "a newcomer hands in nothing, and keeps its model alone"
        )
        assert outcome.serving is not None
        return Newcomer(received.eval(), fitted.eval(), frozenset(fitted.travels(task.phase)), down)

    # -- measuring and the end

    def _measure(self, site: ClientId, number: int) -> Measured:
        """What an evaluation measures, seen from inside; on an object of its own, so nothing is disturbed."""
        task = self._task(Kind.EVALUATE, site, number)
        participant = self._build().to(self.habits.dtype)
        restore(participant, self.history.init, self._turn(self._newest(site)[1]))
        tasks.prepare(participant, self._data[site], self._download(site, task), task)
        scores = _scores(participant, self._data[site])
        return Measured(State.of(participant), scores)

    def _evaluate(self, play: Play) -> None:
        for site in SITES:
            participant = self._participant(site)
            before = State.of(participant)
            task = self._task(Kind.EVALUATE, site, play.number, attempt=play.attempt)
            outcome = tasks.perform(participant, self._data[site], self._download(site, task), task)
            assert (0, None, None) == (len(outcome.kept), outcome.up, outcome.serving), (
                "EVALUATE leaves nothing"
            )
            assert alike(before, State.of(participant)), "EVALUATE works on a copy"
            self.history.events["evaluated"] += 1

    def _finish(self) -> None:
        if self.habits.watched:
            self.history.measured[ROUNDS + 1] = {site: self._measure(site, ROUNDS) for site in SITES}
        for site in SITES:
            task = self._task(Kind.FINISH, site, ROUNDS)
            participant = self._participant(site)
            outcome = tasks.perform(participant, self._data[site], self._download(site, task), task)
            assert outcome.serving is not None, "FINISH leaves a complete model"
            assert outcome.up is None, "FINISH sends nothing"
            self.history.serving[site], self.history.finished[site] = outcome.serving, outcome.kept
            self.history.events["finished"] += 1


@dataclass(frozen=True)
class Newcomer:
    """A site that came after the run, fitted to the shared state."""

    received: Participant
    """As it would predict with what came, and nothing fitted."""
    participant: Participant
    travelling: frozenset[str]
    down: State


def alike(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two States have the same names and the same bits."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def turned(sites: tuple[ClientId, ...], places: int) -> tuple[ClientId, ...]:
    """The same sites in another order."""
    start = places % len(sites)
    return tuple(reversed(sites[start:] + sites[:start])) if places else sites


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Numbers made without saying of what kind are of this kind, then as before."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _scores(participant: Participant, data: LocalData) -> Tensor:
    participant.eval()
    with torch.no_grad():
        scores: Tensor = participant(data.test.x)
    return scores
