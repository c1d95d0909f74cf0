"""FedPHP in its three variants: a model of the site's own is carried on beside the shared one."""

from __future__ import annotations

from collections.abc import Mapping

from .network import ENCODER, Array, Arrays, Pass, cross_entropy
from .oracle_models import MODEL, Whole, distil, filled, logits, memory, mmd, running, under, within
from .oracles import Setting, SiteArrays, Upload, below
from .schedule import ROUNDS

TEMPERATURE = 4.0


class FedPhp(Whole):
    """`own` is the previous model (blend) or the inherited one; `teacher` what features or logits are compared with."""

    defaults: Mapping[str, Setting] = {
        "bn_policy": "local_stats",
        "variant": "blend",
        "mu": 0.9,
        "lambda": 0.01,
        "rho": 1.0,
        "reg": "kd",
    }

    @property
    def variant(self) -> str:
        """blend, original or lib2024."""
        return str(self.settings["variant"])

    def receive(self, site: str, t: int) -> Arrays:
        w = super().receive(site, t)
        if self.variant != "blend":
            return w if site in self.since else w | within(self.taken(w), "own")
        if site in self.since:
            mu = self.number("mu") * (t - 1) / ROUNDS
            shared = below(w, *MODEL) & self.shares(t)
            w |= {name: (1 - mu) * w[name] + mu * w[f"own.{name}"] for name in shared}
        return w

    def train(self, site: str, t: int) -> tuple[Upload, Array]:
        self.turn = site, t
        w, data = self.receive(site, t), self.data[site]
        teacher = super().receive(site, t) if self.variant == "blend" else under(w, "own")
        self.run(w, below(w, *MODEL), lambda part: self.taught(w, dict(teacher), part), data, self.epochs)
        w |= within(self.carried(w, t), "own")
        w["participations"] = w["participations"] + 1
        self.keep(site, t, w)
        return Upload(len(data.y), w), self.scores(w, data.test_x)

    def taught(self, w: Arrays, teacher: Arrays, data: SiteArrays) -> Arrays:
        """Gradients of (1 − λ) CE + λ · regulariser; a received encoder teaches in train mode, p_i as it predicts."""
        share = self.number("lambda")
        run = Pass(w, training=True)
        h, back = run.chain(ENCODER, data.x)
        o, back_head = run.linear("head", h)
        do, dh = (1 - share) * cross_entropy(o, data.y)[1], 0.0 * h
        if self.variant == "original" and self.settings["reg"] == "kd":
            do = do + share * distil(o, logits(teacher, data.x), TEMPERATURE)[1]
        else:
            other = Pass(teacher, training=self.variant == "blend").chain(ENCODER, data.x)[0]
            dh = share * mmd(h, other)[1]
        back(back_head(do) + dh)
        return run.grads

    def carried(self, w: Arrays, t: int) -> Arrays:
        """`own` after the round: the trained model, or the moving average of such models."""
        mu, own = self.inertia(w, t), under(w, "own")
        mean = {name: mu * own[name] + (1 - mu) * w[name] for name in below(w, *MODEL) | running(w)}
        return memory(w) | mean

    def inertia(self, w: Arrays, t: int) -> float:
        """How much of `own` survives a round."""
        mu = self.number("mu")
        if self.variant == "original":
            return min(mu, mu * int(w["participations"]) / max(1.0, self.number("rho") * ROUNDS))
        return mu * t / ROUNDS if self.variant == "lib2024" else 0.0

    def fill_statistics(self, w: Arrays, x: Array) -> None:
        if self.variant == "original":
            w |= within(filled(under(w, "own"), x), "own")
        else:
            w |= memory(filled(w, x))

    def scores(self, w: Arrays, x: Array) -> Array:
        return logits(under(w, "own") if self.variant == "original" else w, x)
