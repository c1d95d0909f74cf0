"""GPFL: one modulation, asked twice, once with what all classes have in common and once with the site's mix."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .network import Array, Arrays, Backward, Layers, Pass, cross_entropy, unit
from .oracles import Oracle, Setting, Upload, below


class Gpfl(Oracle):
    """`condition` is p_i, `table` the embeddings a site trained last (with `cond_source = stale`)."""

    defaults: Mapping[str, Setting] = {
        "lambda": 0.01,
        "mu": 0.1,
        "p_norm": "paper",
        "cond_source": "received",
        "mlg": "per_sample",
        "reg": "norm",
        "ablation": "none",
    }

    @property
    def modulates(self) -> bool:
        """Whether the features go through CoV."""
        return self.settings["ablation"] not in ("wo_cov", "wo_cov_gce")

    @property
    def guided(self) -> bool:
        """Whether there are class embeddings."""
        return self.settings["ablation"] not in ("wo_gce", "wo_cov_gce")

    def modules(self) -> list[str]:
        """What is shared."""
        return ["encoder"] + ["cov"] * self.modulates + ["gce"] * self.guided

    def shares(self, t: int) -> set[str]:
        return self.travelling(*self.modules())

    def conditions(self, w: Arrays, site: str) -> tuple[Array, Array]:
        """g and p_i (Eq. 5, 7), from the received table or the one the site had before; or two constants."""
        if self.settings["ablation"] in ("wo_pci", "wo_gce"):
            return w["constants"][0], w["constants"][1]
        table = w["table" if self.settings["cond_source"] == "stale" else "gce.weight"]
        counts = np.bincount(self.data[site].y, minlength=len(table))
        return conditions(table, counts / counts.sum(), str(self.settings["p_norm"]))

    def train(self, site: str, t: int) -> tuple[Upload, Array]:
        w = self.receive(site, t)
        g, p = self.conditions(w, site) if self.modulates else (np.zeros(0), np.zeros(0))
        frozen = w.get("gce.weight", np.zeros((0, 0)))
        trained = below(w, "head_p", *self.modules())
        self.walk(w, trained, lambda x, y: self.slopes(w, frozen, g, p, x, y)[1], site=site, t=t)
        if self.modulates:
            w["condition"] = p
        if "table" in w:
            w["table"] = w["gce.weight"]
        self.keep(site, t, w)
        return Upload(self.weight(site), w), self.scores(w, self.data[site].test_x)

    def predict(self, site: str, t: int) -> tuple[Arrays, Array]:
        w, _ = super().predict(site, t)
        if self.modulates:
            w["condition"] = self.conditions(w, site)[1]
        return w, self.scores(w, self.data[site].test_x)

    def slopes(
        self, w: Arrays, frozen: Array, g: Array, p: Array, x: Array, y: Array
    ) -> tuple[float, Arrays]:
        """Eq. 11 and its gradients."""
        run = Pass(w, training=True)
        f, back_encoder = run.chain(self.encoder, x)
        personal, back_personal = self.route(run, f, p)
        o, back_head = run.linear("head_p", personal)
        loss, slope = cross_entropy(o, y)
        df = back_personal(back_head(slope))
        if self.guided:
            common, back_common = self.route(run, f, g)
            guidance, slope = self.guide(run, common, frozen, y)
            loss, df = loss + guidance, df + back_common(slope)
            loss += self.regularise(run)
        back_encoder(df)
        return loss, run.grads

    def route(self, run: Pass, f: Array, condition: Array) -> tuple[Array, Backward]:
        """ReLU((γ + 1) ⊙ f + β) (Eq. 3, 4)."""
        if not self.modulates:
            return f, lambda d: d
        gamma, back_gamma = run.chain(net("cov.gamma"), condition[None, :])
        beta, back_beta = run.chain(net("cov.beta"), condition[None, :])
        out = np.maximum((gamma + 1.0) * f + beta, 0.0)

        def back(d: Array) -> Array:
            d = d * (out > 0)
            back_gamma((d * f).sum(0, keepdims=True))
            back_beta(d.sum(0, keepdims=True))
            return d * (gamma + 1.0)

        return out, back

    def guide(self, run: Pass, common: Array, frozen: Array, y: Array) -> tuple[float, Array]:
        """L_alg + λ L_mlg and the gradient for f^G; the embeddings learn from L_alg alone."""
        loss, slope, d_table = angles(common, run.w["gce.weight"], y)
        run.grads["gce.weight"] = d_table
        weight = 0.0 if self.settings["ablation"] == "wo_mlg" else self.number("lambda")
        apart, d_apart = distance(common, frozen[y], str(self.settings["mlg"]))
        return loss + weight * apart, slope + weight * d_apart

    def regularise(self, run: Pass) -> float:
        """μ times two norms, or the gradient μθ; the penalty's value."""
        mu, loss = self.number("mu"), 0.0
        for module in [name for name in ("cov", "gce") if name in self.modules()]:
            names = sorted(below(run.w, module))
            size = np.sqrt(sum((run.w[name] ** 2).sum() for name in names))
            divisor = size if self.settings["reg"] == "norm" else 1.0
            loss += mu * size if self.settings["reg"] == "norm" else 0.0
            for name in names:
                run.grads[name] = run.grads.get(name, 0.0) + mu * run.w[name] / divisor
        return float(loss)

    def scores(self, w: Arrays, x: Array) -> Array:
        run = Pass(w, training=False)
        f = run.chain(self.encoder, x)[0]
        return run.linear("head_p", self.route(run, f, w.get("condition", np.zeros(0)))[0])[0]


def net(name: str) -> Layers:
    """One of CoV's two networks."""
    return ("linear", f"{name}.fc"), ("relu", ""), ("layer_norm", f"{name}.norm")


def conditions(table: Array, alpha: Array, p_norm: str) -> tuple[Array, Array]:
    """g = mean of the rows, p = Σ α_u row_u, divided by C if the paper is followed."""
    whole = (alpha[:, None] * table).sum(0)
    return table.sum(0) / len(table), whole / len(table) if p_norm == "paper" else whole


def angles(f: Array, table: Array, y: Array) -> tuple[float, Array, Array]:
    """L_alg (Eq. 8): cross entropy of cosines; gradients for the features and the embeddings."""
    (rows, back_rows), (columns, back_columns) = unit(f), unit(table)
    loss, slope = cross_entropy(rows @ columns.T, y)
    return loss, back_rows(slope @ columns), back_columns(slope.T @ rows)


def distance(f: Array, target: Array, mlg: str) -> tuple[float, Array]:
    """L_mlg (Eq. 9): the mean distance of a sample, or the length of all differences together."""
    apart = f - target
    if mlg == "batch_frob":
        length = np.sqrt((apart**2).sum() + 1e-12)
        return float(length), apart / length
    lengths = np.sqrt((apart**2).sum(1, keepdims=True) + 1e-12)
    return float(lengths.mean()), apart / lengths / len(f)
