"""FedPick: a hard choice of features whose gradient is that of the soft one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .network import Array, Arrays, Backward, Layers, Pass, cross_entropy, difference, logistic, softmax
from .oracles import Oracle, Setting, Upload, below

SELECT: Layers = (("linear", "pfsm.select.fc1"), ("relu", ""), ("linear", "pfsm.select.fc2"))


class FedPick(Oracle):
    """Noise is handed over as uniform numbers, two for each feature of each sample."""

    bn_policy = "local_bn"
    defaults: Mapping[str, Setting] = {
        "mask": "hard",
        "use_pfsm": 1,
        "tau": 1.0,
        "lambda_lce": 1.0,
        "lambda_ent": 0.001,
        "lambda_dis": 1.0,
        "epsilon": 0.5,
        "share_pfsm": 0,
        "ensemble": "logit",
    }

    def shares(self, t: int) -> set[str]:
        own = ["pfsm", "head_p", "head_u"] if self.settings["share_pfsm"] else []
        return self.travelling("encoder", "head_g", *own)

    def train(self, site: str, t: int) -> tuple[Upload, Array]:
        w = self.receive(site, t)
        noise = iter(self.noise(site, t))
        modules = ("encoder", "head_g", "pfsm", "head_p", "head_u")
        trained = below(w, *(modules if self.settings["use_pfsm"] else modules[:2]))
        self.walk(w, trained, lambda x, y: self.slopes(w, next(noise), x, y)[1], site=site, t=t)
        self.keep(site, t, w)
        return Upload(self.weight(site), w), self.scores(w, self.data[site].test_x)

    def noise(self, site: str, t: int) -> list[Array]:
        """G' − G'' of each batch."""
        width = self.init["head_g.weight"].shape[1]
        shapes = [(2, len(places), width) for places in self.batches(site, t, int(self.number("epochs")))]
        return [difference(*draws) for draws in self.chance.noise(site, t, "gumbel", shapes)]

    def slopes(self, w: Arrays, noise: Array, x: Array, y: Array) -> tuple[float, Arrays]:
        """The loss of Eq. 15 and its gradients."""
        run = Pass(w, training=True)
        z, back_encoder = run.chain(self.encoder, x)
        loss, dz = self.losses(run, z, noise, y) if self.settings["use_pfsm"] else self.plain(run, z, y)
        back_encoder(dz)
        return loss, run.grads

    def plain(self, run: Pass, z: Array, y: Array) -> tuple[float, Array]:
        """FedBN's loss, which is what is left without the selection."""
        o, back = run.linear("head_g", z)
        loss, slope = cross_entropy(o, y)
        return loss, back(slope)

    def losses(self, run: Pass, z: Array, noise: Array, y: Array) -> tuple[float, Array]:
        """All four terms, and the gradient for z."""
        logits, back_select = run.chain(SELECT, z)
        m, back_mask = self.mask(logits + noise)
        return self.terms(run, z, m, lambda dm: back_select(back_mask(dm)), y)

    def terms(self, run: Pass, z: Array, m: Array, back_mask: Backward, y: Array) -> tuple[float, Array]:
        """All four terms with a mask that is given."""
        o_g, back_g = run.linear("head_g", z)
        o_p, back_p = run.linear("head_p", z * m)
        o_u, back_u = run.linear("head_u", z * (1.0 - m))
        (gce, d_gce), (lce, d_lce) = cross_entropy(o_g, y), cross_entropy(o_p, y)
        (ent, d_ent), (dis, d_dis_p, d_dis_g) = negative_entropy(o_u), divergence(o_p, o_g)
        of_lce, of_ent, of_dis = (self.number(f"lambda_{name}") for name in ("lce", "ent", "dis"))
        d_common = back_g(d_gce + of_dis * d_dis_g)
        d_own, d_rest = back_p(of_lce * d_lce + of_dis * d_dis_p), back_u(of_ent * d_ent)
        dz = d_common + d_own * m + d_rest * (1.0 - m) + back_mask((d_own - d_rest) * z)
        return gce + of_lce * lce + of_ent * ent + of_dis * dis, dz

    def mask(self, logits: Array) -> tuple[Array, Backward]:
        """Eq. 9: the soft mask, or the hard one with the soft one's gradient."""
        tau, epsilon = self.number("tau"), self.number("epsilon")
        soft = logistic(logits / tau)
        # σ(a) ≥ ε, asked of a: near the threshold the logistic function is too flat to be asked.
        hard = (logits / tau >= np.log(epsilon / (1.0 - epsilon))).astype(float)
        m = soft if self.settings["mask"] == "soft" else hard
        return m, lambda dm: dm * soft * (1.0 - soft) / tau

    def scores(self, w: Arrays, x: Array) -> Array:
        """Eq. 14: no noise."""
        run = Pass(w, training=False)
        z = run.chain(self.encoder, x)[0]
        o_g = run.linear("head_g", z)[0]
        if not self.settings["use_pfsm"] or self.settings["ensemble"] == "global_only":
            return o_g
        m = self.mask(run.chain(SELECT, z)[0])[0]
        return together(o_g, run.linear("head_p", z * m)[0], str(self.settings["ensemble"]))


def together(o_g: Array, o_p: Array, ensemble: str) -> Array:
    """Two heads' answers as one."""
    return softmax(o_g) + softmax(o_p) if ensemble == "prob" else o_g + o_p


def negative_entropy(o: Array) -> tuple[float, Array]:
    """L_ent (Eq. 12): mean of Σ ŷ log ŷ; and its gradient."""
    p, log_p = softmax(o), log_softmax(o)
    each = (p * log_p).sum(1, keepdims=True)
    return float(each.mean()), p * (log_p - each) / len(o)


def divergence(o_p: Array, o_g: Array) -> tuple[float, Array, Array]:
    """L_dis (Eq. 13): KL both ways; gradients for both arguments."""
    p, g = softmax(o_p), softmax(o_g)
    apart = log_softmax(o_p) - log_softmax(o_g)
    to_g, to_p = (p * apart).sum(1, keepdims=True), (-g * apart).sum(1, keepdims=True)
    d_p = p * (apart - to_g) + p - g
    d_g = g * (-apart - to_p) + g - p
    return float((to_g + to_p).mean()), d_p / len(o_p), d_g / len(o_p)


def log_softmax(o: Array) -> Array:
    """log softmax(o), finite wherever o is."""
    shifted = o - o.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
