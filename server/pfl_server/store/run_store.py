"""The folder of one run: journal, spool, checkpoints, files to fetch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from pfl_common import methods
from pfl_common.learning.freezing import align_copies
from pfl_common.learning.method import Participant, ServerHalf, Settings
from pfl_common.learning.weights_matching import apply_weights
from pfl_common.methods import Method
from pfl_common.randomness import generators
from pfl_common.spec.manifest import changing_names
from pfl_common.spec.messages import header_of_init
from pfl_common.spec.run import Kind, RunSpec, Task
from pfl_common.tensors import mapped
from pfl_common.tensors.change_norm import Sent
from pfl_common.tensors.state import State
from pfl_server.envelopes import Envelopes, Posted
from pfl_server.store import beginning_files
from pfl_server.store.checkpoints import Checkpoints
from pfl_server.store.journal import Journal
from pfl_server.store.kept_weights import read_kept
from pfl_server.store.round_base import Base
from pfl_server.store.shelf import Shelf
from pfl_server.store.spool import Spool
from pfl_server.store.update_terms import UpdateTerms, list_by_phase


@dataclass(frozen=True)
class Books:
    """A run with everything it keeps on disk."""

    spec: RunSpec
    method: Method
    half: ServerHalf
    journal: Journal
    spool: Spool
    checkpoints: Checkpoints
    shelf: Shelf
    init: Posted
    first: State
    before: Mapping[int, int] = field(default_factory=dict)
    """Committed rounds, with their attempts, of the run that this one begins from."""

    @property
    def envelopes(self) -> Envelopes:
        """How parcels are closed and opened."""
        return self.shelf.envelopes

    def task(self, kind: Kind, number: int, attempt: int) -> Task:
        """A task of this run, in the phase that its method is in then."""
        rounds = self.spec.rounds
        return Task(kind, number, rounds, attempt, self.method.phase(self._config, number, rounds))

    @cached_property
    def _config(self) -> Settings:
        """The method's own settings."""
        return self.method.settle(self.spec.settings)

    def settle(self, base: Base, told: Callable[[str], None] = lambda digest: None) -> Base:
        """Make what follows a round last; what is large is then looked at in its file and not held in memory."""
        self.checkpoints.save(base.after, base.state, told, base.sent)
        large = sum(tensor.nbytes for tensor in base.state.values()) > mapped.LARGE
        return self.read(base.after) if large else base

    def read(self, number: int) -> Base:
        """What follows a round that has a checkpoint."""
        sent = self.checkpoints.read_sent(number) if self.spec.downlink == "delta" else State()
        return Base(number, self.checkpoints.read(number), sent)

    @property
    def beginning(self) -> Base:
        """What round 1 begins from: sites hold its numbers with their first model, but not those of another run."""
        phase = self.task(Kind.TRAIN, 1, 1).phase
        names = () if self.spec.begins_from else changing_names(self.spec.delta(phase))
        return Base(0, self.first, self.first.only(names))

    def compare_with(self, state: State | None) -> None:
        """From now on updates are those of sites that were sent this state; None: there are none, and it is let go."""
        method, half = self.method, self.half
        if state is None:
            self.spool.terms.compared = lambda site: {}
        elif method.per_client:
            self.spool.terms.compared = lambda site: method.compared(half, state, site)
        else:
            # All sites were sent the same: it is laid out for the first of them.
            sent = Sent(method.compared(half, state, ""))
            self.spool.terms.compared = lambda site: sent

    def digest_after(self, number: int) -> str:
        """The hash of the shared state after a round; the first one follows from the specification."""
        digests = {checkpoint.round: checkpoint.digest for checkpoint in self.checkpoints.generations()}
        return digests.get(number, self.spec.hash)


def build_template(spec: RunSpec, weights: Mapping[str, Tensor] | None = None) -> Participant:
    """The site's half as every site starts: each layer's values follow from the run's seed and its name, or were taken
    from weights.
    """
    template = methods.build_participant(spec)
    generators.initialise(template, spec.seed)
    apply_weights(template, weights or {})
    align_copies(template)
    return template


def open_books(folder: Path, spec: RunSpec, journal: Journal, envelopes: Envelopes) -> Books:
    """Open a run's folder, new or old: what is not there yet follows from the specification."""
    method, half = methods.load(spec.method), methods.load(spec.method).build_server(spec)
    with torch.no_grad():
        template = build_template(spec, read_kept(folder, spec))
        if spec.begins_from is not None:
            beginning_files.load_first_model(folder, template)
    terms = UpdateTerms(spec, list_by_phase(template, spec), declared=journal.declared)
    spool = Spool(folder / "spool", spec, envelopes, terms)
    shelf = Shelf(folder / "shelf", envelopes, spool.blanks)
    init = shelf.put(State.view(template), header_of_init(spec), spec.init_manifest)
    lasting = journal.durability == "power"
    checkpoints = Checkpoints(folder / "checkpoints", spool, lasting=lasting, by=spec.digests)
    with mapped.inside(checkpoints.folder):
        begun = spec.begins_from is not None
        first = (
            beginning_files.load_first_state(folder, spool)
            if begun
            else mapped.put_away(half.start(template, spec.seed))
        )
    return Books(
        spec=spec,
        method=method,
        half=half,
        journal=journal,
        spool=spool,
        checkpoints=checkpoints,
        shelf=shelf,
        init=init,
        first=first,
        before=beginning_files.load_committed(folder),
    )
