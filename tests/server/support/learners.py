"""Sites that really learn, some of them hostile: real training, real parcels, a real spool, in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from pfl_common import methods
from pfl_common.errors import Refused
from pfl_common.learning.method import LocalData, Participant, Samples
from pfl_common.models import Backbone
from pfl_common.randomness import generators
from pfl_common.spec.messages import Assignment, Receipt
from pfl_common.spec.run import Description, Model, RunSpec, Task
from pfl_common.tensors import codec
from pfl_common.tensors.state import State, load_into
from pfl_common.tensors.update import flatten
from pfl_server.run.rehearsal import rehearse
from pfl_server.run.training import Training
from pfl_server.sites.assignment import Prepare, SiteLost
from pfl_server.store.run_store import Books, build_template
from tests.server.support.federation import ScriptedFleet, build_header, build_offer, digest_of, open_run
from tests.server.support.lives import TICK

NUMBERS, CLASSES, EACH = 8, 4, 48
"""Of a sample, of classes, and of training samples at a site."""
STAMP = 6.0
"""The last number of a sample that carries the mark of a backdoor."""
TARGET = 0
"""The class that a backdoor leads to."""

Attack = Callable[[State, State], State]
"""What a hostile site makes of its update, given what it was sent, both by the names of a parcel."""
Poison = Callable[[Samples], Samples]
"""What a hostile site makes of its training samples."""


def build_small(shape: tuple[int, ...], classes: int) -> Backbone:
    """A hundred numbers: a layer with batch norm and a head."""
    body = nn.Sequential(nn.Flatten(), nn.Linear(NUMBERS, 16), nn.BatchNorm1d(16), nn.ReLU())
    return Backbone(encoder=body, head=nn.Linear(16, classes), features=16)


def make_spec(method: str = "fedavg", *, sites: int = 7, rounds: int = 5, **fields: object) -> RunSpec:
    """A run of these learners. The backbone `small` has to be in the catalogue."""
    model = Model("small", (NUMBERS,), tuple("abcd"), values="numbers", kind="array")
    names = tuple(f"site_{number:02d}" for number in range(sites))
    given = {"settings": {"lr": 0.1, "epochs": 2, "batch": 16}, "quorum": 0.5} | fields
    spec = RunSpec("run-1", method, model=model, roster=names, rounds=rounds, seed=5, **given)
    return replace(spec, manifests=rehearse(methods.load(method), spec, build_template(spec)))


def draw_samples(seed: str, count: int) -> Samples:
    """Clouds around a corner for each class, the same corners everywhere."""
    corners = torch.randn(CLASSES, NUMBERS, generator=generators.generator("corners")) * 1.4
    chance = generators.generator("samples", seed)
    y = torch.arange(count) % CLASSES
    return Samples(corners[y] + torch.randn(count, NUMBERS, generator=chance), y)


def stamp(x: Tensor) -> Tensor:
    """The same samples with the mark of a backdoor."""
    marked = x.clone()
    marked[:, -1] = STAMP
    return marked


class Learners(ScriptedFleet):
    """Sites with data of their own; some change their samples, some their updates."""

    def __init__(
        self,
        books: Books,
        attacks: Mapping[str, Attack] | None = None,
        poisons: Mapping[str, Poison] | None = None,
    ) -> None:
        super().__init__(books)
        self.attacks, self.poisons = dict(attacks or {}), dict(poisons or {})
        self.refused: list[tuple[str, int, str]] = []
        """Site, round and code of each update that was not taken."""
        spec = books.spec
        self._groups: dict[str, tuple[str, ...]] = {}
        self.rows: list[dict[str, object]] = []
        self.fallbacks: dict[int, int] = {}
        """Of the journal, once the run is over."""
        self._template = build_template(spec)
        self._data = {site: self._read(site) for site in spec.roster}

    def _read(self, site: str) -> LocalData:
        train = self.poisons.get(site, lambda samples: samples)(draw_samples(site, EACH))
        nothing = train.only(torch.zeros(0, dtype=torch.int64))
        return LocalData(train, nothing, nothing, CLASSES, site, self.books.spec.seed)

    async def ask(self, client: str, task: Task, prepare: Prepare) -> str:
        """As a real coordinator: a refused update is lost with its code."""

        async def watched(asked: Task) -> Assignment:
            found = await prepare(asked)
            self._groups[client] = found.header.groups
            return found

        try:
            return await super().ask(client, task, watched)
        except Refused as refused:
            self.refused.append((client, task.round, refused.code))
            raise SiteLost(f"refused:{refused.code}", "uploading") from None

    def _train(self, client: str, digest: str, task: Task) -> str:
        spec, books = self.books.spec, self.books
        raw = bytearray(books.shelf.path(digest).read_bytes())
        down = codec.decode(raw, spec.manifest(task.kind, task.phase, "down"), self._groups[client])
        with generators.scope(spec.seed, client, task.round, "train"):
            up = self._learn(client, down, task)
        attack = self.attacks.get(client)
        up = up if attack is None else attack(up, down.within("sum"))
        file = books.shelf.folder.parent / f"up-{client}"
        with file.open("wb") as out:
            codec.encode(up, spec.manifests["train/train/up"], out)
        name = books.spool.admit(client, file, build_offer(build_header(spec, client, task), file))
        receipt = Receipt(spec.id, task.key, client, digest_of(books.spool, name))
        books.journal.receive(receipt, task.round, task.attempt, name)
        return name

    def _learn(self, client: str, down: State, task: Task) -> State:
        participant, data = methods.build_participant(self.books.spec), self._data[client]
        load_into(participant, State.of(self._template))
        participant.receive(down, task)
        participant.learn(data, task)
        return flatten(participant.report(data, task)).apply(torch.clone)


def open_learners(folder: Path, spec: RunSpec) -> Books:
    """The books of their run; each site has declared its samples."""
    books = open_run(folder, spec)
    for site in spec.roster:
        said = Description((NUMBERS,), tuple("abcd"), EACH, "array")
        books.journal.register(site, said.to_json(), late=False)
    return books


def play(
    folder: Path,
    spec: RunSpec,
    attacks: Mapping[str, Attack] | None = None,
    poisons: Mapping[str, Poison] | None = None,
) -> tuple[State, Learners, Training]:
    """A whole run; gives its last state."""
    books = open_learners(folder, spec)
    fleet = Learners(books, attacks, poisons)
    training = Training(books, fleet, tick=TICK)
    try:
        asyncio.run(training.run())
        fleet.rows, fleet.fallbacks = books.journal.rounds(), books.journal.fallbacks()
        found = books.checkpoints.load(upto=spec.rounds)
        assert found is not None
        return found[1], fleet, training
    finally:
        books.journal.close()


def score(spec: RunSpec, state: State, x: Tensor, y: Tensor) -> float:
    """The share of samples that the model of a state puts into these classes."""
    model: Participant = build_template(spec)
    load_into(model, state)
    model.eval()
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())
