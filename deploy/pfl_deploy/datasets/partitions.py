"""Divides examples among sites with skewed labels, as pure functions from labels to indices.

`pathological`, `practical_dirichlet` and `iid` cut one pool: every example goes to one site. `two_classes`
and `fixed_dirichlet` draw for each site from the given training and test parts: sites may share examples. All
chance comes from a seed of the partition, which is not the run's seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pfl_common.errors import SettingError
from pfl_common.randomness.seeded_draws import derive
from pfl_deploy.datasets.labelled import Indices, Labels, Source

Parts: TypeAlias = list[Indices]
_LEAST_TEST_SHARE = 0.25  # a quarter of every site is for testing
_BATCH = 10  # the published batch size; the smallest site must fill one batch of test examples


@dataclass(frozen=True)
class Share:
    """One site's examples, as indices into the training part followed by the test part of the source."""

    train: Indices
    test: Indices
    validation: Indices | None = None


@dataclass(frozen=True)
class Draws:
    """The number of training and test examples that each site draws (FedCAC: 500 and 100)."""

    train: int = 500
    test: int = 100


def least_samples(total: int, clients: int) -> int:
    """L = floor(min(B / (1 - 0.75), n / 2N)): the smallest site that is accepted."""
    return math.floor(min(_BATCH / _LEAST_TEST_SHARE, total / (2 * clients)))


def iid(labels: Labels, *, clients: int, seed: int) -> Parts:
    """Every site a random part, sizes differing by one at most."""
    _check_clients(clients, len(labels))
    order = _rng(seed, "iid").permutation(len(labels))
    return [np.sort(part) for part in np.array_split(order, clients)]


def pathological(labels: Labels, *, clients: int, per_client: int, seed: int) -> Parts:
    """A few classes a site, unequal sizes, nothing shared (FedCP and GPFL).

    Each class in turn goes to the first ceil(N/C * classes per client) sites that may still take one. All but
    the last of them get a drawn size from [max(n_per/10, L/C), n_per), the last gets the rest; the class is
    cut in data set order.
    """
    _check_clients(clients, len(labels))
    classes = np.unique(labels)
    if not 1 <= per_client <= len(classes):
        raise SettingError(
            f"{per_client} classes per site", expected=f"1 to {len(classes)}, the classes there are"
        )
    rng = _rng(seed, "pathological")
    takers = math.ceil(clients * per_client / len(classes))
    smallest = least_samples(len(labels), clients) / len(classes)
    quota = [per_client] * clients
    held: list[list[Indices]] = [[] for _ in range(clients)]
    for label in classes:
        chosen = [client for client in range(clients) if quota[client] > 0][:takers]
        _check_takers(chosen, clients, per_client, len(classes))
        members = np.flatnonzero(labels == label)
        for client, piece in zip(chosen, _cut_unequally(members, len(chosen), smallest, rng), strict=True):
            held[client].append(piece)
            quota[client] -= 1
    return [_joined(pieces) for pieces in held]


def _cut_unequally(members: Indices, count: int, smallest: float, rng: np.random.Generator) -> Parts:
    even = len(members) / count
    # integers of [low, even); a class too small for that range gives every taker its even share
    low, high = math.ceil(max(even / 10, smallest)), math.ceil(even)
    sizes = rng.integers(low, high, count - 1) if low < high else np.full(count - 1, math.floor(even))
    return np.split(members, np.cumsum(sizes))


def _check_takers(chosen: Sequence[int], clients: int, per_client: int, classes: int) -> None:
    if not chosen:
        raise SettingError(
            f"{clients} sites of {per_client} classes leave some of {classes} classes without a site",
            expected=f"sites times classes per site a multiple of {classes}",
            advice="choose another number of sites or of classes per site",
        )


def practical_dirichlet(
    labels: Labels, *, clients: int, beta: float, seed: int, attempts: int = 5_000
) -> Parts:
    """Each class shared out by a Dirichlet draw, nothing shared (FedCP and GPFL).

    A site that already holds n/N examples gets no more; all is drawn again until the smallest site has L.
    """
    _check_clients(clients, len(labels))
    _check_positive("beta", beta)
    rng, least = _rng(seed, "practical"), least_samples(len(labels), clients)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    for _ in range(attempts):
        parts = _dirichlet_once(members, clients, beta, rng)
        if parts is not None and min(map(len, parts)) >= least:
            return parts
    raise SettingError(
        f"{attempts} draws gave none with {least} examples at every site (beta {beta}, {clients} sites)",
        advice="choose fewer sites, or a larger beta",
    )


def _dirichlet_once(
    members: Sequence[Indices], clients: int, beta: float, rng: np.random.Generator
) -> Parts | None:
    total = sum(map(len, members))
    sizes = np.zeros(clients, np.int64)
    held: list[list[Indices]] = [[] for _ in range(clients)]
    for indices in members:
        shuffled = rng.permutation(indices)
        shares = rng.dirichlet(np.full(clients, beta)) * (sizes < total / clients)
        if not shares.sum() > 0:  # a tiny beta can put all weight, as floats go, on sites that are full
            return None
        cuts = np.floor(np.cumsum(shares / shares.sum())[:-1] * len(shuffled)).astype(np.int64)
        for client, piece in enumerate(np.split(shuffled, cuts)):
            held[client].append(piece)
            sizes[client] += len(piece)
    return [_joined(pieces) for pieces in held]


def two_classes(
    labels: tuple[Labels, Labels], *, clients: int, seed: int, sizes: Draws = Draws()
) -> list[Share]:
    """Two drawn classes a site, half its examples from each (FedCAC).

    `labels` are those of the training and of the test part. Sites may share examples.
    """
    classes = np.unique(labels[0])
    if len(classes) < 2:
        raise SettingError(f"{len(classes)} classes in the source", expected="at least 2")

    def counts(client: int, size: int) -> Indices:
        mine = _rng(seed, "two classes", client).choice(len(classes), 2, replace=False)
        return np.bincount(np.repeat(mine, size // 2), minlength=len(classes))

    return _drawn_shares(labels, clients=clients, seed=seed, counts=_sized(counts, sizes))


def fixed_dirichlet(
    labels: tuple[Labels, Labels], *, clients: int, alpha: float, seed: int, sizes: Draws = Draws()
) -> list[Share]:
    """Sites of one size whose class shares are a Dirichlet draw (FedCAC).

    `labels` are those of the training and of the test part, where a site has the same shares. Sites may share
    examples.
    """
    _check_positive("alpha", alpha)
    classes = len(np.unique(labels[0]))

    def counts(client: int, size: int) -> Indices:
        return class_counts(_rng(seed, "fixed", client).dirichlet(np.full(classes, alpha)), size)

    return _drawn_shares(labels, clients=clients, seed=seed, counts=_sized(counts, sizes))


def class_counts(shares: npt.NDArray[np.float64], size: int) -> Indices:
    """Whole numbers adding up to `size`: shares rounded half up, never above what is missing."""
    counts = np.zeros(len(shares), np.int64)
    for label, share in enumerate(shares[:-1]):
        counts[label] = min(math.floor(size * share + 0.5), size - int(counts.sum()))
    counts[-1] = size - int(counts.sum())
    return counts


_Counts: TypeAlias = Callable[[int], tuple[Indices, Indices]]


def _sized(counts: Callable[[int, int], Indices], sizes: Draws) -> _Counts:
    return lambda client: (counts(client, sizes.train), counts(client, sizes.test))


def _drawn_shares(labels: tuple[Labels, Labels], *, clients: int, seed: int, counts: _Counts) -> list[Share]:
    train, test = labels
    _check_clients(clients, len(train))
    shares = []
    for client in range(clients):
        for_train, for_test = counts(client)
        chosen = _draw_classes(train, np.unique(train), for_train, _rng(seed, "train", client))
        held_out = _draw_classes(test, np.unique(train), for_test, _rng(seed, "test", client))
        shares.append(Share(chosen, held_out + len(train)))
    return shares


def _draw_classes(labels: Labels, classes: Labels, counts: Indices, rng: np.random.Generator) -> Indices:
    """So many examples of each class, without replacement unless the class has too few."""
    pieces = []
    for label, count in zip(classes, counts, strict=True):
        members = np.flatnonzero(labels == label)
        if count and not len(members):
            raise SettingError(
                f"class {label} has no examples in one part of the source", expected="at least one"
            )
        pieces.append(
            rng.choice(members, count, replace=bool(count > len(members))) if count else members[:0]
        )
    return _joined(pieces)


def hold_out(parts: Sequence[Indices], *, seed: int, kept: float = 0.75) -> list[Share]:
    """Each site's examples cut at random into training and test examples, 75 % and 25 %."""
    shares = []
    for client, part in enumerate(parts):
        shuffled = _rng(seed, "hold out", client).permutation(part)
        cut = min(max(int(len(shuffled) * kept), 1), len(shuffled) - 1)
        if cut < 1:
            raise SettingError(
                f"site {client} has {len(part)} examples", expected="at least 2: one to train, one to test"
            )
        shares.append(Share(np.sort(shuffled[:cut]), np.sort(shuffled[cut:])))
    return shares


def take_some(source: Source, images: int, *, seed: int) -> Source:
    """So many of a data set's examples, drawn at random; training and test part and every class keep their shares."""
    total = len(source.train) + len(source.test)
    if not 0 < images <= total:
        raise SettingError(f"{images} images of {source.name}", expected=f"1 to {total}, as many as it has")
    share = images / total
    return replace(
        source,
        train=source.train.take(_some(source.train.y, share, _rng(seed, "some", "train"))),
        test=source.test.take(_some(source.test.y, share, _rng(seed, "some", "test"))),
    )


def _some(labels: Labels, share: float, rng: np.random.Generator) -> Indices:
    """This share of each class, rounded half up."""
    kept = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        kept.append(rng.permutation(members)[: int(len(members) * share + 0.5)])
    return _joined(kept)


def with_validation(shares: Sequence[Share], *, fraction: float, seed: int) -> list[Share]:
    """The same shares with a random part of each site's training examples set aside for validation."""
    if not 0 <= fraction < 1:
        raise SettingError(f"validation fraction {fraction}", expected="0 or more, less than 1")
    result = []
    for client, share in enumerate(shares):
        # a sample that was drawn twice stays on one side: cut the distinct ones
        distinct = _rng(seed, "validation", client).permutation(np.unique(share.train))
        aside = np.isin(share.train, distinct[: int(len(distinct) * fraction)])
        result.append(Share(share.train[~aside], share.test, share.train[aside]))
    return result


def _joined(pieces: Sequence[Indices]) -> Indices:
    return np.sort(np.concatenate(pieces)) if pieces else np.zeros(0, np.int64)


def _rng(seed: int, *words: int | str) -> np.random.Generator:
    return np.random.default_rng(derive("partition", seed, *words))


def _check_clients(clients: int, samples: int) -> None:
    if not 1 <= clients <= samples:
        raise SettingError(f"{clients} sites for {samples} examples", expected=f"1 to {samples} sites")


def _check_positive(name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise SettingError(f"{name} {value}", expected="a number above 0")
