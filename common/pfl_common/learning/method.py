"""The shape of a method: one half for the site, one for the coordinator, and the values that pass between them.

A method is one module with three names: `Config`, `Client`, `Server` (and, when it needs them, `PER_CLIENT`,
`phase`, `SHOWS`). The two halves share no object: all that one knows of the other has crossed as a `State`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass as checked
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pfl_common.app.config import STRICT as STRICT  # methods take it from here
from pfl_common.app.config import Why
from pfl_common.learning import newcomer
from pfl_common.learning.arithmetic import Arithmetic
from pfl_common.learning.augmentation import Augmentation
from pfl_common.learning.freezing import find_frozen, freeze
from pfl_common.learning.partition import BnPolicy, travelling
from pfl_common.learning.pixels import Pixels
from pfl_common.models import Backbone
from pfl_common.randomness import generators
from pfl_common.spec.run import ClientId, Json, RunSpec, Task
from pfl_common.spec.run_bounds import MOST_BATCH, MOST_EPOCHS
from pfl_common.tensors.state import Kept, State, load_into
from pfl_common.tensors.summing import Total
from pfl_common.tensors.update import SUM, Quantity, Up, Weighted

Metrics: TypeAlias = dict[str, float]
"""Numbers worth a curve. A site's own leave it, if its owner lets them, to be summed over sites: nothing of a single
sample may be among them. What names they may have stands in `evaluation`.
"""

MOST_ON_DEVICE = 1 << 30
"""Bytes of mapped samples that a graphics card holds for a whole run; of more it is given batch by batch."""

Batch: TypeAlias = tuple[Tensor, Tensor]
Change: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Changes pictures of values 0..1, given with their places among the training samples."""
Tail: TypeAlias = Literal["fold", "drop", "keep"]
"""What becomes of an epoch's last batch when it is not full."""

Momentum: TypeAlias = Annotated[float, Field(ge=0, lt=1), Why("from 1 on old steps never fade")]


@checked(frozen=True, config=STRICT)
class Settings:
    """The settings of every method; a method's Config adds its own symbols and defaults."""

    epochs: Annotated[int, Field(ge=1, le=MOST_EPOCHS), Why("a round without a pass trains nothing")] = 1
    """E: passes over the site's training data in one round."""
    batch: Annotated[int, Field(ge=1, le=MOST_BATCH), Why("a step holds all its samples in memory")] = 32
    """B: samples in one step."""
    lr: Annotated[float, Field(gt=0, le=1_000_000), Why("0 learns nothing, 1 is a large step")] = 0.1
    """eta: step size of SGD. One value for all methods, with which each learns small pictures in 30 rounds; what a
    paper used is in its method's presets.
    """
    momentum: Momentum = 0.5
    """m: momentum of SGD; its memory starts empty in every round, and in every stage of one."""
    weight_decay: Annotated[float, Field(ge=0, le=1), Why("usual are 0 to 0.01")] = 0.0
    """L2 penalty of SGD."""
    tail: Tail = "fold"
    """A last batch that is not full: under half of B it joins the one before it if the network has batch norm (fold),
    it is left out (drop), or it is a batch of its own (keep). A site with less than one batch uses all it has.
    """
    drop_last: bool = False
    """The same as `tail = drop`, under the name that the FedCP and GPFL settings have for it; wins over `tail`."""
    bn_policy: BnPolicy = "local_stats"
    """What batch-norm layers share: share_all, local_stats (statistics stay) or local_bn (all stays)."""
    aggregation: Literal["samples", "uniform"] = "samples"
    """Whether a site counts by its number of training samples, or every site alike."""
    eval_point: Literal["pre", "post", "both"] = "pre"
    """Measure with the freshly received model (pre), after local training (post), or at both points."""
    diagnose: bool = True
    """After training each site measures what the method has to tell of itself beside accuracy; it stays at the site."""


@dataclass(frozen=True)
class Arrivals:
    """A round's counted updates, without their order, their times, or the sites that dropped out."""

    total: Total
    shown: Mapping[ClientId, Kept]


@dataclass(frozen=True)
class Samples:
    """One part of a site's data. Images are kept as bytes and become numbers in [0, 1] when taken, scaled as the run
    agreed; word numbers stay integers.
    """

    x: Tensor
    y: Tensor
    """Lies where batches are wanted."""
    pixels: Pixels | None = None
    """How pictures are scaled when they are taken."""
    rows: Tensor | None = None
    """The samples' places in `x` where `x` is a mapped file with more than these samples, which is never copied whole.
    """

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Tensor, change: Change | None = None) -> Batch:
        """The samples at these places, ready for a model; `change` is made to pictures before they are scaled."""
        place = index.to(self.x.device)
        x = self.x[place if self.rows is None else self.rows[place]].to(self.y.device)
        if x.dtype == torch.uint8:
            x = x.float().div_(255)
        if change is not None:
            x = change(x, index)
        return (x if self.pixels is None else self.pixels.scale(x)), self.y[index.to(self.y.device)]

    def only(self, index: Tensor) -> Samples:
        """The samples at these places, or those marked by True."""
        y = self.y[index.to(self.y.device)]
        if self.rows is None:
            return replace(self, x=self.x[index.to(self.x.device)], y=y)
        return replace(self, y=y, rows=self.rows[index.to(self.rows.device)])

    def to(self, device: torch.device | str) -> Samples:
        """The same samples, lying where the model trains; of a large mapped file each batch goes there when taken."""
        y = self.y.to(device)
        if self.rows is None:
            return replace(self, x=self.x.to(device), y=y)
        size = len(self) * self.x[:1].nbytes
        if torch.device(device).type == "cpu" or size > MOST_ON_DEVICE:
            return replace(self, y=y)
        return replace(self, x=self.x[self.rows].to(device), y=y, rows=None)

    def batches(self, size: int) -> Iterator[Batch]:
        """All samples once, in their own order, none left out: for evaluation and statistics."""
        for start in range(0, len(self), size):
            yield self.take(torch.arange(start, min(start + size, len(self))))


def probe(samples: Samples, most: int = 2000) -> Samples:
    """At most `most` of some samples, the same ones each time: enough for a diagnostic."""
    if len(samples) <= most:
        return samples
    order = torch.randperm(len(samples), generator=generators.generator("probe", len(samples)))
    return samples.only(order[:most].sort().values)


def _nothing() -> Samples:
    return Samples(torch.empty(0), torch.empty(0, dtype=torch.int64))


@dataclass(frozen=True)
class LocalData:
    """A site's data and its random numbers, both of which never leave it."""

    train: Samples
    validation: Samples
    test: Samples
    classes: int
    site: ClientId
    seed: int
    shifted: Samples = field(default_factory=_nothing)
    """A second test of samples that came about otherwise than `train` and `test`: measured, never learnt from."""
    augmentation: Augmentation | None = None
    """How training pictures are changed by chance, anew in each epoch; nothing else that is measured sees it."""
    about: Mapping[str, Json] = field(default_factory=dict)
    """What the site has said of its data and new samples have to be prepared by; it stays in the site's own model."""

    @property
    def counts(self) -> Tensor:
        """Training samples per class, over the whole training set; 0 for a class the site does not have."""
        return torch.bincount(self.train.y.cpu(), minlength=self.classes)

    def generator(self, task: Task, *purpose: int | str) -> torch.Generator:
        """Chance for one purpose in this round at this site; the same words give the same draws."""
        return generators.generator(self.seed, self.site, task.round, *purpose)

    def batches(self, task: Task, epoch: int, *, size: int, tail: Tail = "keep") -> Iterator[Batch]:
        """One epoch of training batches in an order of its own for (site, round, epoch)."""
        order = torch.randperm(len(self.train), generator=self.generator(task, "shuffle", epoch))
        change = None
        if self.augmentation is not None:
            change = self.augmentation.draw(len(order), self.generator(task, "augment", epoch))
        edges = cut(len(order), size, tail)
        for start, end in pairwise(edges):
            yield self.train.take(order[start:end], change)


def cut(samples: int, size: int, tail: Tail) -> list[int]:
    """The places at which an epoch is cut into batches: its first sample, each batch's end."""
    full, rest = divmod(samples, size)
    edges = [size * number for number in range(full + 1)]
    if not rest or (full and tail == "drop"):
        return edges
    if full and tail == "fold" and 2 * rest < size:
        edges.pop()
    return [*edges, samples]


def weigh_usually(settings: Settings) -> Quantity:
    """What weights are that follow from `aggregation`."""
    return "count" if settings.aggregation == "samples" else "one"


class Participant(nn.Module):
    """The site's half. Everything it must know in the next round is one of its parameters or buffers."""

    heads: tuple[str, ...] = ("head",)
    """The heads it has, by canonical name; the backbone makes each of them."""
    whole_batch: str = "the method does not say that its loss is a mean over samples"
    """Why a batch cannot be gone through in parts whose gradients are added; empty for a loss that is a mean over
    samples (beside terms of the parameters alone): there the sum is the same gradient.
    """
    beside: ClassVar[Mapping[str, Quantity]] = {}
    """What tensors of its update are that are no numbers of a model, by the names they are sent under."""
    usual_weights: ClassVar[bool] = False
    """Said by a method that has a `report` of its own and weighs as any other."""

    copies_shared: tuple[str, ...] = ()
    """Modules that stay and that the method sets to what it shares, so that both may be equal: any other tensor that
    stays and equals one of an update is a fault, and the update is not sent.
    """

    def __init__(self, config: Settings, backbone: Backbone, classes: int) -> None:
        super().__init__()
        self.settings, self.classes = config, classes
        self.progress: Callable[[int], None] = lambda samples: None
        self.arithmetic = Arithmetic()
        self.features = backbone.features
        self.encoder = backbone.encoder
        for name in self.heads:
            self.add_module(name, backbone.another_head())
        # Before a method builds anything on them: a copy of what is frozen is frozen too.
        freeze(self, backbone.frozen)

    def travels(self, phase: str) -> Iterable[str]:
        """Names this method shares in a phase: summed on the way up, overwritten by the next download."""
        return travelling(self, self.settings.bn_policy)

    def stays(self, phase: str) -> Iterable[str]:
        """Names the site's vault keeps: by default whatever neither travels nor is frozen."""
        return self.state_dict(keep_vars=True).keys() - set(self.travels(phase)) - find_frozen(self).keys()

    def tells(self, phase: str) -> Iterable[str]:
        """Names of those that stay and whose values an update tells all the same, by the method's design: none unless
        it shows single models. The update of a method that tells any other is not sent.
        """
        return ()

    def receive(self, down: State, task: Task) -> None:
        """Take over what came from the coordinator; at first contact `task.is_first` is true."""
        load_into(self, down)

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """The paper: train on the site's own data; returns what is worth a curve."""
        raise TypeError(f"{type(self).__module__} has a Client without learn()")

    def report(self, data: LocalData, task: Task) -> Up:
        """The site's answer: by default the tensors that travel, weighted. It is sent before anything else is done
        here.
        """
        own, weight = State.view(self, self.travels(task.phase)), self.weight(data)
        return Up(summed={name: Weighted(value, weight) for name, value in own.items()})

    def weight(self, data: LocalData) -> Tensor:
        """This site's weight: its number of training samples, or 1."""
        return torch.tensor(len(data.train) if self.settings.aggregation == "samples" else 1)

    def weighs(self, phase: str) -> Quantity:
        """What the weights of its update are: by default what `aggregation` says. A method that weighs in a way of its
        own says so here; of one that does not, any weight up to the run's largest is taken.
        """
        kind = type(self)
        usual = kind.report is Participant.report and kind.weight is Participant.weight
        return weigh_usually(self.settings) if usual or kind.usual_weights else "weight"

    def diagnose(self, data: LocalData, task: Task) -> Metrics:
        """Further numbers worth a curve, measured right after training: in evaluation mode, without gradients, and
        without leaving a trace. None by default; take `probe(data.test)` rather than all samples.
        """
        return {}

    def personalise(self, data: LocalData, task: Task) -> None:
        """Fit the received model to the site before it predicts; by default there is nothing to do."""

    @property
    def owns_statistics(self) -> bool:
        """Whether batch-norm statistics stay at the site: a newcomer must first fill them from its data."""
        return self.settings.bn_policy != "share_all"

    def adapt(self, data: LocalData, task: Task) -> Metrics:
        """Fit a site that comes after the run to the state it has just received, which stays as it came: by default all
        parameters that stay learn on the cross entropy of the prediction. Gives what is worth telling.
        """
        return newcomer.fit(self, lambda x, y: cross_entropy(self(x), y), data=data, task=task)

    def finish(self, data: LocalData, task: Task) -> None:
        """After the last round, at the site alone; by default there is nothing to do."""

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the personalised prediction, one per class."""
        scores: Tensor = self.get_submodule(self.heads[0])(self.encoder(x))
        return scores

    def views(self, x: Tensor) -> dict[str, Tensor]:
        """Each head's own scores, for methods with more than one; "combined" is what `forward` says."""
        return {"combined": self(x)}


class Closed(NamedTuple):
    """What the coordinator's half makes of a round."""

    state: State
    """The state after it."""
    numbers: Metrics
    """What it found out on the way that is worth a curve, by name."""


class ServerHalf(Protocol):
    """The coordinator's half, as pure functions: state in, state out; the state is the checkpoint."""

    def __init__(self, config: Settings, spec: RunSpec) -> None: ...

    def start(self, template: Participant, seed: int) -> State:
        """The state before the first round."""

    def begin(self, first: State, last: State) -> State:
        """The state before the first round of a run that begins from another one's last state; `first` is `start`'s."""

    def welcome(self, state: State) -> State:
        """The download of a site that never took part (`task.is_first`)."""

    def send(self, state: State, client: ClientId, task: Task) -> State:
        """This site's download for this task; the same for all unless the module says PER_CLIENT."""

    def compared(self, state: State, client: ClientId) -> State:
        """What this site's update is compared with to see how far it went, by the names of its parcel."""

    def close(self, state: State, arrivals: Arrivals, task: Task) -> Closed:
        """The state after a round, from the state before it and what was counted; and numbers to tell of the round."""


class Averaging:
    """The coordinator's half of most methods: it keeps the mean of the tensors that travel."""

    def __init__(self, config: Settings, spec: RunSpec) -> None:
        self.config, self.spec = config, spec

    def start(self, template: Participant, seed: int) -> State:
        """The first values of what travels."""
        return State.of(template, template.travels(self.first_phase))

    def begin(self, first: State, last: State) -> State:
        """The other run's mean, of everything this one shares."""
        return State({name: last.get(name, value) for name, value in first.items()})

    @property
    def first_phase(self) -> str:
        """The phase of round 1; a method with phases says which."""
        return "train"

    def welcome(self, state: State) -> State:
        """A new site gets what everybody gets."""
        return state

    def send(self, state: State, client: ClientId, task: Task) -> State:
        """Everybody gets the mean."""
        return state

    def compared(self, state: State, client: ClientId) -> State:
        """The mean that the site was sent."""
        return state.within(SUM)

    def close(self, state: State, arrivals: Arrivals, task: Task) -> Closed:
        """The weighted mean over the counted sites; what nobody sent stays as it was."""
        return Closed(arrivals.total.mean(otherwise=state), {})
