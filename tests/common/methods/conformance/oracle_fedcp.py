"""FedCP: the policy is the softmax of two rows, the personal vector is that of the round's beginning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .network import Array, Arrays, Backward, Layers, Pass, cross_entropy, difference, logistic
from .oracles import Oracle, Setting, Upload, below

BANDWIDTHS = (10.0, 15.0, 20.0, 50.0)
NORMS = {"ln": "layer_norm", "bn": "norm", "gn": "halves_norm"}


class FedCp(Oracle):
    """Four heads' worth of options: with or without the policy, the global head and the frozen encoder."""

    defaults: Mapping[str, Setting] = {
        "lambda": 1.0,
        "policy": "softmax",
        "cpn_input": "cs_ss",
        "cpn_fc": 1,
        "cpn_norm": "ln",
        "cpn_act": "relu",
        "use_gfm": 1,
        "use_cpn": 1,
        "use_global_head": 1,
    }

    def shares(self, t: int) -> set[str]:
        modules = ["encoder"]
        modules += ["head_g"] if self.settings["use_global_head"] else []
        modules += ["cpn"] if self.settings["use_cpn"] else []
        return self.travelling(*modules)

    def receive(self, site: str, t: int) -> Arrays:
        """Who registered after the beginning starts from the global head; everybody else from the first values."""
        w = super().receive(site, t)
        if site in self.late and site not in self.since and self.settings["use_global_head"]:
            w |= {name.replace("head_g", "head_p"): w[name] for name in below(w, "head_g")}
        return w

    def train(self, site: str, t: int) -> tuple[Upload, Array]:
        """Alg. 1: the received encoder and v stay what they were; the two heads go up as their mean."""
        w = self.receive(site, t)
        received, v = dict(w), self.vector(w)
        trained, noise = below(w, "encoder", "head_p", "cpn"), iter(self.noise(site, t))
        self.walk(w, trained, lambda x, y: self.slopes(w, received, v, x, y, next(noise))[1], site=site, t=t)
        self.keep(site, t, w)
        return Upload(self.weight(site), self.mixed(w)), self.scores(w, self.data[site].test_x)

    def noise(self, site: str, t: int) -> list[Array | float]:
        """What is added to a_1 − a_2 in each batch: nothing, or with `gumbel_train` the difference of two draws."""
        batches = self.batches(site, t, int(self.number("epochs")))
        if self.settings["policy"] == "softmax":
            return [0.0] * len(batches)
        shapes = [(2, len(places), self.init["head_p.weight"].shape[1]) for places in batches]
        return [difference(*draws) for draws in self.chance.noise(site, t, "gumbel", shapes)]

    def mixed(self, w: Arrays) -> Arrays:
        """Eq. 6: what goes up in the global head's place."""
        if not self.settings["use_global_head"]:
            return w
        return w | {name: (w[name] + w[name.replace("head_g", "head_p")]) / 2 for name in below(w, "head_g")}

    def vector(self, w: Arrays) -> Array:
        """v / ‖v‖ of the personal head."""
        return unit_vector(column_sums([w["head_p.weight"]]))

    def slopes(
        self, w: Arrays, received: Arrays, v: Array, x: Array, y: Array, noise: Array | float = 0.0
    ) -> tuple[float, Arrays]:
        """CE + λ MMD² (Eq. 8) and its gradients; the frozen encoder normalises by the batch too."""
        run = Pass(w, training=True)
        h, back_encoder = run.chain(self.encoder, x)
        out, back = self.answer(run, h, v, noise)
        loss, slope = cross_entropy(out, y)
        dh = back(slope)
        if self.settings["use_gfm"]:
            frozen = Pass(dict(received), training=True).chain(self.encoder, x)[0]
            apart, slope = mmd(h, frozen, self.settings.get("mmd_bandwidths", BANDWIDTHS))
            loss, dh = loss + self.number("lambda") * apart, dh + self.number("lambda") * slope
        back_encoder(dh)
        return loss, run.grads

    def answer(self, run: Pass, h: Array, v: Array, noise: Array | float = 0.0) -> tuple[Array, Backward]:
        """Logits, and the way back to h."""
        if self.settings["use_cpn"]:
            return self.divide(run, h, v, noise)
        own, back_own = run.linear("head_p", h)
        if not self.settings["use_global_head"]:
            return own, back_own
        common, back_common = run.linear("head_g", h)
        return own + common, lambda d: back_own(d) + back_common(d)

    def divide(self, run: Pass, h: Array, v: Array, noise: Array | float) -> tuple[Array, Backward]:
        """head_g(r ⊙ h) + head_p(s ⊙ h)."""
        r, back_policy = self.policy(run, h, v, noise)
        common, back_common = run.linear("head_g", r * h)
        own, back_own = run.linear("head_p", (1.0 - r) * h)

        def back(d: Array) -> Array:
            d_common, d_own = back_common(d), back_own(d)
            return d_common * r + d_own * (1.0 - r) + back_policy((d_common - d_own) * h)

        return common + own, back

    def policy(self, run: Pass, h: Array, v: Array, noise: Array | float = 0.0) -> tuple[Array, Backward]:
        """r of Eq. 4, which is the logistic function of a_1 − a_2 (temperature 1)."""
        factor = {"cs_ss": v, "ss": np.ones_like(v)}.get(str(self.settings["cpn_input"]), np.zeros_like(v))
        fixed = {"cs": v, "random": run.w.get("probe")}.get(str(self.settings["cpn_input"]))
        c = factor * h if fixed is None else np.broadcast_to(fixed, h.shape)
        a, back_network = run.chain(self.network(), c)
        half = a.shape[1] // 2
        r = logistic(a[:, :half] - a[:, half:] + noise)

        def back(dr: Array) -> Array:
            d = dr * r * (1.0 - r)
            return back_network(np.concatenate([d, -d], axis=1)) * factor

        return r, back

    def network(self) -> Layers:
        """The layers of the policy network."""
        act = str(self.settings["cpn_act"])
        before = [f"cpn.before{n}" for n in range(1, int(self.number("cpn_fc")))]
        extra = [pair for name in before for pair in (("linear", name), (act, ""))]
        return (
            *extra,
            ("linear", "cpn.fc"),
            (NORMS[str(self.settings["cpn_norm"])], "cpn.norm"),
            (act, ""),
        )

    def fill_statistics(self, w: Arrays, x: Array) -> None:
        run = Pass(w, training=True)
        self.answer(run, run.chain(self.encoder, x)[0], self.vector(w))

    def scores(self, w: Arrays, x: Array) -> Array:
        run = Pass(w, training=False)
        return self.answer(run, run.chain(self.encoder, x)[0], self.vector(w))[0]


def column_sums(weights: list[Array]) -> Array:
    """v: the sums over classes of the product of a head's weights, the last layer first."""
    whole = weights[0]
    for weight in weights[1:]:
        whole = whole @ weight
    return whole.sum(0)


def unit_vector(v: Array) -> Array:
    """v / max(‖v‖, 1e-12)."""
    return v / max(float(np.linalg.norm(v)), 1e-12)


def mmd(h: Array, frozen: Array, widths: Sequence[float] = BANDWIDTHS) -> tuple[float, Array]:
    """The biased MMD², and its gradient with respect to h."""
    size = len(h)
    (among, d_among), (others, _), (between, d_between) = (
        kernel(h, h, widths),
        kernel(frozen, frozen, widths),
        kernel(h, frozen, widths),
    )
    loss = (among.sum() + others.sum() - 2.0 * between.sum()) / size**2
    # κ(h_p, h_q) has h_p on both sides of the double sum.
    return float(loss), 2.0 * (d_among.sum(1) - d_between.sum(1)) / size**2


def kernel(a: Array, b: Array, widths: Sequence[float]) -> tuple[Array, Array]:
    """κ(a_p, b_q) for all pairs, and its gradient with respect to a_p."""
    apart = a[:, None, :] - b[None, :, :]
    square = (apart**2).sum(2)
    powers = [np.exp(-square / (2.0 * width)) for width in widths]
    slope = sum(power / width for power, width in zip(powers, widths, strict=True))
    return sum(powers), -slope[:, :, None] * apart
