"""Networks for texts and for windows of sensors compute what the published ones do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pfl_common.errors import SettingError
from pfl_common.models import build
from pfl_common.randomness import generators

torch.set_num_threads(1)


def test_the_mean_is_over_all_places_padding_included() -> None:
    """Two words in a text of four places: half of what they would be in a text of two."""
    text = build("fasttext", shape=(4,), classes=3, tokens=9)
    words, last = text.encoder.get_submodule("words"), text.encoder.get_submodule("fc")
    assert isinstance(words, nn.Embedding)
    assert isinstance(last, nn.Linear)
    mean = (words.weight[5] + words.weight[7]) / 4
    found = text.encoder(torch.tensor([[5, 7, 0, 0]], dtype=torch.int32))[0]
    torch.testing.assert_close(found, last(mean))
    assert bool((found < 0).any()), "no activation behind the last layer"


def test_words_begin_as_n01_and_padding_as_zero() -> None:
    """Also after a run has drawn its first values."""
    encoder = build("fasttext", shape=(4,), classes=3, tokens=4000).encoder
    generators.initialise(encoder, 3)
    values = encoder.get_parameter("words.weight").detach()
    assert torch.count_nonzero(values[0]) == 0
    assert (0.0, 1.0) == pytest.approx((float(values[1:].mean()), float(values[1:].std())), abs=0.01)


def test_padding_learns_nothing_and_gradients_are_dense() -> None:
    """The row of padding stays zero; words that did not occur have a gradient of zero, not none."""
    encoder = build("fasttext", shape=(4,), classes=3, tokens=9).encoder
    encoder(torch.tensor([[5, 7, 0, 0]])).sum().backward()
    gradient = encoder.get_parameter("words.weight").grad
    assert gradient is not None
    assert not gradient.is_sparse
    assert {5, 7} == set(gradient.abs().sum(1).nonzero().flatten().tolist())


def test_windows_are_convolved_along_time() -> None:
    """Channels x 1 x time, as in the published table: 60 steps after the first block, 26 after the second."""
    encoder, x = build("har_cnn", shape=(9, 128), classes=6).encoder, torch.rand(2, 9, 128)
    shapes = []
    for layer in encoder.children():
        x = layer(x)
        shapes.append(tuple(x.shape[1:]))
    assert (9, 1, 128) == shapes[0]
    assert [(32, 1, 60), (64, 1, 26), (1664,)] == [shapes[3], shapes[6], shapes[7]]


def test_the_head_of_windows_is_the_whole_block() -> None:
    """Three layers with activations between them."""
    head = build("har_cnn", shape=(9, 128), classes=6).head
    assert ["Linear", "ReLU", "Linear", "ReLU", "Linear"] == [
        type(layer).__name__ for layer in head.children()
    ]


@pytest.mark.parametrize(
    ("name", "shape", "tokens", "seen"),
    [
        ("cnn", (200,), 9, "cnn got texts"),
        ("mlp", (200,), 9, "mlp got texts"),
        ("har_cnn", (9, 128), 9, "har_cnn got texts"),
        ("fasttext", (200,), 0, "fasttext got examples of shape (200,)"),
        ("fasttext", (3, 32, 32), 9, "fasttext got examples of shape (3, 32, 32)"),
        ("har_cnn", (3, 32, 32), 0, "har_cnn got examples of shape (3, 32, 32)"),
        ("har_cnn", (9, 27), 0, "har_cnn got examples of shape (9, 27)"),
        ("cnn", (9, 128), 0, "cnn got examples of shape (9, 128)"),
    ],
)
def test_data_of_another_kind_are_refused(name: str, shape: tuple[int, ...], tokens: int, seen: str) -> None:
    """In words that say what the network takes."""
    with pytest.raises(SettingError) as caught:
        build(name, shape=shape, classes=2, tokens=tokens)
    assert f"the backbone {seen}" == caught.value.seen[: len(seen) + 13]
    assert caught.value.expected
    assert caught.value.advice
