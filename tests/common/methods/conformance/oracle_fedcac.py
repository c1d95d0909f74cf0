"""FedCAC, returning sites included: each step as it is specified, nothing packed, nothing lazy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .network import Array, Arrays
from .oracles import Oracle, Setting, Upload, average, parameters, statistics


class FedCac(Oracle):
    """Masks are kept under `mask:<parameter>`, one boolean per entry."""

    uniform = True
    opaque = ("circle", "statistics")
    defaults: Mapping[str, Setting] = {
        "tau": 0.5,
        "beta": 100.0,
        "collab": "time_varying",
        "noncritical": "all",
        "bn_stats": "u",
    }

    def first_shared(self) -> Arrays:
        self.customised: dict[str, Arrays] = {}
        self.counted: dict[str, int] = {}
        self.circles: dict[int, dict[str, set[str]]] = {}
        # Batch norm goes by `bn_stats`; what comes from the coordinator needs no filling.
        self.calibrates = self.settings["bn_stats"] == "local"
        return {name: self.init[name] for name in self.sent()}

    def sent(self) -> set[str]:
        """What w_i is made of: all parameters, and the statistics unless they never move."""
        own = statistics(self.init) if self.settings["bn_stats"] == "u" else set()
        return parameters(self.init) | own

    def shares(self, t: int) -> set[str]:
        return set()

    def receive(self, site: str, t: int) -> Arrays:
        """Eq. 11; a new site takes the whole mean, and own values stand in once u_i was merged before."""
        w = self.init | self.vault.get(site, {})
        if site not in self.since:
            return w | self.shared
        unmerged = self.counted.get(site) == self.since[site]
        critical = self.customised[site] if unmerged else w
        for name in parameters(self.init):
            mask = w[f"mask:{name}"] | (self.settings["noncritical"] == "as_critical")
            w[name] = np.where(mask, critical[name], self.shared[name])
        for name in self.sent() - parameters(self.init):
            w[name] = critical[name]
        return w

    def train(self, site: str, t: int) -> tuple[Upload, Array]:
        before, w, data = self.receive(site, t), self.receive(site, t), self.data[site]
        self.learn(w, data)
        for name in parameters(self.init):
            w[f"mask:{name}"] = self.mask(np.abs((w[name] - before[name]) * w[name]))
        self.keep(site, t, w)
        return Upload(1, w), self.scores(w, data.test_x)

    def mask(self, s: Array) -> Array:
        """Eq. 6 with the degenerate case."""
        q = int(np.floor(float(self.settings["tau"]) * s.size))
        threshold = np.sort(s.ravel())[::-1][q - 1] if q else np.inf
        if threshold <= 1e-10:
            alive = s[s > 1e-20]
            threshold = alive.min() if alive.size else threshold
        return s >= threshold

    def close(self, t: int, uploads: Mapping[str, Upload]) -> None:
        if not uploads:
            return
        masks = {site: self.long_mask(upload.w) for site, upload in uploads.items()}
        circles = self.circles_of(t, masks)
        self.circles[t] = circles
        self.shared = average(list(uploads.values()), self.sent())
        for site in uploads:
            members = [uploads[other] for other in sorted(circles[site] | {site})]
            self.customised[site] = average(members, self.sent())
            self.counted[site] = t

    def state(self) -> Arrays:
        return {f"w.{name}": value for name, value in self.shared.items()}

    def kept(self, site: str) -> Arrays:
        return self.packed(self.vault[site]) if site in self.vault else {}

    def predict(self, site: str, t: int) -> tuple[Arrays, Array]:
        w, scores = super().predict(site, t)
        return self.packed(w), scores

    def packed(self, w: Arrays) -> Arrays:
        """The masks as the participant keeps them: eight entries a byte, parameters sorted by name."""
        model = {name: value for name, value in w.items() if not name.startswith("mask:")}
        if len(model) == len(w):
            return model
        return model | {"mask": np.packbits(self.long_mask(w), bitorder="little"), "has_mask": np.array(1)}

    def long_mask(self, w: Arrays) -> Array:
        """The mask over all parameters as one vector."""
        return np.concatenate([w[f"mask:{name}"].ravel() for name in sorted(parameters(self.init))])

    def circles_of(self, t: int, masks: Mapping[str, Array]) -> dict[str, set[str]]:
        """Eq. 7 and 8."""
        pairs = [(i, j) for i in masks for j in masks if i != j]
        overlap = {(i, j): overlap_ratio(masks[i], masks[j]) for i, j in pairs}
        if len(masks) < 2:
            return {site: set() for site in masks}
        collab = str(self.settings["collab"])
        if collab.startswith("top"):
            size = int(collab.removeprefix("top"))
            ranked = {
                i: sorted((j for j in masks if j != i), key=lambda j, i=i: (-overlap[i, j], j)) for i in masks
            }
            return {i: set(others[:size]) for i, others in ranked.items()}
        beta = float(self.settings["beta"])
        if collab == "none" or t > beta:
            return {site: set() for site in masks}
        values = list(overlap.values())
        threshold = np.mean(values) + t / beta * (max(values) - np.mean(values))
        return {i: {j for j in masks if j != i and overlap[i, j] >= threshold - 1e-9} for i in masks}


def overlap_ratio(mine: Array, other: Array) -> float:
    """O_ij = 1 − ‖M_i − M_j‖₁ / (2 ‖M_i‖₁), and 0 for an empty mask."""
    size = int(mine.sum())
    return 1.0 - int((mine != other).sum()) / (2 * size) if size else 0.0
