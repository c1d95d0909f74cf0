"""The plain loop: what everybody writes who trains a network with torch and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pfl_common.learning.method import Settings


@dataclass(frozen=True)
class Site:
    """The same pictures that the product trains on, as bytes, and the method's settings."""

    x: Tensor
    y: Tensor
    classes: int
    given: Settings
    draw: Callable[[int], Tensor] = torch.randperm
    """An order for so many samples."""

    @property
    def counts(self) -> Tensor:
        """Samples of each class."""
        return torch.bincount(self.y, minlength=self.classes)


def batches(site: Site, size: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """An epoch in a random order."""
    for chosen in site.draw(len(site.y)).split(size or site.given.batch):
        yield site.x[chosen].float() / 255, site.y[chosen]


def descend(
    model: nn.Module,
    site: Site,
    parameters: Iterable[nn.Parameter],
    loss: Callable[[Tensor, Tensor], Tensor],
) -> float:
    """An epoch of torch's own SGD; gives the mean loss."""
    optimizer = torch.optim.SGD(list(parameters), lr=site.given.lr, momentum=site.given.momentum)
    model.train()
    total = 0.0
    for x, y in batches(site):
        optimizer.zero_grad()
        value = loss(x, y)
        value.backward()
        optimizer.step()
        total += value.item() * len(y)
    return total / len(site.y)


def classify(model: nn.Module, site: Site) -> float:
    """The epoch of FedAvg: cross entropy of encoder and head."""
    return descend(
        model, site, model.parameters(), lambda x, y: cross_entropy(model.head(model.encoder(x)), y)
    )


def copies(model: nn.Module) -> list[Tensor]:
    """The values of all parameters as they are now."""
    return [parameter.detach().clone() for parameter in model.parameters()]


def gap(model: nn.Module, values: Iterable[Tensor]) -> Tensor:
    """The squared distance of a model's parameters from others."""
    return sum((own - other).square().sum() for own, other in zip(model.parameters(), values, strict=True))


def discrepancy(first: Tensor, second: Tensor, bandwidths: tuple[float, ...]) -> Tensor:
    """MMD² with Gaussian kernels, of all pairs of rows."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        squares = (a[:, None] - b[None]).square().sum(2)
        return sum(torch.exp(-squares / (2 * width)) for width in bandwidths).mean()

    return kernel(first, first) + kernel(second, second) - 2 * kernel(first, second)


def contrast(u: Tensor, y: Tensor, temperature: float) -> Tensor:
    """The supervised contrastive loss of a batch."""
    directions = u / u.norm(dim=1, keepdim=True)
    similar = directions @ directions.T / temperature
    itself = torch.eye(len(y), dtype=torch.bool)
    share = similar - similar.masked_fill(itself, -torch.inf).logsumexp(1, keepdim=True)
    alike = (y[:, None] == y[None]) & ~itself
    return -((share * alike).sum(1) / alike.sum(1).clamp(min=1)).mean()
