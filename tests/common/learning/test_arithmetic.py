"""Other types of numbers, and batches in parts: what changes by them, and what does not."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from pfl_common import methods
from pfl_common.learning import arithmetic
from pfl_common.learning.arithmetic import Arithmetic, in_double, in_float32, known, widen
from pfl_common.learning.method import LocalData, Participant, Samples
from pfl_common.randomness import generators
from pfl_common.spec.rules import Precision
from pfl_common.spec.run import Json, Kind, Model, RunSpec, Task
from pfl_common.tensors.state import State
from pfl_common.tensors.update import flatten

torch.set_num_threads(1)

TASK = Task(Kind.TRAIN, round=1, rounds=3)
SHAPE, CLASSES = (1, 6, 6), ("cat", "dog", "owl")
NOT_DIVIDED: dict[str, tuple[dict[str, Json], dict[str, Json]]] = {
    "dualfed": ({"proj_bn": False}, {"proj_bn": False, "lambda": 0.0}),
    "fedcp": ({}, {"use_gfm": False, "policy": "softmax"}),
    "fedphp": ({}, {"variant": "original"}),
    "fedpick": ({}, {"use_pfsm": False}),
    "gpfl": ({"mlg": "batch_frob", "lambda": 1.0}, {}),
}
"""Settings with which a method compares the samples of a batch or draws for all of them, and such without."""

CALM: dict[str, dict[str, Json]] = {"dualfed": {"proj_bn": False}}
"""Without batch norm, which divides by the spread of six samples that are nearly alike: it would enlarge rounding."""


def build(method: str, precision: Precision = "float32", **settings: Json) -> Participant:
    """A participant of a small run, with its first values."""
    spec = RunSpec(
        id="run-1",
        method=method,
        settings={"batch": 6, **settings},
        model=Model("mlp", SHAPE, CLASSES),
        rounds=3,
        seed=7,
        roster=("a",),
        precision=precision,
        repeatable=precision == "float32",
    )
    participant = methods.build_participant(spec)
    generators.initialise(participant, spec.seed)
    return participant


def build_data(count: int = 21) -> LocalData:
    """Noise, and labels that can be read off it."""
    draw = generators.generator("noise", count)
    x = torch.rand(count, *SHAPE, generator=draw)
    part = Samples(x, x.flatten(1)[:, :3].argmax(1))
    return LocalData(part, part, part, classes=3, site="a", seed=7)


def train(participant: Participant, *, parts: int = 1) -> tuple[State, float]:
    """One round from the first values: everything the participant is afterwards, and its loss."""
    participant.arithmetic.parts = parts
    data = build_data()
    server = methods.load(type(participant).__module__.rpartition(".")[2])
    if hasattr(participant, "_received") and server.name == "fedphp":
        participant.receive(State.of(participant, participant.travels("train")), TASK)
    with generators.scope(7, "a", 1, "train"):
        told = participant.learn(data, TASK)
    flatten(participant.report(data, TASK))
    return State.of(participant), told["loss"]


def gap(one: State, other: State) -> float:
    """The largest difference of two states' numbers."""
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in one)


@pytest.mark.parametrize("method", methods.names())
def test_every_method_trains_in_bfloat16(method: str) -> None:
    """Its loss is a number, what it learns is another thing than in float32, and what it keeps and sends is float32."""
    wide, _ = train(build(method, lr=0.01, **CALM.get(method, {})))
    half, loss = train(build(method, "bfloat16", lr=0.01, **CALM.get(method, {})))
    assert 0 < loss < 1e3
    numbers = [name for name, value in wide.items() if value.is_floating_point()]
    assert 0 < gap(wide.only(numbers), half.only(numbers)) < 0.05, "rounding, not another training"
    assert not {value.dtype for value in half.values()} & {torch.bfloat16, torch.float16, torch.float64}


@pytest.mark.parametrize("method", ["dualfed", "fedavg", "pfedme", "perfedavg"])
def test_float16_scales_its_gradients(method: str) -> None:
    """Gradients far below the smallest number of float16 move the model all the same."""
    wide, _ = train(build(method, lr=0.01, **CALM.get(method, {})))
    half, loss = train(build(method, "float16", lr=0.01, **CALM.get(method, {})))
    assert 0 < loss < 1e3
    assert 0 < gap(wide, half) < 0.05
    weight = torch.ones(4, requires_grad=True)
    tiny, slopes = Arithmetic("float16").gradients(
        lambda x, y: (x @ weight.half()).float().mean() * 1e-8,
        [weight],
        torch.ones(2, 4).half(),
        torch.ones(2),
    )
    assert torch.full((4,), 1e-8).allclose(known(slopes)[0], rtol=1e-2)
    assert tiny.dtype == torch.float32


def test_a_gradient_that_overflows_is_taken_again() -> None:
    """With a smaller scale, so that no batch is lost; a loss that is infinite itself is let through."""
    weight = torch.ones(2, requires_grad=True)
    work = Arithmetic("float16")

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return (weight.half() * x).float().sum()

    _, slopes = work.gradients(loss, [weight], torch.full((1, 2), 100.0).half(), torch.ones(1))
    assert [100.0, 100.0] == known(slopes)[0].tolist()
    assert work._scale < arithmetic.FIRST_SCALE
    work.begin()
    assert arithmetic.FIRST_SCALE == work._scale
    _, slopes = work.gradients(loss, [weight], torch.full((1, 2), torch.inf).half(), torch.ones(1))
    assert not known(slopes)[0].isfinite().all()


@pytest.mark.parametrize("method", methods.names())
def test_halves_add_up_where_a_method_says_so(method: str) -> None:
    """Two halves give what the whole batch gives, but for rounding; twice the same bits; and the same loss."""
    settings = NOT_DIVIDED.get(method, ({}, {}))[1]
    assert "" == build(method, **settings).whole_batch
    whole, loss = train(build(method, **settings))
    halves, other = train(build(method, **settings), parts=2)
    again, _ = train(build(method, **settings), parts=2)
    assert loss == pytest.approx(other, rel=1e-5)
    assert all(halves[name].equal(again[name]) for name in halves)
    exact = {name for name in whole if not name.startswith("mask")}
    assert gap(whole.only(exact), halves.only(exact)) < 2e-6


@pytest.mark.parametrize("method", NOT_DIVIDED)
def test_halves_do_not_add_up_where_a_method_says_so(method: str) -> None:
    """Why is said, and it is true: the halves give another model."""
    settings = NOT_DIVIDED[method][0]
    participant = build(method, **settings)
    assert "batch" in participant.whole_batch
    whole, _ = train(participant)
    halves, _ = train(build(method, **settings), parts=2)
    assert gap(whole, halves) > 2e-6


def test_a_parameter_without_a_part_in_the_loss_has_no_gradient() -> None:
    """An optimizer leaves it alone, penalties included; a method that needs it says so."""
    used, idle = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    for work in (Arithmetic(), Arithmetic(parts=2), Arithmetic("float16")):
        _, slopes = work.gradients(
            lambda x, y: (x * used).mean(), [used, idle], torch.ones(2, 1), torch.ones(2)
        )
        assert slopes[1] is None
    with pytest.raises(RuntimeError, match="does not depend on 1"):
        known(slopes)


def test_parts_of_a_loss_stay_in_float32() -> None:
    """Under autocast they get float32 and compute in it; without it they get what they are given."""
    seen: list[torch.dtype] = []

    @in_float32
    def look(first: Tensor, labels: Tensor, *, power: int) -> Tensor:
        seen.extend([first.dtype, labels.dtype, (first @ first.T).dtype])
        return first**power

    x, y = torch.ones(2, 2), torch.ones(2, dtype=torch.int64)
    with Arithmetic("bfloat16").autocast(x.device):
        look(x @ x, y, power=2)
    look(x.double(), y, power=2)
    float32, float64, whole = torch.float32, torch.float64, torch.int64
    assert [float32, whole, float32, float64, whole, float64] == seen
    assert [torch.float32, torch.float32, torch.float64, torch.int64] == [
        widen(one).dtype for one in (x.half(), x, x.double(), y)
    ]


def test_a_device_without_float64_is_never_asked_for_it() -> None:
    """Its numbers come to the processor first."""
    asked: list[str] = []

    def note(word: str, answer: Any) -> Any:
        asked.append(word)
        return answer

    there = torch.ones(2)
    apple: Any = SimpleNamespace(device=SimpleNamespace(type="mps"), cpu=lambda: note("cpu", there))
    assert torch.float64 == in_double(apple).dtype
    assert ["cpu"] == asked
    assert in_double(torch.ones(2)).equal(torch.ones(2, dtype=torch.float64))


def test_without_another_precision_nothing_is_cast() -> None:
    """The default is the code of old: no context is entered, and a specification does not name it."""
    with Arithmetic().autocast(torch.device("cpu")):
        assert not torch.is_autocast_enabled("cpu")
    spec = RunSpec("run-1", "fedavg", {}, Model("mlp", SHAPE, CLASSES), ("a",), rounds=1, seed=0)
    assert "precision" not in spec.to_json()
    assert '"precision":"bfloat16"' in replace(spec, precision="bfloat16").to_json()


WIDE_ELSEWHERE = {
    "learning/arithmetic.py: in_double",
    # The loop's own sum, and an analysis after the run: on the processor.
    "learning/sgd.py: repeat",
    "learning/analysis.py: _centred",
    # Chance is drawn on the processor.
    "learning/augmentation.py: draw",
    # At the coordinator, which computes on its processor.
    "learning/mask_overlaps.py: overlaps",
    "learning/single_models.py: squared_distances",
    "learning/single_models.py: _add",
    "methods/fedamp.py: start",
    "methods/fedproto.py: close",
    # Drawn on the processor, and made float32 before they go to another device.
    "methods/fedcp.py: _draw",
    "methods/fedetf.py: reset_parameters",
    "methods/fedpick.py: draw_noise",
    "methods/spherefed.py: reset_parameters",
}
"""Functions that ask for float64 by themselves, where no device without it can be."""


def ask_for_double(tree: ast.AST) -> bool:
    """Whether some code has `.double()` or `float64` in it."""
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("double", "float64") for node in ast.walk(tree)
    )


def test_training_asks_for_float64_in_one_place() -> None:
    """A Mac's graphics part has none: whoever needs more digits takes `in_double`."""
    found = set()
    for folder in ("learning", "methods"):
        for file in sorted((Path(arithmetic.__file__).parents[1] / folder).glob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.FunctionDef) and ask_for_double(node):
                    found.add(f"{folder}/{file.name}: {node.name}")
    assert WIDE_ELSEWHERE == found
