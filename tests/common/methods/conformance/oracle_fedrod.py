"""Fed-RoD, linear: a generic head on balanced softmax, a personal one on what is left."""

from __future__ import annotations

import numpy as np

from .network import Array, Arrays, Pass, balanced, cross_entropy
from .oracles import Oracle, Upload, below


class FedRod(Oracle):
    """The personal loss reaches neither the encoder nor the generic head."""

    def shares(self, t: int) -> set[str]:
        return self.travelling("encoder", "head_g")

    def train(self, site: str, t: int) -> tuple[Upload, Array]:
        w, data = self.receive(site, t), self.data[site]
        counts = np.bincount(data.y, minlength=len(w["head_g.weight"]))
        trained = below(w, "encoder", "head_g", "head_p")
        self.walk(w, trained, lambda x, y: self.slopes(w, counts, x, y)[1], site=site, t=t)
        self.keep(site, t, w)
        return Upload(self.weight(site), w), self.scores(w, data.test_x)

    def slopes(self, w: Arrays, counts: Array, x: Array, y: Array) -> tuple[tuple[float, float], Arrays]:
        """L_bsm and L_p, and the gradients of their sum, each where it may go."""
        run = Pass(w, training=True)
        h, back_encoder = run.chain(self.encoder, x)
        o_g, back_g = run.linear("head_g", h)
        o_p, back_p = run.linear("head_p", h)
        (generic, d_generic), (own, d_own) = balanced(o_g, y, counts), cross_entropy(o_g + o_p, y)
        back_p(d_own)
        back_encoder(back_g(d_generic))
        return (generic, own), run.grads

    def scores(self, w: Arrays, x: Array) -> Array:
        run = Pass(w, training=False)
        h = run.chain(self.encoder, x)[0]
        return run.linear("head_g", h)[0] + run.linear("head_p", h)[0]
