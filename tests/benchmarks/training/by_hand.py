"""One round's training of every method, written as one would by hand: the product gives the networks and nothing else.

Each function is given a model that has just received, with the modules that the method's paper names, and trains it.
What the product tells of a round beside its loss (how far a model went, parts of a loss) is not repeated here: there it
counts as cost.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, normalize, one_hot

from pfl_common.learning.method import Participant
from tests.benchmarks.training.loop import (
    Site,
    batches,
    classify,
    contrast,
    copies,
    descend,
    discrepancy,
    gap,
)


def fedprox(model: Participant, site: Site) -> None:
    """Held back near the received model."""
    received, mu = copies(model), site.given.mu

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model.head(model.encoder(x)), y) + mu / 2 * gap(model, received)

    descend(model, site, model.parameters(), loss)


def ditto(model: Participant, site: Site) -> None:
    """A model of one's own near the common one, then the common one."""
    own, common = model.personal, nn.ModuleList([model.encoder, model.head])
    received, mu = copies(common), site.given.mu

    def personal(x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(own["head"](own["encoder"](x)), y) + mu / 2 * gap(own, received)

    descend(model, site, own.parameters(), personal)
    descend(
        model,
        site,
        common.parameters(),
        lambda x, y: cross_entropy(model.head(model.encoder(x)), y),
    )


def dualfed(model: Participant, site: Site) -> None:
    """Two stages: encoder, projector and personal head; then the global head on what the encoder sees."""
    weight, tau = site.given.lambda_, site.given.tau

    def first(x: Tensor, y: Tensor) -> Tensor:
        u = model.projector(model.encoder(x))
        return cross_entropy(model.head_p(u), y) + weight * contrast(u, y, tau)

    def second(x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            z = model.encoder(x)
            model.projector(z)  # whose statistics follow
        return cross_entropy(model.head_g(z), y)

    descend(
        model,
        site,
        chain(model.encoder.parameters(), model.projector.parameters(), model.head_p.parameters()),
        first,
    )
    descend(model, site, model.head_g.parameters(), second)


def fedamp(model: Participant, site: Site) -> None:
    """Drawn towards the mix that was sent, which here is the first model."""
    mix, strength = copies(model), site.given.lambda_ / (2 * site.given.alpha_k)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model.head(model.encoder(x)), y) + strength * gap(model, mix)

    descend(model, site, model.parameters(), loss)


def fedcac(model: Participant, site: Site) -> None:
    """Train, then mark the half of each tensor that mattered most."""
    before = copies(model)
    classify(model, site)
    with torch.no_grad():
        marks = []
        for old, new in zip(before, model.parameters(), strict=True):
            score = ((new - old) * new).abs().flatten()
            least = score.kthvalue(len(score) - int(site.given.tau * len(score)) + 1).values
            marks.append(score >= least)
    model.marks = torch.cat(marks)


def fedcp(model: Participant, site: Site) -> None:
    """A policy divides the features between a head that is shared and stands still, and one's own."""
    received = copy.deepcopy(model.encoder).requires_grad_(False).train()
    model.head_g.requires_grad_(False)
    context = normalize(model.head_p.weight.detach().sum(0), dim=0)
    # The paper's λ for this kind of network; the product chooses it by the network's name.
    weight, bandwidths = model._lambda, site.given.mmd_bandwidths

    def loss(x: Tensor, y: Tensor) -> Tensor:
        h = model.encoder(x)
        r, s = torch.stack(model.cpn(context * h).chunk(2, 1)).softmax(0)
        scores = model.head_g(r * h) + model.head_p(s * h)
        return cross_entropy(scores, y) + weight * discrepancy(h, received(x), bandwidths)

    trained = chain(model.encoder.parameters(), model.cpn.parameters(), model.head_p.parameters())
    descend(model, site, trained, loss)


def fedetf(model: Participant, site: Site) -> None:
    """Features that learn to meet a fixed frame."""
    prior = site.counts.float().log()

    def loss(x: Tensor, y: Tensor) -> Tensor:
        directions = normalize(model.projection(model.encoder(x)), dim=1)
        return cross_entropy(model.scale * (directions @ model.etf.vectors) + prior, y)

    descend(model, site, model.parameters(), loss)


def fedfomo(model: Participant, site: Site) -> None:
    """Weigh the old model on a fifth of the data, train on the rest; nobody's models were offered."""
    order = site.draw(len(site.y))
    held, rest = order[: len(order) // 5], order[len(order) // 5 :]
    model.eval()
    with torch.no_grad():
        model.losses = [
            cross_entropy(model.head(model.encoder(site.x[part].float() / 255)), site.y[part])
            for part in held.split(256)
        ]
    own = nn.ModuleList([model.encoder, model.head])
    model.before = copies(own)
    descend(
        model,
        replace(site, x=site.x[rest], y=site.y[rest]),
        own.parameters(),
        lambda x, y: cross_entropy(model.head(model.encoder(x)), y),
    )


def fedphp(model: Participant, site: Site) -> None:
    """Features that stay like those of the encoder as received; then the model is handed on."""
    received, share = copy.deepcopy(model.encoder).requires_grad_(False).train(), site.given.lambda_

    def loss(x: Tensor, y: Tensor) -> Tensor:
        features = model.encoder(x)
        pull = discrepancy(features, received(x), (10, 15, 20, 50))
        return (1 - share) * cross_entropy(model.head(features), y) + share * pull

    descend(model, site, chain(model.encoder.parameters(), model.head.parameters()), loss)
    model.own["encoder"].load_state_dict(model.encoder.state_dict())
    model.own["head"].load_state_dict(model.head.state_dict())


def fedpick(model: Participant, site: Site) -> None:
    """A selection of features for the personal head, four losses at once."""
    given = site.given

    def loss(x: Tensor, y: Tensor) -> Tensor:
        z = model.encoder(x)
        uniform = torch.rand(2, *z.shape, dtype=torch.float64).clamp(min=1e-10)
        first, second = -torch.log(-torch.log(uniform))
        logits = model.pfsm["select"](z) + (first - second).float()
        soft = (logits / given.tau).sigmoid()
        m = (logits >= 0).float() + soft - soft.detach()
        of_all, own, rest = model.head_g(z), model.head_p(z * m), model.head_u(z * (1 - m))
        log_g, log_p, log_u = of_all.log_softmax(1), own.log_softmax(1), rest.log_softmax(1)
        entropy = (log_u.exp() * log_u).sum(1).mean()
        divergence = ((log_p.exp() - log_g.exp()) * (log_p - log_g)).sum(1).mean()
        return (
            cross_entropy(of_all, y)
            + given.lambda_lce * cross_entropy(own, y)
            + given.lambda_ent * entropy
            + given.lambda_dis * divergence
        )

    descend(model, site, model.parameters(), loss)


def fedproto(model: Participant, site: Site) -> None:
    """Pulled towards prototypes, of which the first round knows none; then the site's own are measured."""
    known = model.known > 0.5

    def loss(x: Tensor, y: Tensor) -> Tensor:
        h = model.encoder(x)
        targets = torch.where(known[y][:, None], model.prototypes[y], h.detach())
        return cross_entropy(model.head(h), y) + site.given.lambda_ * mse_loss(h, targets)

    descend(model, site, model.parameters(), loss)
    model.eval()
    sums = torch.zeros(site.classes, model.features, dtype=torch.float64)
    with torch.no_grad():
        for start in range(0, len(site.y), site.given.batch):
            part = slice(start, start + site.given.batch)
            h = model.encoder(site.x[part].float() / 255)
            sums.index_add_(0, site.y[part], h.double())
    model.means = sums / site.counts[:, None]


def fedrep(model: Participant, site: Site) -> None:
    """Some epochs on the head, then one on the encoder."""

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model.head(model.encoder(x)), y)

    model.encoder.requires_grad_(False)
    for epoch in range(site.given.head_epochs):
        if not epoch:
            heads = torch.optim.SGD(model.head.parameters(), lr=site.given.lr, momentum=site.given.momentum)
        model.train()
        for x, y in batches(site):
            heads.zero_grad()
            loss(x, y).backward()
            heads.step()
    model.encoder.requires_grad_(True)
    model.head.requires_grad_(False)
    descend(model, site, model.encoder.parameters(), loss)


def fedrod(model: Participant, site: Site) -> None:
    """A generic head on a balanced loss, a personal one on top of it."""
    prior = site.counts.float().log()

    def loss(x: Tensor, y: Tensor) -> Tensor:
        h = model.encoder(x)
        generic = model.head_g(h)
        own = generic.detach() + model.head_p(h.detach())
        return cross_entropy(generic + prior, y) + cross_entropy(own, y)

    descend(model, site, model.parameters(), loss)


def gpfl(model: Participant, site: Site) -> None:
    """What all classes look like on one route, one's own head on another."""
    table = model.gce.weight.detach().clone()
    common_condition = table.mean(0)
    condition = (site.counts / site.counts.sum()).float() @ table / site.classes
    # The paper's symbols for this kind of network; the product chooses them by the network's name.
    near, decay = model._lambda, model._mu
    routes, embeddings = [*model.cov.parameters()], [*model.gce.parameters()]

    def loss(x: Tensor, y: Tensor) -> Tensor:
        f = model.encoder(x)
        common = model.cov(f, common_condition)
        own = cross_entropy(model.head_p(model.cov(f, condition)), y)
        angle = cross_entropy(normalize(common, dim=1) @ normalize(model.gce.weight, dim=1).T, y)
        distance = ((common - table[y]).square().sum(1) + 1e-12).sqrt().mean()
        norms = [sqrt_of_squares(values) for values in (routes, embeddings)]
        return own + angle + near * distance + decay * sum(norms)

    descend(model, site, model.parameters(), loss)


def sqrt_of_squares(values: list[Tensor]) -> Tensor:
    """One norm of several tensors."""
    return sum(value.square().sum() for value in values).sqrt()


def perfedavg(model: Participant, site: Site) -> None:
    """A trial step on one batch, a real one on the next with the gradient found there."""
    rate, moving = site.given.lr, list(model.parameters())
    model.train()
    total = 0.0
    for x, y in batches(site, 2 * site.given.batch):
        half, origin = len(y) // 2, copies(model)
        for part, start in ((slice(half), None), (slice(half, None), origin)):
            loss = cross_entropy(model.head(model.encoder(x[part])), y[part])
            slopes = torch.autograd.grad(loss, moving)
            with torch.no_grad():
                for place, (value, slope) in enumerate(zip(moving, slopes, strict=True)):
                    value.copy_((value if start is None else start[place]) - rate * slope)
        total += loss.item()


def pfedme(model: Participant, site: Site) -> None:
    """Five steps of a model tied to the common one, which follows it."""
    given, theta = site.given, model.theta
    common = [*model.encoder.parameters(), *model.head.parameters()]
    theta["encoder"].load_state_dict(model.encoder.state_dict())
    theta["head"].load_state_dict(model.head.state_dict())
    moving = [*theta["encoder"].parameters(), *theta["head"].parameters()]
    model.train()
    total = 0.0
    for x, y in batches(site):
        for _ in range(given.K_in):
            loss = cross_entropy(theta["head"](theta["encoder"](x)), y)
            slopes = torch.autograd.grad(loss, moving)
            with torch.no_grad():
                for value, own, slope in zip(moving, common, slopes, strict=True):
                    value -= given.eta_p * (slope + given.lambda_ * (value - own) + given.mu * value)
        with torch.no_grad():
            for value, own in zip(moving, common, strict=True):
                own -= given.lr * given.lambda_ * (own - value)
        total += loss.item() * len(y)


def spherefed(model: Participant, site: Site) -> None:
    """Features that turn towards a fixed frame."""

    def loss(x: Tensor, y: Tensor) -> Tensor:
        scores = normalize(model.encoder(x), dim=1) @ model.frame.rows.T
        return mse_loss(scores, one_hot(y, site.classes).float())

    descend(model, site, model.parameters(), loss)


BY_HAND: dict[str, Callable[[Participant, Site], object]] = {
    **dict.fromkeys(("fedavg", "fedbn", "fedper", "lgfedavg", "local"), classify),
    "ditto": ditto,
    "dualfed": dualfed,
    "fedamp": fedamp,
    "fedcac": fedcac,
    "fedcp": fedcp,
    "fedetf": fedetf,
    "fedfomo": fedfomo,
    "fedphp": fedphp,
    "fedpick": fedpick,
    "fedprox": fedprox,
    "fedproto": fedproto,
    "fedrep": fedrep,
    "fedrod": fedrod,
    "gpfl": gpfl,
    "perfedavg": perfedavg,
    "pfedme": pfedme,
    "spherefed": spherefed,
}
