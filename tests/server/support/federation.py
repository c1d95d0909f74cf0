"""Runs, books and updates small enough for a test, and a fleet that answers by a script."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pfl_common import methods
from pfl_common.evaluation import tell, vector
from pfl_common.models import Backbone
from pfl_common.randomness import generators
from pfl_common.spec.manifest import Entry
from pfl_common.spec.messages import Blob, Offer, Over, Receipt, header_up
from pfl_common.spec.participation import Participation
from pfl_common.spec.run import ClientId, Description, Header, Kind, Model, RunSpec, Task
from pfl_common.tensors import codec
from pfl_common.tensors.state import State
from pfl_deploy.simulation.loopback import OpenEnvelopes
from pfl_server.run.rehearsal import rehearse
from pfl_server.settings import Durability
from pfl_server.sites.assignment import Prepare, SiteLost
from pfl_server.store.journal import Journal
from pfl_server.store.run_store import Books, build_template, open_books
from pfl_server.store.spool import Spool

SITES = ("a", "b", "c")
SHAPE = (2,)
CLASSES = ("cat", "dog")
DESCRIPTION = Description(SHAPE, CLASSES, 100, "array")


def build_tiny(shape: tuple[int, ...], classes: int) -> Backbone:
    """Two numbers in, three features."""
    return Backbone(
        encoder=nn.Sequential(nn.Flatten(), nn.Linear(2, 3)), head=nn.Linear(3, classes), features=3
    )


def build_spec(method: str = "fedavg", *, sites: tuple[str, ...] = SITES, **fields: Any) -> RunSpec:
    """A run of a few sites; its manifests are what the method really sends."""
    chosen = {
        "rounds": 2,
        "seed": 5,
        "participation": Participation(),
        "settings": {},
        "quorum": 0.5,
    } | fields
    model = Model("tiny", SHAPE, CLASSES)
    spec = RunSpec(id="run-1", method=method, model=model, roster=tuple(sorted(sites)), **chosen)
    return replace(spec, manifests=rehearse(methods.load(method), spec, build_template(spec)))


def pin_spec(up: tuple[Entry, ...], **fields: Any) -> RunSpec:
    """A run whose uploads are just these tensors."""
    model = Model("tiny", SHAPE, CLASSES)
    return RunSpec(
        "run-1",
        "fedavg",
        {},
        model,
        rounds=2,
        seed=5,
        roster=SITES,
        manifests={"train/train/up": up},
        **fields,
    )


def open_run(folder: Path, spec: RunSpec, *, durability: Durability = "process") -> Books:
    """The books of a run, begun now or in an earlier life."""
    # Tests kill the process, not the power: what the operating system was given is as good as written.
    journal = Journal(folder / "journal.sqlite", durability=durability)
    if journal.spec() is None:
        for site in spec.roster:
            journal.register(site, DESCRIPTION.to_json(), late=False)
        journal.begin(spec.id, spec.to_json())
    return open_books(folder, spec, journal, OpenEnvelopes())


def build_header(spec: RunSpec, site: ClientId, task: Task, groups: tuple[str, ...] = ()) -> Header:
    """What an honest site says of its update."""
    return replace(header_up(spec, task, site, state=spec.hash), groups=groups)


def build_offer(header: Header, file: Path) -> Offer:
    """What a site says when it has this update ready."""
    raw = file.read_bytes()
    key = Task(header.kind, header.round, header.round, header.attempt).key
    return Offer(key, header, Blob(hashlib.sha256(raw).hexdigest(), len(raw)))


def make_update(spec: RunSpec, *words: int | str, around: State | None = None) -> State:
    """Numbers that follow from the words, near those of a download if there is one."""
    values = {}
    for entry in spec.manifests["train/train/up"]:
        chance = generators.generator(entry.name, *words)
        if entry.name == "sum.known":
            values[entry.name] = torch.randint(0, 2, entry.shape, generator=chance).float()
        elif entry.name.startswith("weight."):
            # FedProto counts a site once for each class it has.
            most = 2 if spec.method == "fedproto" else 99
            values[entry.name] = torch.randint(most // 99, most, entry.shape, generator=chance)
        else:
            noise = torch.randn(entry.shape, generator=chance)
            base = (around or State()).get(entry.name.removeprefix("sum."))
            values[entry.name] = noise if base is None else base + noise
    return State(values)


def write_parcel(file: Path, spec: RunSpec, state: State) -> tuple[str, ...]:
    """An update as bytes in a file; gives its groups."""
    with file.open("wb") as out:
        return codec.encode(state, spec.manifests["train/train/up"], out)


Measure = Callable[[str, int], dict[str, list[float]]]


def measure(site: str, number: int) -> dict[str, list[float]]:
    """A site's report, the same for the same round: an evaluation, and what training said."""
    return {"pre/test/combined": vector((ord(site[0]) + number) % 11, 10, 0.5)} | tell(
        {"loss": ord(site[0]) + number / 8}
    )


class ScriptedFleet:
    """The sites as training sees them; a script maps (site, round, attempt) to a reason or "silent"."""

    def __init__(self, books: Books, script: dict[tuple[str, int, int], str] | None = None) -> None:
        self.books, self.script = books, script or {}
        self.sites = set(books.journal.sites())
        self.here = set(self.sites)
        self.asked: list[tuple[str, Task]] = []
        self.over: Over | None = None
        self.released: Over | None = None
        self.on_ask: Callable[[str, Task], None] = lambda site, task: None
        self.order: list[str] = []
        self.measure: Measure = measure
        self._silent: dict[str, asyncio.Future[str]] = {}

    def roster(self) -> tuple[str, ...]:
        return tuple(sorted(self.sites))

    def present(self) -> tuple[str, ...]:
        return tuple(sorted(self.here))

    def present_among(self, sites: Iterable[str]) -> frozenset[str]:
        return frozenset(self.here.intersection(sites))

    def expired(self, client: str) -> bool:
        return client in self._silent

    def give_up(self, client: str, reason: str) -> None:
        if client in self._silent and not self._silent[client].done():
            self._silent.pop(client).set_exception(SiteLost(reason))

    def is_opening(self, client: str) -> bool:
        return False

    def trouble(self, client: str) -> str:
        return ""

    def release(self, over: Over) -> None:
        self.released = over

    def end(self, over: Over) -> None:
        self.over = over

    async def ask(self, client: str, task: Task, prepare: Prepare) -> str:
        self.asked.append((client, task))
        self.on_ask(client, task)
        held = self.books.journal.receipts(task.round, task.attempt).get(client)
        if held and task.kind is Kind.TRAIN:
            return held[1]
        fate = self.script.get((client, task.round, task.attempt), "")
        if fate == "silent" or client not in self.here:
            self._silent[client] = asyncio.get_running_loop().create_future()
            return await self._silent[client]
        if fate:
            raise SiteLost(fate)
        asked = replace(task, since=min(task.round - 1, len(self.books.journal.committed())))
        assignment = await prepare(asked)
        self.books.journal.report(task.key, client, self.measure(client, task.round))
        if task.drop:
            raise SiteLost("dropped")
        return self._train(client, assignment.blob.digest, task) if task.kind is Kind.TRAIN else ""

    def _train(self, client: str, digest: str, task: Task) -> str:
        spec, books = self.books.spec, self.books
        raw = bytearray(books.shelf.path(digest).read_bytes())
        down = codec.decode(raw, spec.manifest(task.kind, task.phase, "down"), ())
        file = books.shelf.folder.parent / f"up-{client}"
        groups = write_parcel(file, spec, make_update(spec, client, task.round, around=down))
        header = build_header(spec, client, task, groups)
        name = books.spool.admit(client, file, build_offer(header, file))
        books.journal.receive(
            Receipt(spec.id, task.key, client, digest_of(books.spool, name)), task.round, task.attempt, name
        )
        return name


def digest_of(spool: Spool, name: str) -> str:
    """The SHA-256 of a spooled update."""
    return hashlib.sha256(spool.open(name).path.read_bytes()).hexdigest()
