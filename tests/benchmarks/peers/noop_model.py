"""The model that is passed round and changed in one number, and the word that a round has begun.

It is read by our command and copied beside each peer's application, so it needs numpy and the standard library alone.
"""

from __future__ import annotations

import json
import math
import socket
import time

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Shapes = dict[str, tuple[int, ...]]

STAGES = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
LONGEST_REASON = 1000


def shapes_of(size: str) -> Shapes:
    """What the arrays of a size are called and how large they are."""
    known = {"resnet18": _resnet18, "small": _small}
    if size not in known:
        raise ValueError(f"size {size!r} is not known; there are {', '.join(known)}")
    return known[size]()


def _resnet18() -> Shapes:
    """ResNet-18's 62 parameters and its 40 running statistics: 11.7 M numbers, 44.6 MiB."""
    shapes: Shapes = {"conv1.weight": (64, 3, 7, 7), **_norm("bn1", 64)}
    for stage, (before, after, stride) in enumerate(STAGES, start=1):
        for block, inner in enumerate((before, after)):
            name = f"layer{stage}.{block}"
            shapes[f"{name}.conv1.weight"] = (after, inner, 3, 3)
            shapes |= _norm(f"{name}.bn1", after)
            shapes[f"{name}.conv2.weight"] = (after, after, 3, 3)
            shapes |= _norm(f"{name}.bn2", after)
            if block == 0 and stride > 1:
                shapes[f"{name}.downsample.0.weight"] = (after, before, 1, 1)
                shapes |= _norm(f"{name}.downsample.1", after)
    return shapes | {"fc.weight": (1000, 512), "fc.bias": (1000,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.{part}": (width,) for part in ("weight", "bias", "running_mean", "running_var")}


def _small() -> Shapes:
    """A small convolutional net of ten arrays, 100 KB."""
    return {
        "conv1.weight": (6, 3, 5, 5),
        "conv1.bias": (6,),
        "conv2.weight": (16, 6, 5, 5),
        "conv2.bias": (16,),
        "fc1.weight": (48, 400),
        "fc1.bias": (48,),
        "fc2.weight": (50, 48),
        "fc2.bias": (50,),
        "fc3.weight": (10, 50),
        "fc3.bias": (10,),
    }


def count_bytes(size: str) -> int:
    """What a model of this size weighs as bare float32."""
    return 4 * sum(math.prod(shape) for shape in shapes_of(size).values())


def make_model(size: str) -> dict[str, Array]:
    """Arrays that all differ, so that nobody gains by recognising two equal ones."""
    generator = np.random.default_rng(18)
    return {
        name: generator.standard_normal(shape, dtype=np.float32) for name, shape in shapes_of(size).items()
    }


def change_one_number(model: dict[str, Array], size: str) -> dict[str, Array]:
    """All that a site does with the model instead of training it."""
    name = next(iter(shapes_of(size)))
    changed = model[name].copy()
    changed.flat[0] += 1
    return model | {name: changed}


def read_change(model: dict[str, Array], size: str) -> float:
    """How far the one number has moved: by one in each round, if the mean is a mean."""
    name = next(iter(shapes_of(size)))
    return float(model[name].flat[0] - make_model(size)[name].flat[0])


class Marks:
    """Tells the measuring command, through a socket in its folder, when a round begins and when all is done."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._answers: list[int] = []

    def begin_round(self) -> None:
        """The coordinator turns to the next round."""
        self._send({"mark": "round"})

    def count_answers(self, answers: int) -> None:
        """So many sites' models are in this round's mean."""
        self._answers.append(answers)

    def end(self, change: float) -> None:
        """The last round is over."""
        self._send({"mark": "end", "change": change, "answers": self._answers})

    def fail(self, error: Exception) -> None:
        """There will be no more rounds."""
        self._send({"mark": "failed", "reason": f"{type(error).__name__}: {error}"[:LONGEST_REASON]})

    def _send(self, word: dict[str, object]) -> None:
        told = json.dumps(word | {"at": time.monotonic()}).encode()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(told, self._path)
