"""Per-FedAvg, first order: the gradient one step ahead is applied where the step began."""

from __future__ import annotations

from collections.abc import Mapping

from .network import Array, Arrays
from .oracle_models import Whole, chosen, memory
from .oracles import Setting, SiteArrays, Upload


class PerFedAvg(Whole):
    """Batches are real ones here: the order of samples is data to the oracle."""

    defaults: Mapping[str, Setting] = {"bn_policy": "local_stats", "passes": 1}

    def rate(self, name: str) -> float:
        """α or β; the learning rate where it is left open."""
        value = self.settings.get(name)
        return float(self.settings["lr"] if value is None else value)

    def train(self, site: str, t: int) -> tuple[Upload, Array]:
        w, data, size = self.receive(site, t), self.data[site], int(self.number("batch"))
        for epoch in range(int(self.number("epochs")) * int(self.number("passes"))):
            order = self.chance.order(site, t, epoch, len(data.y))
            for start in range(0, len(order) - 2 * size + 1, 2 * size):
                middle = start + size
                self.step(w, chosen(data, order[start:middle]), chosen(data, order[middle : middle + size]))
        self.keep(site, t, w)
        return Upload(len(data.y), w), self.scores(w, data.test_x)

    def step(self, w: Arrays, first: SiteArrays, second: SiteArrays) -> None:
        """w' = w − α ∇CE(w; D1), w ← w − β ∇CE(w'; D2); statistics move in both passes."""
        ahead = dict(w)
        self.descent(ahead, first, self.rate("alpha"))
        slopes = self.classify(ahead, second)
        w |= {name: w[name] - self.rate("beta") * slope for name, slope in slopes.items()} | memory(ahead)

    def descent(self, w: Arrays, data: SiteArrays, rate: float) -> None:
        """One plain step."""
        slopes = self.classify(w, data)
        w |= {name: w[name] - rate * slope for name, slope in slopes.items()}

    def predict(self, site: str, t: int) -> tuple[Arrays, Array]:
        """One step on one batch of training samples, then the test."""
        w, data = super().predict(site, t)[0], self.data[site]
        first = self.chance.order(site, t, 0, len(data.y))[: int(self.number("batch"))]
        self.descent(w, chosen(data, first), self.rate("alpha"))
        return w, self.scores(w, data.test_x)
