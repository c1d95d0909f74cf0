"""Per-FedAvg: the gradient is taken at a trial step and applied where it began; by hand on a model of one number."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pfl_client.trainer import tasks
from pfl_common.errors import SettingError, TooFewSamples
from pfl_common.learning.method import LocalData, Samples
from pfl_common.methods import load, perfedavg
from pfl_common.spec.run import Json, Kind
from pfl_common.tensors.state import State
from tests.common.methods.one_number import bowl, build_number, build_samples, download, read, slide
from tests.common.methods.toy import ask, build_client, build_data, equal

torch.set_num_threads(1)


def in_order(*labels: int, epoch: int = 0) -> LocalData:
    """Samples with x = 1 whose labels come in this order when they are shuffled."""
    places = build_samples(tuple(range(len(labels))))
    (_, order), *_ = places.batches(ask(), epoch, size=len(labels))
    put = torch.empty(len(labels), dtype=torch.int64)
    put[order] = torch.tensor(labels)
    return build_samples(tuple(put.tolist()))


@pytest.fixture
def _bowl(monkeypatch: pytest.MonkeyPatch) -> None:
    """F(w) = (w − b)²/2, where the labels say b."""
    monkeypatch.setattr(perfedavg, "cross_entropy", bowl)


@pytest.mark.golden("perfedavg", item=11)
@pytest.mark.usefixtures("_bowl")
def test_the_gradient_of_the_trial_step_moves_the_model_it_began_from() -> None:
    """w' = 1 − 0.1 · 1 = 0.9; w = 1 − 0.05 (0.9 − 2) = 1.055.

    Applied to w' it would be 0.955, taken at w 1.05, with both batches the other way round 0.945.
    """
    client = build_number(perfedavg, 1.0, batch=1, alpha=0.1, beta=0.05)

    told = client.learn(in_order(0, 2), ask())

    assert pytest.approx(1.055, abs=1e-5) == read(client)
    assert {"loss": pytest.approx(1.1**2 / 2)} == told, "the loss is that at w' on the second batch"


@pytest.mark.usefixtures("_bowl")
@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        # w' = 1 - alpha, w = 1 - beta (w' - 2)
        ({"lr": 0.2}, 1 + 0.2 * 1.2),
        ({"lr": 0.2, "alpha": 0.5}, 1 + 0.2 * 1.5),
        ({"lr": 0.2, "beta": 0.5}, 1 + 0.5 * 1.2),
        ({"lr": 0.2, "alpha": 0.0}, 1 + 0.2),
    ],
)
def test_rates_not_given_are_the_learning_rate(rates: dict[str, Json], expected: float) -> None:
    """Of the trial step and of the one that is kept; without a trial step it is plain SGD on half the samples."""
    client = build_number(perfedavg, 1.0, batch=1, **rates)
    client.learn(in_order(0, 2), ask())
    assert pytest.approx(expected) == read(client)


@pytest.mark.parametrize(
    ("settings", "epochs", "steps"),
    [
        ({}, [0], 2),
        ({"passes": 2}, [0, 1], 4),
        ({"epochs": 3}, [0, 1, 2], 6),
        ({"epochs": 2, "passes": 2}, [0, 1, 2, 3], 8),
    ],
)
def test_how_often_a_round_goes_over_the_data(
    settings: dict[str, Json], epochs: list[int], steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five samples in pairs of one make two steps; the fifth is left over. The slope is −1: each step adds 0.1."""
    monkeypatch.setattr(perfedavg, "cross_entropy", slide)
    shuffles, batches = [], LocalData.batches
    monkeypatch.setattr(
        LocalData, "batches", lambda *words, **named: shuffles.append(words[2]) or batches(*words, **named)
    )
    client, seen = build_number(perfedavg, batch=1, **settings), []
    client.progress = seen.append
    client.learn(build_samples((0,) * 5), ask())

    assert epochs == shuffles
    assert pytest.approx(0.1 * steps) == read(client)
    assert [2] * steps == seen


@pytest.mark.usefixtures("_bowl")
def test_both_batches_are_of_b_samples_and_disjoint() -> None:
    """B = 2: w' from the labels 0 and 2 (mean 1), then towards 4 and 6 (mean 5); w = 0 goes to 0.1, 0 + 0.1 · 4.9."""
    client = build_number(perfedavg, 0.0, batch=2)
    client.learn(in_order(0, 2, 4, 6), ask())
    assert pytest.approx(0.49) == read(client)


@pytest.mark.parametrize(("count", "takes_part"), [(6, True), (5, False), (1, False)])
def test_a_site_needs_two_batches(count: int, takes_part: bool) -> None:
    """With B = 3 six samples are enough; with fewer it says so, and nothing has moved."""
    client, data = build_client(perfedavg, batch=3), build_data(labels=(0,) * count)
    before = State.of(client)
    if takes_part:
        client.learn(data, ask())
        assert not equal(before, State.of(client))
        return
    with pytest.raises(TooFewSamples) as caught:
        client.learn(data, ask())
    assert f"{count} training samples" in caught.value.seen
    for fact in ("at least 6", "batches of 3"):
        assert fact in caught.value.expected
    assert "smaller batch" in caught.value.advice
    assert equal(before, State.of(client))


def test_a_site_predicts_after_one_step_on_training_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the received 1, one step of alpha on B training samples of b = 0: 0.5. The test part says b = 2."""
    monkeypatch.setattr(perfedavg, "cross_entropy", bowl)
    client = build_number(perfedavg, batch=2, lr=0.1, alpha=0.5)
    train, test = build_samples((0, 0, 0)), build_samples((2, 2, 2))
    data = LocalData(train.train, test.train, test.train, classes=3, site="a", seed=7)

    tasks.prepare(client, data, download(1.0), ask(2, kind=Kind.EVALUATE, since=1))

    assert pytest.approx(0.5) == read(client)


def test_test_samples_are_never_learnt_from() -> None:
    """With no number in the validation and test parts the model is the same, to the last bit."""
    ends = []
    for value in (0.5, float("nan")):
        data, client = build_data(), build_client(perfedavg, batch=2)
        other = Samples(torch.full_like(data.test.x, value), data.test.y)
        data = LocalData(data.train, other, other, classes=3, site="a", seed=7)
        client.learn(data, ask())
        client.personalise(data, ask())
        ends.append(State.of(client))
    assert equal(*ends)


@pytest.mark.usefixtures("_bowl")
@pytest.mark.parametrize(("batch", "expected"), [(1, 1.0), (2, 1.5), (3, 2.0), (9, 2.0)])
def test_the_batch_is_the_first_of_the_first_shuffle(batch: int, expected: float) -> None:
    """Labels 1, 2, 3 in this order: a step of 1 from 0 goes to the mean of the first B, of all if there are fewer."""
    client = build_number(perfedavg, batch=batch, alpha=1.0)
    client.personalise(in_order(1, 2, 3), ask())
    assert pytest.approx(expected) == read(client)


def test_the_step_before_predicting_is_in_train_mode() -> None:
    """Batch norm takes the batch's own statistics and follows them; one sample has none, and no step is taken."""
    client, one = build_client(perfedavg, norm=True), build_data(labels=(1,))
    before = State.of(client)
    client.eval()
    client.personalise(one, ask())
    assert equal(before, State.of(client))

    client.personalise(build_data(), ask())
    assert 1 == client.state_dict()["encoder.1.1.num_batches_tracked"]
    assert not torch.equal(before["encoder.0.weight"], client.state_dict()["encoder.0.weight"])


def test_what_the_step_is_worth_is_told_without_a_trace() -> None:
    """Both samples are of class 2; the head says 0 before a large step and 2 after it."""
    client, data = build_client(perfedavg, alpha=50.0, batch=2, lr=1e-9), build_data(labels=(2,) * 4)
    torch.nn.init.zeros_(client.head.weight)
    with torch.no_grad():
        client.head.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
    before = State.of(client)

    told = tasks.diagnose(client, data, ask())

    assert (0.0, 1.0) == (told["accuracy/before"], told["accuracy/after"])
    assert equal(before, State.of(client))


def test_a_site_without_test_samples_tells_nothing_of_them() -> None:
    """There is no share of nothing."""
    data = build_data()
    none = Samples(data.test.x[:0], data.test.y[:0])
    data = LocalData(data.train, none, none, classes=3, site="a", seed=7)
    assert {} == build_client(perfedavg, batch=2).diagnose(data, ask())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"momentum": 0.5}, "0 alone: the steps of this method are plain"),
        ({"weight_decay": 0.1}, "the steps of this method are plain"),
        ({"tail": "keep"}, "'drop'"),
        ({"drop_last": False}, "True"),
        ({"passes": 3}, "a whole number from 1 to 2"),
    ],
)
def test_what_has_no_meaning_here_is_refused(given: dict[str, Json], words: str) -> None:
    """Rather than read and ignored."""
    with pytest.raises(SettingError) as caught:
        load("perfedavg").settle(given)
    assert words in caught.value.expected


def test_the_gradient_has_no_second_derivative() -> None:
    """On F = w⁴/4 the step is −beta w'³ and not −beta w'³ (1 − 3 alpha w²)."""

    def fourth(scores: Tensor, labels: Tensor) -> Tensor:
        return (scores**4).mean() / 4

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(perfedavg, "cross_entropy", fourth)
        client = build_number(perfedavg, 2.0, batch=1, alpha=0.1, beta=0.5)
        client.learn(build_samples((0, 0)), ask())
    assert pytest.approx(2.0 - 0.5 * (2 - 0.1 * 8) ** 3) == read(client)
