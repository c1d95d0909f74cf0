"""FedPHP, three methods under one name; each by hand on a model of one number, their comparison on worked examples."""

from __future__ import annotations

import dataclasses
from math import log

import pytest
import torch
from torch import nn

from pfl_common.errors import SettingError
from pfl_common.learning.method import LocalData, Participant, Samples
from pfl_common.methods import fedphp, load
from pfl_common.models import Backbone
from pfl_common.spec.participation import Participation
from pfl_common.spec.run import Json
from pfl_common.tensors.state import State
from tests.common.methods.one_number import build_number, build_samples, download, read, slide
from tests.common.methods.toy import ask, build_client, build_data, build_spec, equal

torch.set_num_threads(1)

OWN = "own.encoder"


@pytest.fixture
def _slope(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cross entropy's place is taken by a slope of −1, and no teacher pulls: a round adds 0.1."""
    monkeypatch.setattr(fedphp, "cross_entropy", slide)
    monkeypatch.setattr(fedphp, "mmd2", lambda first, second, widths: 0 * first.sum())


def round_of(client: Participant, number: int, down: float, *, since: int | None = None) -> dict[str, float]:
    """One round of five."""
    task = ask(number, since=number - 1 if since is None else since)
    client.receive(download(down), task)
    return client.learn(build_samples(), task)


# -- blend


@pytest.mark.usefixtures("_slope")
def test_one_s_own_last_model_is_mixed_into_the_received_one() -> None:
    """Round 1 from 2: w_i = 2.1. Round 3 of 5: mu_t = 0.9 · 2/5 = 0.36, w = 0.64 · 7 + 0.36 · 2.1 = 5.236.

    Rounds counted from 1 would give mu_t = 0.54, mixing the other way round 3.864.
    """
    client = build_number(fedphp, 99.0, **{"lambda": 0.0})
    assert 0.0 == round_of(client, 1, 2.0)["mu"]
    assert (pytest.approx(2.1), pytest.approx(2.1)) == (read(client), read(client, OWN))

    client.receive(download(7.0), ask(3, since=1))
    assert pytest.approx(5.236) == read(client), "it is measured as soon as it is mixed"

    assert pytest.approx(0.36) == client.learn(build_samples(), ask(3, since=1))["mu"]
    assert (pytest.approx(5.336), pytest.approx(5.336)) == (read(client), read(client, OWN))


@pytest.mark.parametrize(
    ("mu", "expected"), [(None, 0.28 * 7 + 0.72 * 2), (0.5, 0.6 * 7 + 0.4 * 2), (0.0, 7.0)]
)
def test_the_share_of_one_s_own_in_the_last_round(mu: float | None, expected: float) -> None:
    """mu (5 − 1)/5: 0.72 with the 0.9 that is the default."""
    client = build_number(fedphp, 2.0, **({} if mu is None else {"mu": mu}))
    client.receive(download(7.0), ask(5, since=3))
    assert pytest.approx(expected) == read(client)


def test_a_new_site_has_nothing_to_mix_in() -> None:
    """Whenever it comes: its first values are nobody's model."""
    client = build_number(fedphp, 2.0)
    client.receive(download(7.0), ask(5, since=0))
    assert 7.0 == read(client)


def test_statistics_are_not_mixed() -> None:
    """Parameters are, those of batch norm too; what becomes one's own after training is all of the model."""
    client = build_client(fedphp, norm=True, bn_policy="share_all")
    down = State.of(client, client.travels("train")).apply(lambda value: value + 10)
    client.receive(down, ask(5, since=1))
    now, mean, scale = State.of(client), "encoder.1.1.running_mean", "encoder.1.1.weight"

    assert torch.equal(down[mean], now[mean])
    torch.testing.assert_close(0.28 * down[scale] + 0.72 * now[f"own.{scale}"], now[scale])

    client.learn(build_data(), ask(5, since=1))
    own = State.of(client.own)
    assert equal(own, State.of(client, own))


@pytest.mark.golden("fedphp", item=17)
@pytest.mark.parametrize(("number", "expected"), [(1, True), (2, False)])
def test_the_teacher_is_the_encoder_as_received(number: int, expected: bool) -> None:
    """In round 1 nothing is mixed in, so the two are the same, with batch norm too: the first step's pull is 0.

    In evaluation mode the teacher would see other statistics than the model in training.
    """
    client = build_client(fedphp, norm=True)
    down = State.of(client, client.travels("train"))
    with torch.no_grad():
        client.own["encoder"][0].weight.add_(1.0)
    client.eval()  # as it is left by a measurement
    client.receive(down, ask(number, since=number - 1))
    assert expected == (0.0 == client.learn(build_data(), ask(number, since=number - 1))["part/teacher"])
    assert all(value.isfinite().all() for value in client.parameters()), (
        "where they are equal too there is a gradient"
    )


@pytest.mark.usefixtures("_slope")
def test_the_teacher_does_not_learn_nor_stay() -> None:
    """Two epochs on: it still is what came; it is in no vault and in no parcel."""
    client = build_number(fedphp, epochs=3)
    client.receive(download(2.0), ask())
    (teacher,) = client._received
    names = set(client.state_dict())
    client.learn(build_samples((0, 1)), ask())

    assert 2.0 == teacher.weight.item() != read(client)
    assert {"encoder.weight", "own.encoder.weight", "participations"} == names
    assert () == client._received


# -- the comparison with the teacher

H = [[0.0, 0.0, 0.0], [1.0, 2.0, 2.0]]
TAUGHT = [[0.0, 3.0, 4.0], [1.0, 2.0, 2.0]]
"""Features of two samples, and those of the teacher."""


def build_features(taught: list[list[float]], **settings: Json) -> Participant:
    """A site whose encoder makes H of two samples, and whose teacher makes something else of them."""
    config = load("fedphp").settle({"lr": 1e-12, "momentum": 0.0, **settings})
    backbone = Backbone(nn.Linear(2, 3, bias=False), nn.Linear(3, 3, bias=False), 3)
    client = fedphp.Client(config, backbone, 3).double()
    with torch.no_grad():
        client.encoder.weight.copy_(torch.tensor(H).T)
        client.own["encoder"].weight.copy_(torch.tensor(taught).T)
        for head in (client.head, client.own["head"]):
            head.weight.zero_()
    if config.variant == "blend":
        client._received = (client.own["encoder"],)
    return client


def two_samples() -> LocalData:
    """(1, 0) and (0, 1): the columns of an encoder are their features."""
    part = Samples(torch.eye(2, dtype=torch.float64), torch.tensor([0, 1]))
    return LocalData(part, part, part, classes=3, site="a", seed=7)


BY_FEATURES: list[dict[str, Json]] = [{}, {"variant": "lib2024"}, {"variant": "original", "reg": "mmd"}]


@pytest.mark.golden("fedphp", item=2)
@pytest.mark.golden("fedphp", item=17)
@pytest.mark.parametrize("settings", BY_FEATURES, ids=str)
@pytest.mark.parametrize(("taught", "expected"), [(TAUGHT, 0.982417), (H, 0.0)], ids=["apart", "equal"])
def test_features_are_compared_with_the_teachers(
    settings: dict[str, Json], taught: list[list[float]], expected: float
) -> None:
    """MMD² with the kernels' variances 10, 15, 20, 50, over all pairs. Each easy mistake has another value."""
    pull = build_features(taught, **settings).learn(two_samples(), ask())["part/teacher"]

    assert pytest.approx(expected, abs=1e-5) == pull
    assert all(
        abs(pull - wrong) > 1e-3 for wrong in (0.103649, 1.418002, 0.245604, 0.208875, 3.929670, 3.017583)
    )


@pytest.mark.parametrize(("share", "expected"), [(None, 0.01), (0.0, 0.0), (0.5, 0.5), (1.0, 1.0)])
def test_the_comparison_has_its_share_of_the_loss(share: float | None, expected: float) -> None:
    """(1 − lambda) CE + lambda MMD², where a head of zeros has the cross entropy ln 3; lambda is 0.01 by default."""
    client = build_features(TAUGHT, **({} if share is None else {"lambda": share}))
    loss = client.learn(two_samples(), ask())["loss"]
    assert pytest.approx((1 - expected) * log(3) + expected * 0.982417, abs=1e-5) == loss


@pytest.mark.parametrize(
    ("temperature", "expected"), [(None, (0.75, 0.125, 0.125)), (2.0, (36 / 38, 1 / 38, 1 / 38))]
)
def test_probabilities_are_those_of_a_warmed_up_teacher(
    temperature: float | None, expected: tuple[float, ...]
) -> None:
    """Its scores (4 ln 6, 0, 0) over 4 give 6/8, 1/8, 1/8, over 2 they give 36/38 and twice 1/38.

    The site's own scores are (ln 2, 0, 0), with no temperature: −Σ p ln (1/2, 1/4, 1/4). The head's gradient is that
    of the two distributions' difference, alike for both samples.
    """
    settings: dict[str, Json] = {"variant": "original", "lambda": 1.0, "lr": 1.0}
    client = build_features(
        [[1.0, 0.0, 0.0]] * 2, **settings, **({} if temperature is None else {"temperature": temperature})
    )
    with torch.no_grad():
        client.encoder.weight.copy_(torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]))
        client.head.weight[0, 0] = log(2)
        client.own["head"].weight[0, 0] = 4 * log(6)

    told = client.learn(two_samples(), ask())

    entropy = -sum(p * log(q) for p, q in zip(expected, (0.5, 0.25, 0.25), strict=True))
    assert (pytest.approx(entropy), pytest.approx(entropy)) == (told["part/teacher"], told["loss"])
    moved = [log(2) + expected[0] - 0.5, expected[1] - 0.25, expected[2] - 0.25]
    assert pytest.approx(moved) == client.head.weight[:, 0].tolist()


@pytest.mark.parametrize("settings", [{"variant": "lib2024"}, {"variant": "original"}], ids=str)
def test_an_inherited_teacher_is_a_finished_model(settings: dict[str, Json]) -> None:
    """It teaches in evaluation mode: its statistics, made to stand far off, make its features what they are."""
    pulls = []
    for far in (0.0, 5.0):
        client = build_client(fedphp, norm=True, **settings)
        client.receive(State.of(client, client.travels("train")), ask(2, since=1))
        client.own["encoder"][1][1].running_mean.fill_(far)
        pulls.append(client.learn(build_data(), ask(2, since=1))["part/teacher"])
    assert pulls[0] != pulls[1]


# -- original and lib2024


def test_each_part_of_the_loss_is_told() -> None:
    """By itself, over all samples of the round; a site that could not take a step has none."""
    told = build_features(TAUGHT, epochs=2).learn(two_samples(), ask())
    assert pytest.approx({"cross_entropy": log(3), "teacher": 0.982417}, abs=1e-5) == {
        name.removeprefix("part/"): value for name, value in told.items() if name.startswith("part/")
    }

    client, task = build_client(fedphp, norm=True), ask()
    client.receive(State.of(client, client.travels("train")), task)
    assert {"loss", "mu"} == client.learn(build_data(labels=(1,)), task).keys()


@pytest.mark.usefixtures("_slope")
@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        # mu min(1, n/5), where n counts the rounds before.
        ({"variant": "original", "reg": "mmd"}, [0.0, 0.18, 0.36]),
        ({"variant": "original", "reg": "mmd", "mu": 0.5}, [0.0, 0.1, 0.2]),
        ({"variant": "original", "reg": "mmd", "rho": 0.5}, [0.0, 0.36, 0.72]),
        ({"variant": "original", "reg": "mmd", "rho": 0.3}, [0.0, 0.6, 0.9]),
        ({"variant": "original", "reg": "mmd", "rho": 0.1}, [0.0, 0.9, 0.9]),
        # mu t/5: it goes by the round and not by how often the site took part.
        ({"variant": "lib2024"}, [0.18, 0.72, 0.9]),
    ],
    ids=str,
)
def test_the_inherited_model_follows(settings: dict[str, Json], shares: list[float]) -> None:
    """Rounds 1, 4 and 5 from 2, 4 and 8: w is 2.1, 4.1, 8.1, and p ← mu_t p + (1 − mu_t) w, from p = 2."""
    client, inherited, trained = build_number(fedphp, 99.0, **{"lambda": 0.0, **settings}), 2.0, 0
    for (number, down), share in zip(((1, 2.0), (4, 4.0), (5, 8.0)), shares, strict=True):
        told = round_of(client, number, down, since=trained)
        trained, inherited = number, share * inherited + (1 - share) * (down + 0.1)
        assert pytest.approx(share) == told["mu"]
        assert (pytest.approx(down + 0.1), pytest.approx(inherited)) == (read(client), read(client, OWN))

    assert 3 == client.participations


@pytest.mark.parametrize(
    ("variant", "expected"), [("blend", 0.28 * 7 + 0.72 * 2), ("original", 2.0), ("lib2024", 7.0)]
)
def test_which_model_predicts(variant: str, expected: float) -> None:
    """One's own is 2 and 7 comes in round 5: the mixture, the inherited one, or what came."""
    client = build_number(fedphp, 2.0, variant=variant)
    client.receive(download(7.0), ask(5, since=4))
    assert pytest.approx(expected) == client(torch.ones(1, 1, dtype=torch.float64)).item()
    assert 2.0 == read(client, OWN)


@pytest.mark.parametrize("variant", ["original", "lib2024"])
def test_a_new_site_inherits_what_it_receives(variant: str) -> None:
    """At first contact, and only then."""
    client = build_number(fedphp, 9.0, variant=variant)
    client.receive(download(2.0), ask(3, since=0))
    assert (2.0, 2.0) == (read(client), read(client, OWN))
    client.receive(download(3.0), ask(4, since=3))
    assert (3.0, 2.0) == (read(client), read(client, OWN))


def test_statistics_of_an_inherited_model_are_mixed_as_its_parameters() -> None:
    """In round 5 of `lib2024` with mu = 0.5: the mean of both; the counter is the trained model's."""
    client = build_client(fedphp, norm=True, variant="lib2024", mu=0.5)
    mean, task = "encoder.1.1.running_mean", ask(5, since=1)
    client.receive(State.of(client, client.travels("train")), task)
    client.own["encoder"][1][1].running_mean.fill_(8.0)
    client.learn(build_data(), task)
    state = client.state_dict()

    torch.testing.assert_close(4 + state[mean] / 2, state[f"own.{mean}"])
    assert 1 == state["own.encoder.1.1.num_batches_tracked"] == state["encoder.1.1.num_batches_tracked"]


def test_how_often_a_site_took_part_is_kept_and_never_sent() -> None:
    """A whole number in the vault; measuring does not count."""
    client, task = build_client(fedphp), ask()
    client.receive(State.of(client, client.travels("train")), task)
    assert 0 == client.participations
    client.learn(build_data(), task)

    assert (1, torch.int64) == (client.participations.item(), client.participations.dtype)
    assert "participations" in client.stays("train")
    assert "participations" not in client.report(build_data(), task).summed


@pytest.mark.parametrize(
    "given",
    [
        {"reg": "mmd"},
        {"rho": 0.5},
        {"temperature": 2},
        {"variant": "lib2024", "reg": "mmd"},
        {"variant": "lib2024", "rho": 0.5},
        {"variant": "original", "reg": "mmd", "temperature": 2},
    ],
    ids=str,
)
def test_what_a_variant_does_not_have_is_refused(given: dict[str, Json]) -> None:
    """The error names the setting and what it belongs to."""
    with pytest.raises(SettingError, match=f"{list(given)[-1]} was given without") as caught:
        load("fedphp").settle(given)
    beside = "reg = kd" if given.get("variant") == "original" else "variant = original"
    assert f"{list(given)[-1]} beside {beside} only" in caught.value.expected


@pytest.mark.parametrize(
    ("participation", "given", "advice"),
    [
        ("0.5", {"variant": "original"}, "write rho=0.5"),
        ("0.1..1.0", {"variant": "original"}, "write rho=0.55"),
        ("0.5", {"variant": "original", "rho": 0.5}, None),
        ("1", {"variant": "original"}, None),
        ("a,b", {"variant": "original"}, None),
        ("0.5", {}, None),
    ],
)
def test_sites_count_on_how_often_they_are_asked(
    participation: str, given: dict[str, Json], advice: str | None
) -> None:
    """A site cannot know it: where the run asks fewer than all, rho has to be said."""
    spec = dataclasses.replace(build_spec("fedphp", given), participation=Participation.parse(participation))
    if advice is None:
        load("fedphp").build_server(spec)
        return
    with pytest.raises(SettingError) as caught:
        load("fedphp").build_server(spec)
    assert advice == caught.value.advice


def test_a_second_download_brings_another_teacher() -> None:
    """It takes the first one's place."""
    client = build_number(fedphp, 1.0)
    for number, value in ((2, 2.0), (3, 3.0)):
        client.receive(download(value), ask(number, since=1))
    assert [3.0] == [teacher.weight.item() for teacher in client._received]
