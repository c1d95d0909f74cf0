"""Every method does what its specification says, number by number, through one schedule of mishaps.

The numbers come from oracles in numpy, written from the specification, that share no code with the product.
"""

from __future__ import annotations

from functools import cache
from typing import TypeVar

import numpy as np
import pytest

from .cases import FOUND, FURTHER, Case, oracle_of, play
from .federation import History
from .network import ENCODER, PROJECTOR, Arrays, Pass, cross_entropy, pull, supcon
from .oracle_fedamp import FedAmp
from .oracle_fedcac import FedCac
from .oracle_fedfomo import FedFomo
from .oracle_fedpick import SELECT, FedPick
from .oracles import FedProto, Oracle
from .replay import Expected, differing, replay, same_scores
from .schedule import BYSTANDER, CLASSES, FEATURES, HIDDEN, INPUTS, LATECOMER, ROUNDS, SITES

CASES = FOUND + FURTHER
Kind = TypeVar("Kind", bound=Oracle)


@cache
def play_both(case: Case) -> tuple[History, Expected]:
    """The schedule, played by the product and by the oracle."""
    oracle_of(case.name)
    return play(case), replay(case, play(case).init)


SAME = {"fedcac-merged-by-the-coordinator": "where the merge is made changes no number"}
"""Cases that are meant to end like their method's plain one."""


@pytest.mark.parametrize("name", dict.fromkeys(case.name for case in CASES))
def test_each_case_is_what_the_oracle_says(name: str) -> None:
    """Whatever is kept, measured, trained and served, by the coordinator and every site. Each case's settings change a
    score or a served number, so that its agreement says something new. One test a method: a case is played once.
    """
    ends: dict[bytes, str] = {}
    for case in [case for case in CASES if case.name == name]:
        history, expected = play_both(case)
        for check in (check_coordinator, check_vaults, check_measured, check_trained, check_served):
            check(history, expected, str(case))
        if str(case) not in SAME:
            assert str(case) == ends.setdefault(ending(expected), str(case))


def check_coordinator(history: History, expected: Expected, case: str) -> None:
    """After every round each tensor of the shared state is the oracle's."""
    for number, state in history.states.items():
        spoken = {name: v for name, v in state.items() if name.split(".")[0] not in expected.oracle.opaque}
        assert {} == differing(expected.states[number], spoken), f"{case} after round {number}"


def check_vaults(history: History, expected: Expected, case: str) -> None:
    """After every round each tensor of each site's vault is the oracle's."""
    for number, vaults in history.vaults.items():
        for site in SITES:
            where = f"{case}: {site} after round {number}"
            assert {} == differing(expected.vaults[number][site], vaults[site]), where


def check_measured(history: History, expected: Expected, case: str) -> None:
    """Before each round and at the end every site, trained or not, has the oracle's model and scores."""
    for number, measured in history.measured.items():
        for site in SITES:
            w, scores = expected.measured[number][site]
            where = f"{case}: {site} before round {number}"
            assert {} == differing(w, measured[site].model), where
            assert same_scores(expected.oracle, scores, measured[site].scores), where


def check_trained(history: History, expected: Expected, case: str) -> None:
    """After local training, counted or not, each site's scores are the oracle's."""
    for (turn, trained), scores in zip(history.trained, expected.trained, strict=True):
        for site in turn.cohort:
            where = f"{case}: {site} in {turn}"
            assert same_scores(expected.oracle, scores[site], trained[site].scores), where


def check_served(history: History, expected: Expected, case: str) -> None:
    """What a site goes on predicting with, once the run is over, is the oracle's model."""
    for site in SITES:
        assert {} == differing(expected.serving[site], history.serving[site]), f"{case}: {site}"


def ending(expected: Expected) -> bytes:
    """The last scores and what each site goes on with, as the oracle has them."""
    scores = [expected.measured[ROUNDS + 1][site][1] for site in SITES]
    served = [expected.serving[site][name] for site in SITES for name in sorted(expected.serving[site])]
    return b"".join(np.round(np.asarray(value, float), 9).tobytes() for value in scores + served)


# -- the oracles themselves: what they are compared with must not be a mistake of theirs


def test_a_method_without_an_oracle_is_told_to_write_one() -> None:
    """A new file is found by itself; what it computes is unproven until somebody writes it a second time."""
    with pytest.raises(AssertionError, match=r"'brand_new' has no oracle: write it once more"):
        oracle_of("brand_new")


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_the_oracles_gradients_are_difference_quotients(training: bool) -> None:
    """Each hand-derived gradient is what a small step of its number does to the loss."""
    w, draw = first_network(), np.random.default_rng(5)
    grads = total_loss(w, training)[1]
    assert {name for name in w if name.endswith(("weight", "bias"))} == grads.keys()
    for name, grad in grads.items():
        place = tuple(draw.integers(size) for size in grad.shape)
        quotient = (stepped(w, name, place, 1e-6, training) - stepped(w, name, place, -1e-6, training)) / 2e-6
        assert quotient == pytest.approx(grad[place], rel=1e-5, abs=1e-7), (name, place)


def first_network() -> Arrays:
    """Encoder, projector and head with numbers of no meaning."""
    draw, w = np.random.default_rng(3), {}
    linear = {
        "encoder.mix": (HIDDEN, INPUTS),
        "encoder.out": (FEATURES, HIDDEN),
        "projector.fc1": (7, FEATURES),
        "projector.fc2": (FEATURES, 7),
        "head": (CLASSES, FEATURES),
    }
    for name, shape in linear.items():
        w |= {f"{name}.weight": draw.standard_normal(shape), f"{name}.bias": draw.standard_normal(shape[0])}
    for name, width in {"encoder.scale": HIDDEN, "projector.bn1": 7, "projector.bn2": FEATURES}.items():
        w |= {f"{name}.weight": 1 + draw.random(width), f"{name}.bias": draw.standard_normal(width)}
        w |= {
            f"{name}.running_mean": draw.standard_normal(width),
            f"{name}.running_var": 1 + draw.random(width),
        }
        w[f"{name}.num_batches_tracked"] = np.array(0)
    return w


def total_loss(w: Arrays, training: bool) -> tuple[float, Arrays]:
    """All losses there are, added up, with the gradient of the sum."""
    draw = np.random.default_rng(4)
    x, y = draw.standard_normal((9, INPUTS)), np.array([0, 0, 1, 1, 1, 2, 3, 3, 2])
    prototypes, known = draw.standard_normal((CLASSES, FEATURES)), np.array([True, False, True, True])
    run = Pass(dict(w), training=training)
    z, back_encoder = run.chain(ENCODER, x)
    u, back_projector = run.chain(PROJECTOR, z)
    o, back_head = run.linear("head", u)
    losses = cross_entropy(o, y), supcon(u, y, 0.2), pull(z, y, prototypes, known)
    back_encoder(back_projector(back_head(losses[0][1]) + losses[1][1]) + losses[2][1])
    return sum(loss for loss, _ in losses), run.grads


def stepped(w: Arrays, name: str, place: tuple[int, ...], step: float, training: bool) -> float:
    """The loss with one number moved."""
    value = w[name].copy()
    value[place] += step
    return total_loss({**w, name: value}, training)[0]


def test_the_oracles_contrastive_loss_is_the_golden_one() -> None:
    """The values the specification works out by hand for four vectors, with and without singletons."""
    u = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 0.0]])
    assert 0.774359 == pytest.approx(supcon(u, np.array([0, 1, 0, 1]), 0.5)[0], abs=1e-5)
    assert 0.241504 == pytest.approx(supcon(u, np.array([0, 1, 0, 2]), 0.5)[0], abs=1e-5)


def test_the_schedule_turns_every_page_of_fedcac() -> None:
    """Circles of two and more, sites alone although circles are allowed, empty ones by rule, a return."""
    oracle = played("fedcac", FedCac)
    sizes = {
        number: [len(circle) for circle in circles.values()] for number, circles in oracle.circles.items()
    }
    assert 2 <= max(sizes[1])
    assert 0 == min(sizes[4])
    assert 0 == max(sizes[6] + sizes[7])
    assert {"a", "c"} == oracle.circles[1]["d"], "the u that d merges when it returns is a mean of several"


def test_the_schedule_turns_every_page_of_fedproto_and_the_slots() -> None:
    """A class without prototype, one that comes late, and sites that like others, not themselves alone."""
    oracle = played("fedproto", FedProto)
    expected = play_both(case_of("fedproto"))[1]
    assert [True, True, True, False] == expected.states[2]["known"].tolist()
    assert [True, True, True, True] == oracle.shared["known"].tolist()
    same = np.allclose(
        expected.states[5]["prototypes"][2:], expected.states[6]["prototypes"][2:], rtol=0, atol=0
    )
    assert same, "only d was counted in round 6, and it has neither class"
    likings = played("fedfomo", FedFomo).preference
    assert any(value > 0 for (site, peer), value in likings.items() if site != peer)
    assert any(value < 0 for value in likings.values())


def test_the_schedule_turns_every_page_of_fedamp() -> None:
    """Every model weighs something with every other, and where they would weigh too much nothing is left."""
    oracle = played("fedamp", FedAmp)
    assert all(0.0 < xi < 1.0 for row in oracle.weights.values() for xi in row.values())
    crowded = played("fedamp", FedAmp, "nothing-left-for-itself").weights
    left = [row[site] for (_, site), row in crowded.items()]
    assert 0.0 == min(left)
    assert 0.0 < max(left), "and where they would not, the rest is the site's own"


def test_the_schedule_turns_every_page_of_fedcp() -> None:
    """Who registers late begins with a head that has been trained; who is only never asked keeps the first one."""
    expected = play_both(case_of("fedcp"))[1]
    first, common = (expected.oracle.init["head_p.weight"], expected.states[3]["head_g.weight"])
    assert not np.allclose(common, expected.oracle.init["head_g.weight"])
    assert np.array_equal(common, expected.measured[4][LATECOMER][0]["head_p.weight"])
    assert np.array_equal(first, expected.measured[4][BYSTANDER][0]["head_p.weight"])


def test_the_schedule_turns_every_page_of_gpfl() -> None:
    """What a site remembers of the embeddings is another table than what it gets when it returns."""
    expected = play_both(case_of("gpfl", "stale"))[1]
    remembered = expected.measured[5]["d"][0]
    assert not np.allclose(remembered["table"], remembered["gce.weight"])
    assert not expected.measured[5][BYSTANDER][0]["condition"].any(), "it never had a table"


def test_the_schedule_turns_every_page_of_fedpick() -> None:
    """Samples pick other features than their neighbours, sites pick otherwise, noise turns choices round."""
    oracle, expected = played("fedpick", FedPick), play_both(case_of("fedpick"))[1]
    picked, turned = [], 0
    for site in SITES[:4]:
        w, data = dict(expected.measured[ROUNDS + 1][site][0]), oracle.data[site]
        run = Pass(w, training=False)
        logits = run.chain(SELECT, run.chain(ENCODER, data.x)[0])[0]
        picked.append((logits >= 0).mean(0))
        turned += int(((logits + oracle.noise(site, 1)[0] >= 0) != (logits >= 0)).sum())
    assert any(0 < share < 1 for shares in picked for share in shares), "by sample"
    assert not np.allclose(picked[0], picked[1]), "by site"
    assert turned > 0


def test_the_schedule_turns_every_page_of_the_fixed_heads() -> None:
    """What is solved at the end is not the frame; before it the frame is what predicts."""
    expected = play_both(case_of("spherefed", "calibrated"))[1]
    before, after = (expected.measured[number]["a"][0] for number in (ROUNDS, ROUNDS + 1))
    assert (0, 1) == (before["frame.fitted"], after["frame.fitted"])
    assert not np.allclose(after["frame.calibrated"], after["frame.rows"], atol=0.1)


def case_of(name: str, label: str = "") -> Case:
    """A method's plain case, or the one with a label."""
    return next(case for case in CASES if (case.name, case.label) == (name, label))


def played(name: str, kind: type[Kind], label: str = "") -> Kind:
    """A method's oracle at the end of the schedule."""
    oracle = play_both(case_of(name, label))[1].oracle
    assert isinstance(oracle, kind)
    return oracle
