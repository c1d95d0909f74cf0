"""The baselines' oracles agree with numbers worked out elsewhere, and with difference quotients of their losses.

Beside each right value stand those of the mistakes that are easy to make: the oracle must be told from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from .network import ENCODER, Array, Arrays, Pass, cross_entropy
from .oracle_fedamp import attention
from .oracle_fedfomo import portions, wish
from .oracle_fedphp import FedPhp
from .oracle_models import distil, logits, mmd, proximal, under, within
from .oracle_perfedavg import PerFedAvg
from .oracle_pfedme import PFedMe
from .oracle_pulled import FedProx
from .oracle_split import LgFedAvg
from .oracles import Setting, SiteArrays
from .schedule import CLASSES, FEATURES, HIDDEN, INPUTS

TINY = 1e-5


class Straight:
    """No chance at all: samples come as they lie."""

    def order(self, site: str, t: int, epoch: int, n: int) -> Array:
        return np.arange(n)


def near(value: float | list[float]) -> object:
    """The specification's tolerance."""
    return pytest.approx(value, abs=TINY)


def test_features_are_compared_over_all_pairs() -> None:
    """Five easy mistakes have values of their own, far from this one."""
    h, fixed = np.array([[0.0, 0, 0], [1, 2, 2]]), np.array([[0.0, 3, 4], [1, 2, 2]])
    assert near(0.982417) == mmd(h, fixed)[0]
    for wrong in (0.103649, 1.418002, 0.245604, 0.208875, 3.929670, 3.017583):
        assert near(wrong) != mmd(h, fixed)[0]


def test_equal_features_are_not_pulled() -> None:
    """Neither value nor gradient: the first step of a round is plain."""
    h = np.random.default_rng(1).standard_normal((4, 3))
    value, slope = mmd(h, h)
    assert near(0.0) == value
    assert near(0.0) == np.abs(slope).max()


def test_near_models_weigh_most() -> None:
    """Three sites, two numbers each."""
    models = {"1": np.array([0.0, 0.0]), "2": np.array([1.0, 0.0]), "3": np.array([0.0, 2.0])}
    xi = attention("1", {site: {"w": value} for site, value in models.items()}, 0.1, 1.0)
    u = sum(xi[site] * models[site] for site in models)
    assert {"1": near(0.961380), "2": near(0.036788), "3": near(0.001832)} == xi
    assert near([0.036788, 0.003663]) == u.tolist()


def test_sigma_scales_distance_and_weight() -> None:
    """The same three sites with sigma = 2: 0.1 exp(-1/2) / 2 and 0.1 exp(-2) / 2; at 1 its places could not be told."""
    models = {"1": np.array([0.0, 0.0]), "2": np.array([1.0, 0.0]), "3": np.array([0.0, 2.0])}
    xi = attention("1", {site: {"w": value} for site, value in models.items()}, 0.1, 2.0)
    assert {"1": near(0.962907), "2": near(0.030327), "3": near(0.006767)} == xi


def test_a_site_never_weighs_less_than_nothing() -> None:
    """With 2 e^0 for each of two twins the others share all there is."""
    models = {site: {"w": np.array([1.0])} for site in "abc"}
    assert {"a": 0.0, "b": 0.5, "c": 0.5} == attention("a", models, 2.0, 1.0)


def test_what_lowers_the_loss_is_mixed() -> None:
    """Without the 1e-5, as it was worked out."""
    liked = wish(1.0, [0.7, 1.2, 0.9], [1.0, 2.0, 0.5], 0.0)
    assert near([0.3, -0.1, 0.2]) == liked.tolist()
    assert near([0.6, 0.0, 0.4]) == portions(liked).tolist()
    assert [0.0, 0.0] == portions(np.array([-1.0, -2.0])).tolist()


class Ahead(PerFedAvg):
    """F(w) = (w − b)²/2, where b comes as the sample."""

    def classify(self, w: Arrays, data: SiteArrays) -> Arrays:
        return {"head.weight": w["head.weight"] - data.x}


def test_the_step_is_taken_where_it_began() -> None:
    """w' = 0.9 is looked at; w moves from 1 to 1.055."""
    w = {"head.weight": np.array(1.0)}
    oracle = Ahead(w, {}, {"lr": 0.3, "alpha": 0.1, "beta": 0.05})
    oracle.step(w, sample(0.0), sample(2.0))
    assert near(1.055) == w["head.weight"]
    oracle.descent(w, sample(0.0), 0.1)
    assert near(0.9495) == w["head.weight"]


class Bowl(PFedMe):
    """F(θ) = θ²/2."""

    def classify(self, w: Arrays, data: SiteArrays) -> Arrays:
        return {"head.weight": w["head.weight"]}


def test_the_shared_model_follows_the_inner_one() -> None:
    """Five steps of θ from 1, then one of w, and not the other way round."""
    w = {"head.weight": np.array(1.0), "theta.head.weight": np.array(7.0)}
    oracle = Bowl(w, {}, {"lr": 0.005, "eta_p": 0.09, "mu": 0.0, "epochs": 1, "batch": 8}, Straight())
    oracle.turn = "a", 1
    oracle.learn(w, sample(0.0))
    assert near(0.936469) == w["theta.head.weight"]
    assert near(0.995235) == w["head.weight"]


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        (1, [([0.306525, 0.488007], 0.229234), ([0.183868, 0.666792], 0.35146)]),
        (2, [(None, None), ([0.316429, 0.625979], None)]),
    ],
)
def test_the_encoder_of_the_switch_is_everybodys(
    rounds: int, expected: list[tuple[list[float] | None, float | None]]
) -> None:
    """o = W·a·x, two sites of one and three samples; a as each site has it after rounds 2 and 3."""
    oracle = lg(rounds)
    encoders, heads = zip(*(lg_round(oracle, t) for t in (1, 2, 3)), strict=True)
    assert near(0.37302) == oracle_mean(encoders[0])
    assert near(0.12698) == heads[0]
    for t, (wanted, head) in enumerate(expected, 1):
        assert wanted is None or near(wanted) == encoders[t]
        assert head is None or near(head) == heads[t]


def lg(rounds: int) -> LgFedAvg:
    """The worked example."""
    init = {"encoder.a.weight": np.array([[1.0]]), "head.weight": np.array([[0.5], [-0.5]])}
    sites = {"1": site_of([1.0], [0]), "2": site_of([2.0] * 3, [1] * 3)}
    settings = {"lr": 0.5, "momentum": 0, "epochs": 1, "batch": 8, "pretrain_rounds": rounds}
    oracle = LgFedAvg(init, sites, settings, Straight())
    oracle.encoder = (("linear", "encoder.a"),)
    return oracle


def lg_round(oracle: LgFedAvg, t: int) -> tuple[list[float], float]:
    """Both sites train and are counted; their encoders, and the second number of the common head."""
    uploads = {site: oracle.train(site, t)[0] for site in oracle.data}
    oracle.close(t, uploads)
    encoders = [float(upload.w["encoder.a.weight"].item()) for upload in uploads.values()]
    return encoders, float(oracle.shared["head.weight"][1, 0])


def oracle_mean(encoders: list[float]) -> float:
    """By samples; sites alike would give 0.626837."""
    return (encoders[0] + 3 * encoders[1]) / 4


def test_every_gradient_is_a_difference_quotient() -> None:
    """Pulls towards features, towards a teacher's probabilities and towards a model."""
    draw = np.random.default_rng(8)
    one, other = draw.standard_normal((5, 3)), draw.standard_normal((5, 3))
    check(lambda value: mmd(value, other), one)
    check(lambda value: distil(value, other, 4.0), one)
    check(lambda value: pull_of(value, other), one)


def pull_of(value: Array, anchor: Array) -> tuple[float, Array]:
    """The proximal term of a model that is one tensor, among others that are not in the anchor."""
    far, slope = proximal({"w": value, "more": value}, {"w": anchor}, 0.7)
    assert {"w"} == slope.keys()
    return far, slope["w"]


@pytest.mark.parametrize(
    "settings",
    [{}, {"variant": "original"}, {"variant": "original", "reg": "mmd"}, {"variant": "lib2024"}],
    ids=str,
)
def test_fedphp_descends_its_whole_loss(settings: Mapping[str, Setting]) -> None:
    """(1 − λ) CE + λ · regulariser, through encoder and head alike."""
    w, data = first_network(), batch_of(9)
    teacher = {name: value + 0.3 for name, value in w.items()}
    oracle = FedPhp(w, {}, {"lambda": 0.4, **settings})
    grads = oracle.taught(dict(w), dict(teacher), data)
    for name, slope in grads.items():
        check(
            lambda value, name=name, slope=slope: (whole(oracle, {**w, name: value}, teacher, data), slope),
            w[name],
        )


def whole(oracle: FedPhp, w: Arrays, teacher: Arrays, data: SiteArrays) -> float:
    """The loss itself."""
    run, teaching = Pass(dict(w), training=True), Pass(dict(teacher), training=oracle.variant == "blend")
    h = run.chain(ENCODER, data.x)[0]
    o = run.linear("head", h)[0]
    far = mmd(h, teaching.chain(ENCODER, data.x)[0])[0]
    if oracle.variant == "original" and oracle.settings["reg"] == "kd":
        far = distil(o, logits(teacher, data.x), 4.0)[0]
    return 0.6 * cross_entropy(o, data.y)[0] + 0.4 * far


def test_fedprox_descends_its_whole_loss() -> None:
    """CE + μ/2 ‖w − w^t‖², where no parameter is left out."""
    w, data = first_network(), batch_of(9)
    anchor = {name: value + 0.3 for name, value in w.items() if name.endswith(("weight", "bias"))}
    oracle = FedProx(w, {}, {})
    grads = oracle.pulled(dict(w), data, anchor, 0.7)
    assert anchor.keys() == grads.keys()

    def loss(w: Arrays) -> float:
        run = Pass(dict(w), training=True)
        o = run.linear("head", run.chain(ENCODER, data.x)[0])[0]
        return cross_entropy(o, data.y)[0] + proximal(w, anchor, 0.7)[0]

    for name, slope in grads.items():
        check(lambda value, name=name, slope=slope: (loss({**w, name: value}), slope), w[name])


def test_a_second_model_comes_out_and_goes_back() -> None:
    """Under the names of the first, and none of the first's."""
    w = {"head.weight": np.array(1.0), "own.head.weight": np.array(2.0)}
    assert {"head.weight": np.array(2.0)} == under(w, "own")
    assert {"own.head.weight": np.array(2.0)} == within(under(w, "own"), "own")


def check(loss: Callable[[Array], tuple[float, Array]], value: Array) -> None:
    """A small step of each number does to the loss what the gradient says."""
    slope = loss(value)[1]
    for place in np.ndindex(value.shape):
        step = np.zeros_like(value)
        step[place] = 1e-6
        quotient = (loss(value + step)[0] - loss(value - step)[0]) / 2e-6
        assert quotient == pytest.approx(slope[place], rel=1e-5, abs=1e-7), place


def first_network() -> Arrays:
    """Encoder and head with numbers of no meaning."""
    draw = np.random.default_rng(3)
    shapes = {
        "encoder.mix.weight": (HIDDEN, INPUTS),
        "encoder.scale.bias": (HIDDEN,),
        "encoder.out.weight": (FEATURES, HIDDEN),
        "encoder.out.bias": (FEATURES,),
        "head.weight": (CLASSES, FEATURES),
        "head.bias": (CLASSES,),
        "encoder.scale.running_mean": (HIDDEN,),
    }
    w = {name: draw.standard_normal(shape) for name, shape in shapes.items()}
    w |= {f"encoder.scale.{name}": 1 + draw.random(HIDDEN) for name in ("weight", "running_var")}
    return w | {"encoder.scale.num_batches_tracked": np.array(0)}


def batch_of(size: int) -> SiteArrays:
    """Samples of no meaning."""
    draw = np.random.default_rng(4)
    x, y = draw.standard_normal((size, INPUTS)), draw.integers(CLASSES, size=size)
    return SiteArrays(x, y, x, y, x)


def sample(x: float) -> SiteArrays:
    """A single number."""
    return SiteArrays(np.array([x]), *(np.zeros(1),) * 4)


def site_of(x: list[float], y: list[int]) -> SiteArrays:
    """One number a sample."""
    column = np.array(x)[:, None]
    return SiteArrays(column, np.array(y), column, np.array(y), column)
