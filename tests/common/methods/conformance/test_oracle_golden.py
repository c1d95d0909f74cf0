"""The oracles' own pieces against numbers that come from outside: an error in the reading goes red here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import pytest

from .network import Array, Arrays, Descent, Pass, balanced, cross_entropy, difference, gumbel, logistic
from .oracle_fedcp import FedCp, column_sums, mmd, unit_vector
from .oracle_fedetf import FedEtf, simplex, simplex_loss
from .oracle_fedpick import FedPick, divergence, negative_entropy, together
from .oracle_fedrod import FedRod
from .oracle_gpfl import Gpfl, angles, conditions, distance
from .oracle_spherefed import moments, solve, squares
from .oracles import Oracle, Setting

Kind = TypeVar("Kind", bound=Oracle)

X, Y = np.array([[1.0, 2.0], [-1.0, 0.5]]), np.array([0, 1])
"""The two samples that are worked through by hand."""


def near(expected: object, actual: object) -> None:
    """Equal to five decimals, as the examples are given."""
    np.testing.assert_allclose(actual, np.array(expected, float), rtol=0, atol=1e-5)


def made(kind: type[Kind], w: Arrays, settings: Mapping[str, Setting]) -> Kind:
    """An oracle whose encoder is one linear layer."""
    oracle = kind(w, {}, settings)
    oracle.encoder = (("linear", "encoder"),)
    return oracle


def tensors(**rows: object) -> Arrays:
    """Arrays by name; two underscores stand for a dot."""
    return {name.replace("__", "."): np.array(value, float) for name, value in rows.items()}


# -- FedCP


def test_mmd_is_the_golden_one() -> None:
    """Two sets of two points; a set and itself."""
    h, frozen = np.array([[0.0, 0, 0], [1, 2, 2]]), np.array([[0.0, 3, 4], [1, 2, 2]])
    near(0.982417, mmd(h, frozen)[0])
    near(0.0, mmd(h, h)[0])
    near(np.zeros((2, 3)), mmd(h, h)[1])


def policy_of(kind: str, act: str, pre: list[float]) -> Array:
    """r for what the policy network's linear layer says, whatever the features."""
    half = len(pre) // 2
    w = tensors(
        cpn__fc__weight=np.zeros((len(pre), half)),
        cpn__fc__bias=pre,
        cpn__norm__weight=np.ones(len(pre)),
        cpn__norm__bias=np.zeros(len(pre)),
    )
    oracle = made(FedCp, w, {"cpn_norm": kind, "cpn_act": act})
    return oracle.policy(Pass(w, training=True), np.ones((1, half)), np.ones(half))[0][0]


def test_the_policy_is_the_golden_one() -> None:
    """The softmax of two rows, the personal vector of a head, the rows of a normalised layer."""
    r = logistic(np.array([0.0, 1, 2]) - np.array([0.5, 1, 0]))
    near([0.377541, 0.5, 0.880797], r)
    near(0.413887, (1 - r).mean())
    v = column_sums([np.array([[1.0, 2, 2], [0, 1, 1]])])
    near([1, 3, 3], v)
    near([0.229416, 0.688247, 0.688247], unit_vector(v))
    w = tensors(a__weight=np.ones(4), a__bias=np.zeros(4))
    near(
        [[-1.341635, -0.447212, 0.447212, 1.341635]],
        Pass(w, training=True).layer_norm("a", np.array([[1.0, 2, 3, 4]]))[0],
    )


def test_the_vector_of_a_head_of_two_layers_is_the_golden_one() -> None:
    """The product of its weights, not the first one's own sums."""
    weights = [np.array([[1.0, 2], [0, 1]]), np.array([[1.0, 0, 1], [2, 1, 0]])]
    near([7, 3, 1], column_sums(weights))


@pytest.mark.parametrize(
    ("norm", "act", "expected"),
    [
        ("ln", "relu", [0.476704, 0.170052]),
        ("gn", "relu", [0.5, 0.499995]),
        ("ln", "tanh", [0.296258, 0.183481]),
        ("ln", "sigmoid", [0.435514, 0.380464]),
    ],
)
def test_each_policy_network_is_the_golden_one(norm: str, act: str, expected: list[float]) -> None:
    """Norm and activation by turns."""
    near(expected, policy_of(norm, act, [1.0, 2, 4, 8]))


def test_the_order_of_norm_and_activation_is_the_golden_one() -> None:
    """FedCP normalises first, GPFL bends first."""
    w = tensors(n__weight=np.ones(3), n__bias=np.zeros(3))
    run, x = Pass(w, training=True), np.array([[1.0, -2, 3]])
    near([[0.162221, 0, 1.135549]], run.chain((("layer_norm", "n"), ("relu", "")), x)[0])
    near([[-0.267260, -1.069042, 1.336302]], run.chain((("relu", ""), ("layer_norm", "n")), x)[0])


def test_two_steps_of_fedcp_are_the_golden_ones() -> None:
    """Losses, weights and the head that goes up."""
    w = tensors(
        encoder__weight=[[1, 0.5], [-0.5, 1]],
        encoder__bias=[0.1, -0.1],
        head_g__weight=np.eye(2),
        head_g__bias=[0.1, -0.1],
        head_p__weight=[[0.5, -0.5], [0.25, 1]],
        head_p__bias=[0, 0.2],
        cpn__fc__weight=[[1, 0], [0, 1], [0.5, 0.5], [-0.5, 0.5]],
        cpn__fc__bias=np.zeros(4),
        cpn__norm__weight=np.ones(4),
        cpn__norm__bias=np.zeros(4),
    )
    oracle, received = made(FedCp, w, {"lambda": 5}), dict(w)
    v = oracle.vector(w)
    near([0.832050, 0.554700], v)
    near(0.467473, share_of_the_personal(oracle, w, v))
    assert descended(oracle, w, {"head_g.weight", "head_g.bias"}, lambda: (received, v)) == pytest.approx(
        [0.500291, 0.395555], abs=1e-5
    )
    near([1.048696, 0.554894], w["encoder.weight"][0])
    near([0.541034, -0.476482], w["head_p.weight"][0])
    near([0.770517, -0.238241], oracle.mixed(w)["head_g.weight"][0])


def share_of_the_personal(oracle: FedCp, w: Arrays, v: Array) -> float:
    """PIR over the two samples."""
    run = Pass(w, training=True)
    return float((1 - oracle.policy(run, run.chain(oracle.encoder, X)[0], v)[0]).mean())


def descended(oracle: FedCp | Gpfl, w: Arrays, fixed: set[str], words: object) -> list[float]:
    """The losses of two plain steps of 0.1."""
    descent, losses = Descent(w, w.keys() - fixed, lr=0.1, momentum=0.0), []
    for _ in range(2):
        loss, grads = oracle.slopes(w, *words(), X, Y)
        losses.append(loss)
        descent.step(grads)
    return losses


# -- GPFL


def test_the_parts_of_gpfl_are_the_golden_ones() -> None:
    """Cosines, distances, conditions."""
    f, table = np.array([[1.0, 0], [3, 4]]), np.array([[1.0, 1], [0, 2], [-1, 0]])
    near(0.706968, angles(f, table, Y)[0])
    near(2.302776, distance(f, table[Y], "per_sample")[0])
    near(3.741657, distance(f, table[Y], "batch_frob")[0])
    g, p = conditions(table, np.array([0.75, 0.25, 0]), "paper")
    near([0, 1], g)
    near([0.25, 0.416667], p)
    near([0.75, 1.25], conditions(table, np.array([0.75, 0.25, 0]), "sum")[1])


@pytest.mark.parametrize(
    ("settings", "losses", "row"),
    [
        (
            {"p_norm": "sum", "mlg": "batch_frob", "reg": "weight_decay"},
            [2.693505, 2.026179],
            [1.005524, 0.990478, 0.001313],
        ),
        ({}, [2.289154, 1.790711], [1.007068, 0.991596, 0.002914]),
    ],
    ids=["repro", "paper"],
)
def test_two_steps_of_gpfl_are_the_golden_ones(
    settings: dict[str, Setting], losses: list[float], row: list[float]
) -> None:
    """Losses and the first class's embedding."""
    w = tensors(
        encoder__weight=[[1, 0.5], [-0.5, 1], [0.25, 0.75]],
        encoder__bias=[0.1, -0.1, 0.2],
        gce__weight=[[1, 1, 0], [0, 2, 1], [-1, 0, 1]],
        cov__gamma__fc__weight=[[1, 0, 0.5], [0, 1, -0.5], [0.5, 0.5, 0]],
        cov__gamma__fc__bias=[0.1, 0, -0.1],
        cov__beta__fc__weight=[[0, 0.5, 1], [1, -0.5, 0], [0.5, 0, 0.5]],
        cov__beta__fc__bias=[0, 0.1, 0.2],
        head_p__weight=[[0.5, -0.5, 0.25], [0.25, 1, -0.5], [0, 0.5, 0.5]],
        head_p__bias=[0, 0.2, -0.1],
    )
    for name in ("gamma", "beta"):
        w |= {f"cov.{name}.norm.weight": np.ones(3), f"cov.{name}.norm.bias": np.zeros(3)}
    oracle = made(Gpfl, w, {"lambda": 0.1, "mu": 0.01, **settings})
    frozen = w["gce.weight"]
    g, p = conditions(frozen, np.array([0.75, 0.25, 0]), str(oracle.settings["p_norm"]))
    assert losses == pytest.approx(descended(oracle, w, set(), lambda: (frozen, g, p)), abs=1e-5)
    near(row, w["gce.weight"][0])


# -- FedPick


def test_the_parts_of_fedpick_are_the_golden_ones() -> None:
    """Divergence, ensemble, entropy, noise, soft and hard mask."""
    o_g, o_p = np.array([[2.0, 0, -1]]), np.array([[1.0, 1, 0]])
    near(0.842952, divergence(o_p, o_g)[0])
    powers = np.exp(together(o_g, o_p, "logit"))
    near([[0.866813, 0.117310, 0.015876]], powers / powers.sum())
    near(-1.068445, negative_entropy(np.array([[0.5, 0, 0]]))[0])
    near([0.366513, -0.326634], gumbel(np.array([0.5, 0.25])))
    logits = 0.3 + difference(np.array([[0.5]]), np.array([[0.25]]))
    w = tensors(head_g__weight=np.eye(2))
    for tau, expected in ((1.0, 0.729709), (10.0, 0.524808)):
        near([[expected]], made(FedPick, w, {"tau": tau, "mask": "soft"}).mask(logits)[0])
        near([[1.0]], made(FedPick, w, {"tau": tau}).mask(logits)[0])


def test_the_ensemble_of_two_heads_is_the_golden_one() -> None:
    """The sum of logits and the sum of probabilities choose different classes."""
    o_g, o_p = np.array([[2.0, 0, 0]]), np.array([[0, 1.9, -10]])
    assert (0, 1) == (
        together(o_g, o_p, "logit").argmax(),
        together(o_g, o_p, "prob").argmax(),
    )


@pytest.mark.parametrize(
    ("tau", "weight", "soft", "total", "d_logits", "d_z"),
    [
        (
            1.0,
            1.0,
            [[0.729709, 0.290461], [0.451863, 0.308562]],
            4.189311,
            [[0.026923, -0.112513], [-0.096564, 0.083132]],
            [[-0.516223, 0.674790], [1.345347, -0.667435]],
        ),
        (
            10.0,
            10.0,
            [[0.524808, 0.477686], [0.495171, 0.479840]],
            19.846256,
            [[0.034020, -0.136141], [-0.097400, 0.097245]],
            [[-0.662234, 3.200211], [5.936118, -3.499794]],
        ),
    ],
    ids=["tau-1", "tau-10"],
)
def test_a_batch_of_fedpick_is_the_golden_one(
    tau: float, weight: float, soft: object, total: float, d_logits: object, d_z: object
) -> None:
    """The whole loss and both gradients: through the mask, and past it."""
    w = tensors(
        head_g__weight=[[1, 0], [0, 1], [-1, 1]],
        head_p__weight=[[1, -1], [0, 1], [0.5, 0]],
        head_u__weight=[[0, 1], [1, 0], [0, -1]],
    )
    settings = {"tau": tau, "lambda_lce": weight, "lambda_ent": 0.001, "lambda_dis": weight}
    oracle, z = made(FedPick, w, settings), np.array([[1.0, 2], [2, 1]])
    logits = np.array([[0.3, -0.2], [0.5, -1.5]]) + difference(
        np.array([[0.5, 0.25], [0.25, 0.5]]), np.array([[0.25, 0.5], [0.5, 0.25]])
    )
    near(soft, made(FedPick, w, settings | {"mask": "soft"}).mask(logits)[0])
    m, back_mask = oracle.mask(logits)
    near([[1, 0], [0, 0]], m)
    seen: list[Array] = []

    def catch(dm: Array) -> Array:
        seen.append(back_mask(dm))
        return np.zeros_like(dm)

    loss, dz = oracle.terms(Pass(w, training=True), z, m, catch, np.array([0, 2]))
    near(total, loss)
    near(d_logits, seen[0])
    near(d_z, dz)


# -- heads that never move, and balanced ones


def test_balanced_softmax_is_the_golden_one() -> None:
    """A class without samples leaves the sum and makes no NaN."""
    scores, y = np.array([[1.0, 1, 0]]), np.array([1])
    loss, slope = balanced(scores, y, np.array([8, 2, 0]))
    near(1.609438, loss)
    near(0.861995, cross_entropy(scores, y)[0])
    near([[0.8, -0.8, 0.0]], slope)


def test_a_step_of_spherefed_is_the_golden_one() -> None:
    """The mean over B×C; a gradient at right angles to the feature; the calibration."""
    z, rows = np.array([[3.0, 0, 4]]), np.array([[0.6, 0.8, 0], [-0.8, 0.6, 0], [0, 0, 1]])
    loss, slope = squares(z, rows, np.array([2]))
    near(0.133333, loss)
    near([[0.064, 0, -0.048]], slope)
    sums = moments(np.array([[0.6, 0.8], [1, 0], [0, 1]]), np.array([0, 1, 0]), 2)
    near([[0.06, 1.08], [0.82, -0.24]], solve(sums["gram"], sums["cross"], 0.0))
    near([[0.077922, 1.012987], [0.753247, -0.207792]], solve(sums["gram"], sums["cross"], 0.1))


def test_the_simplex_is_the_golden_one() -> None:
    """Columns of length one, at equal angles."""
    vectors = simplex(np.eye(3))
    near(0.816497, vectors[0, 0])
    near(-0.408248, vectors[0, 1])
    near(1.5 * np.eye(3) - 0.5, vectors.T @ vectors)


def test_a_step_of_fedetf_is_the_golden_one() -> None:
    """Cosines, the loss for both ways to count an absent class, and both gradients."""
    basis = np.array([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1]]).T / 2
    p, vectors, y, counts = np.array([[1.0, 2, 2, 0]]), simplex(basis), np.array([1]), np.array([8, 2, 0])
    near([[0.544331, -0.272166, -0.272166]], p / 3 @ vectors)
    loss, dp, ds, _ = simplex_loss(p, vectors, 2.0, y, counts)
    near(3.066969, loss)
    near(0.778479, ds)
    near([[-0.172995, 0.432488, -0.345991, 0.778479]], dp)
    near(3.089983, simplex_loss(p, vectors, 2.0, y, np.maximum(counts, 1))[0])


def test_an_absent_class_counts_as_fedetf_is_told() -> None:
    """`absent` reaches the loss that a site trains on."""
    w = tensors(etf__vectors=simplex(np.eye(3)), scale=1.0, encoder__weight=np.eye(3))
    losses = {
        absent: made(FedEtf, w, {"absent": absent}).counts(np.array([0, 0, 1])).tolist()
        for absent in ("exclude", "one")
    }
    assert {"exclude": [2, 1, 0], "one": [2, 1, 1]} == losses


def test_two_steps_of_fedrod_are_the_golden_ones() -> None:
    """The second step shows where a gradient must not go."""
    w = tensors(
        encoder__weight=np.eye(2), head_g__weight=[[1, 0], [0, 1], [0, 0]], head_p__weight=np.zeros((3, 2))
    )
    oracle, descent = made(FedRod, w, {}), Descent(w, w, lr=0.1, momentum=0.0)
    losses = []
    for _ in range(2):
        loss, grads = oracle.slopes(w, np.array([8, 2, 0]), np.array([[1.0, 2]]), np.array([1]))
        losses.append(loss)
        descent.step(grads)
    near([[0.904832, 0.407606], [0.358889, 0.129216]], losses)
    near([[0.913897, -0.172206], [0.096875, 1.193751]], w["encoder.weight"])
    near([[0.919283, -0.188365], [0.080717, 1.188365], [0, 0]], w["head_g.weight"])
    near([[-0.029373, -0.064978], [0.041989, 0.094804], [-0.012616, -0.029825]], w["head_p.weight"])
