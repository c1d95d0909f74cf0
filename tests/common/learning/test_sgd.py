"""The training loop does what the same loop written out does, bit for bit, and nothing beside it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pfl_common.learning import sgd
from pfl_common.learning.method import LocalData, Participant, Samples, Settings
from pfl_common.models import Backbone
from pfl_common.randomness import generators
from pfl_common.spec.run import Json, Kind, Task
from pfl_common.tensors.state import State

torch.set_num_threads(1)

TASK = Task(Kind.TRAIN, round=2, rounds=5)


def build_data(count: int, *, site: str = "a", seed: int = 7) -> LocalData:
    """Each sample's first number is its place, so that an order can be read off."""
    noise = torch.randn(count, generator=generators.generator("noise", count))
    part = Samples(torch.stack([torch.arange(float(count)), noise], dim=1), torch.arange(count) % 2)
    return LocalData(part, part, part, classes=2, site=site, seed=seed)


def build(*, norm: bool = False, **settings: Json) -> Participant:
    layers = [nn.BatchNorm1d(2)] if norm else [nn.Identity()]
    participant = Participant(
        Settings(**settings), Backbone(nn.Sequential(*layers, nn.Linear(2, 3)), nn.Linear(3, 2), 3), 2
    )
    generators.initialise(participant, 3)
    return participant


def places(data: LocalData, task: Task = TASK, epoch: int = 0, **how: object) -> list[list[int]]:
    return [x[:, 0].int().tolist() for x, _ in data.batches(task, epoch, **how)]


def run(participant: Participant, data: LocalData, **how: object) -> float:
    return sgd.train(
        participant,
        how.pop("parameters", participant.parameters()),
        lambda x, y: cross_entropy(participant(x), y),
        data=data,
        task=TASK,
        **how,
    )


def by_hand(
    participant: Participant, batches: list[list[tuple[Tensor, Tensor]]], momentum: float, decay: float
) -> float:
    """SGD as the textbook writes it: v = m v + g, p = p - lr v; the mean loss of the last epoch."""
    memory: dict[str, Tensor] = {}
    losses: list[Tensor] = []
    for epoch in batches:
        losses = []
        for x, y in epoch:
            loss = cross_entropy(participant(x), y)
            gradients = torch.autograd.grad(loss, list(participant.parameters()))
            for (name, p), g in zip(participant.named_parameters(), gradients, strict=True):
                step = g.add(p.detach(), alpha=decay)
                memory[name] = memory[name].mul(momentum).add(step) if name in memory else step
                with torch.no_grad():
                    p.add_(memory[name], alpha=-participant.settings.lr)
            losses.append(loss.detach().double() * len(y))
    return float(sum(losses) / sum(len(y) for _, y in batches[-1]))


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_it_equals_the_loop_written_out(momentum: float, decay: float) -> None:
    """Two epochs of batches of three, three and one, to the bit."""
    settings = {"epochs": 2, "batch": 3, "lr": 0.05, "momentum": momentum, "weight_decay": decay}
    one, two, data = build(**settings), build(**settings), build_data(7)

    loss = run(one, data)
    expected = by_hand(two, [list(data.batches(TASK, epoch, size=3)) for epoch in (0, 1)], momentum, decay)

    assert expected == loss
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters(), strict=True))


def test_only_the_chosen_parameters_move() -> None:
    """The rest keeps its bits, takes no gradient in the loop, and is as trainable afterwards as before."""
    participant, data, seen = build(lr=0.5), build_data(4), []
    participant.encoder[1].bias.requires_grad_(False)
    before = State.of(participant)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        seen.append({name for name, p in participant.named_parameters() if p.requires_grad})
        return cross_entropy(participant(x), y)

    sgd.train(participant, participant.head.parameters(), loss, data=data, task=TASK)

    moved = {name for name, value in before.items() if not torch.equal(value, participant.state_dict()[name])}
    assert {"head.weight", "head.bias"} == moved
    assert [{"head.weight", "head.bias"}] == seen
    assert ["encoder.1.bias"] == [name for name, p in participant.named_parameters() if not p.requires_grad]
    assert all(p.grad is None for p in participant.parameters())


def test_a_frozen_parameter_that_is_chosen_moves() -> None:
    """Choosing it is what counts; afterwards it is frozen again."""
    participant = build(lr=0.5)
    participant.head.requires_grad_(False)
    before = participant.head.weight.detach().clone()

    run(participant, build_data(4), parameters=participant.head.parameters())

    assert not torch.equal(before, participant.head.weight)
    assert not participant.head.weight.requires_grad


def test_gradients_are_switched_back_after_an_error() -> None:
    """A loss that fails leaves the model as it was."""
    participant = build()

    def fail(x: Tensor, y: Tensor) -> Tensor:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        sgd.train(participant, participant.head.parameters(), fail, data=build_data(4), task=TASK)
    assert all(p.requires_grad for p in participant.parameters())


def test_momentum_starts_empty_in_every_call() -> None:
    """A second call moves as the first call of a fresh loop would."""
    one, two = build(momentum=0.9, lr=0.1), build(momentum=0.9, lr=0.1)
    data = build_data(4)
    run(one, data)
    for name, value in State.of(one).items():
        two.state_dict()[name].copy_(value)
    run(one, data, first_epoch=1)
    run(two, data, first_epoch=1)

    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters(), strict=True))


def test_a_second_loop_sees_orders_of_its_own() -> None:
    """`first_epoch` numbers the shuffles: epochs 0 and 1 in one call, or in two, see the same batches."""
    one, two, data = build(epochs=2, batch=2, momentum=0.0), build(batch=2, momentum=0.0), build_data(6)
    run(one, data)
    run(two, data)
    run(two, data, first_epoch=1)

    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters(), strict=True))


def test_a_number_of_epochs_of_its_own() -> None:
    """A method with two loops says how long each is; none at all changes nothing and has no loss."""
    participant, counted = build(epochs=5), []
    participant.progress = counted.append

    run(participant, build_data(4), epochs=2)
    loss = run(participant, build_data(4), epochs=0)

    assert [4, 4] == counted
    assert math.isnan(loss)


def test_a_last_batch_of_one_is_skipped_where_there_is_batch_norm() -> None:
    """The variance of one sample is not defined; without batch norm the sample counts."""
    for norm, expected in ((True, [3, 3]), (False, [3, 3, 1])):
        participant, counted = build(norm=norm, batch=3, tail="keep"), []
        participant.progress = counted.append
        run(participant, build_data(7))

        assert expected == counted


def test_a_site_with_one_sample_and_batch_norm_trains_on_nothing() -> None:
    """It keeps its model, and says that there is no loss."""
    participant = build(norm=True)
    before = State.of(participant)

    assert math.isnan(run(participant, build_data(1)))
    assert all(torch.equal(value, participant.state_dict()[name]) for name, value in before.items())


def test_the_loop_trains_in_train_mode() -> None:
    """Batch norm normalises by the batch and moves its statistics, whatever mode the model was in."""
    participant = build(norm=True).eval()
    run(participant, build_data(4))

    assert 1 == participant.encoder[0].num_batches_tracked
    assert participant.training


def test_the_loss_is_the_mean_over_samples_of_the_last_epoch() -> None:
    """Batches of three and one with losses 1 and 5: (3*1 + 1*5) / 4 = 2, not 3."""
    participant = build(batch=3, lr=1e-300)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return 0 * participant(x).sum() + (1.0 if len(y) == 3 else 5.0)

    assert 2.0 == sgd.train(
        participant, participant.parameters(), loss, data=build_data(4), task=TASK, epochs=2
    )


def test_every_sample_comes_once_in_every_epoch() -> None:
    """In batches of the size asked for; the last one has what is left."""
    batches = places(build_data(7), size=3)

    assert [3, 3, 1] == [len(batch) for batch in batches]
    assert list(range(7)) == sorted(place for batch in batches for place in batch)


@pytest.mark.parametrize(("count", "expected"), [(7, [3, 3]), (6, [3, 3]), (3, [3]), (2, [2]), (1, [1])])
def test_dropping_the_last_batch(count: int, expected: list[int]) -> None:
    """A batch that is not full is left out, but a site that has less than one batch uses all it has."""
    assert expected == [len(batch) for batch in places(build_data(count), size=3, tail="drop")]


@pytest.mark.parametrize(
    ("count", "expected"), [(8, [4, 4]), (9, [4, 5]), (10, [4, 4, 2]), (11, [4, 4, 3]), (5, [5]), (1, [1])]
)
def test_folding_the_last_batch(count: int, expected: list[int]) -> None:
    """One sample of four joins the batch before it; half a batch and more stay one of their own."""
    batches = places(build_data(count), size=4, tail="fold")

    assert expected == [len(batch) for batch in batches]
    assert list(range(count)) == sorted(place for batch in batches for place in batch)


@pytest.mark.parametrize(
    ("norm", "settings", "expected"),
    [
        (True, {}, [4, 5]),
        (False, {}, [4, 4, 1]),
        (True, {"tail": "keep"}, [4, 4]),  # a batch of one has no variance
        (False, {"tail": "keep"}, [4, 4, 1]),
        (False, {"tail": "drop"}, [4, 4]),
        (False, {"drop_last": True}, [4, 4]),
        (True, {"drop_last": True, "tail": "fold"}, [4, 4]),
    ],
)
def test_what_becomes_of_the_last_batch(norm: bool, settings: dict[str, Json], expected: list[int]) -> None:
    """Nine samples in batches of four: each value of `tail`, with batch norm and without; `drop_last` wins."""
    participant, counted = build(norm=norm, batch=4, **settings), []
    participant.progress = counted.append
    run(participant, build_data(9))

    assert expected == counted


def test_orders_are_keyed_by_site_round_epoch_and_seed() -> None:
    """The same words give the same order, each other word another one."""
    data, later = build_data(50), Task(Kind.TRAIN, round=3, rounds=5)
    orders = [
        places(data, size=50),
        places(data, epoch=1, size=50),
        places(data, later, size=50),
        places(build_data(50, site="b"), size=50),
        places(build_data(50, seed=8), size=50),
    ]

    assert orders[0] == places(
        build_data(50), Task(Kind.TRAIN, round=2, rounds=9, attempt=2, since=1), size=50
    )
    assert 5 == len({str(order) for order in orders})
    assert list(range(50)) != orders[0][0]


def test_training_leaves_the_global_generator_alone() -> None:
    """Shuffling draws from words only."""
    participant, data = build(), build_data(4)
    before = torch.get_rng_state()
    run(participant, data)

    assert torch.equal(before, torch.get_rng_state())


def test_images_become_numbers_between_zero_and_one() -> None:
    """They are kept as bytes; arrays are taken as they are."""
    images = Samples(torch.tensor([[0, 51, 255]], dtype=torch.uint8), torch.tensor([0]))

    assert torch.equal(torch.tensor([[0.0, 0.2, 1.0]]), images.take(torch.tensor([0]))[0])
    assert [[4.0, 3.0]] == Samples(torch.tensor([[4.0, 3.0]]), torch.tensor([0])).take(torch.tensor([0]))[
        0
    ].tolist()


def test_samples_in_their_own_order() -> None:
    """For evaluation: all of them, none left out."""
    batches = [x[:, 0].tolist() for x, _ in build_data(5).train.batches(2)]

    assert [[0.0, 1.0], [2.0, 3.0], [4.0]] == batches


def test_counts_are_over_the_whole_training_set() -> None:
    """A class the site does not have counts 0, and dropping batches changes nothing."""
    part = Samples(torch.zeros(4, 2), torch.tensor([2, 0, 2, 2]))

    assert [1, 0, 3, 0] == LocalData(part, part, part, classes=4, site="a", seed=1).counts.tolist()


def test_each_group_of_parameters_has_numbers_of_its_own() -> None:
    """One group stands still at rate 0, the other takes one step at ten times the settings' rate."""
    moved, plain, data = build(batch=8, momentum=0.0), build(batch=8, momentum=0.0), build_data(8)
    groups = [
        {"params": list(moved.encoder.parameters()), "lr": 0.0},
        {"params": list(moved.get_submodule("head").parameters()), "lr": 1.0},
    ]
    before = State.of(moved).apply(torch.clone)

    run(moved, data, parameters=groups)
    run(plain, data)

    assert all(
        torch.equal(value, before[f"encoder.{name}"]) for name, value in moved.encoder.state_dict().items()
    )
    for name in ("head.weight", "head.bias"):
        way, ours = plain.state_dict()[name] - before[name], moved.state_dict()[name] - before[name]
        assert torch.allclose(ours, 10 * way, rtol=1e-4, atol=1e-7)


def test_a_step_of_one_s_own_sees_the_same_batches() -> None:
    """`repeat` hands on what `train` would take, cut as asked, and gives the last epoch's mean over samples."""
    participant, data, seen = build(epochs=2, batch=3), build_data(7), []

    def step(x: Tensor, y: Tensor) -> Tensor:
        seen.append(x[:, 0].int().tolist())
        assert participant.training
        return torch.tensor(float(len(y)))

    mean = sgd.repeat(participant, step, data=data, task=TASK)
    assert places(data, size=3) + places(data, epoch=1, size=3) == seen
    assert (9 + 9 + 1) / 7 == mean

    seen.clear()
    sgd.repeat(participant, step, data=data, task=TASK, epochs=1, first_epoch=5, size=4, tail="drop")
    assert places(data, epoch=5, size=4, tail="drop") == seen


def test_what_was_switched_off_is_as_it_was() -> None:
    """A parameter that took no gradients before takes none afterwards, and nothing keeps a gradient."""
    participant = build()
    frozen = participant.get_submodule("head").bias
    frozen.requires_grad_(False)
    with sgd.only(participant, [frozen]):
        assert [frozen] == [p for p in participant.parameters() if p.requires_grad]
    assert not frozen.requires_grad
    assert all(p.requires_grad for p in participant.parameters() if p is not frozen)
