"""Networks for texts, as numbers of their words, and for windows of sensor channels."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from pfl_common.errors import SettingError
from pfl_common.models.backbone import Backbone

_WIDTH = 32
"""Of fastText: numbers per word, and features."""


class MeanOfWords(nn.Module):
    """The mean over all positions of a text, padding included, so that short texts lie nearer to zero."""

    def forward(self, x: Tensor) -> Tensor:
        """(batch, words, width) to (batch, width)."""
        return x.mean(1)


def fasttext(shape: tuple[int, ...], classes: int, *, tokens: int) -> Backbone:
    """A vector for each word, their mean, one fully connected layer without an activation.

    The first vectors are drawn from N(0, 1), that of padding is zero and stays so.
    """
    if len(shape) != 1 or shape[0] < 1 or tokens < 3:
        raise SettingError(
            f"the backbone fasttext got examples of shape {shape}",
            expected="texts: numbers of words, and how many numbers there are",
            advice='say {"kind": "tokens"} in data.json if they are texts, or choose another backbone',
        )
    encoder = nn.Sequential(
        OrderedDict[str, nn.Module](
            words=nn.Embedding(tokens, _WIDTH, padding_idx=0),
            mean=MeanOfWords(),
            fc=nn.Linear(_WIDTH, _WIDTH),
        )
    )
    return Backbone(encoder=encoder, head=nn.Linear(_WIDTH, classes), features=_WIDTH)


def har_cnn(shape: tuple[int, ...], classes: int) -> Backbone:
    """Two convolutions along time; the head is three fully connected layers, which hold nearly all parameters."""
    channels, length = _window(shape)
    width = 64 * _shortened(_shortened(length))
    encoder = nn.Sequential(
        OrderedDict[str, nn.Module](
            row=nn.Unflatten(1, (channels, 1)),
            conv1=nn.Conv2d(channels, 32, (1, 9)),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d((1, 2), 2),
            conv2=nn.Conv2d(32, 64, (1, 9)),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d((1, 2), 2),
            flatten=nn.Flatten(),
        )
    )
    head = nn.Sequential(
        OrderedDict[str, nn.Module](
            fc1=nn.Linear(width, 1024),
            relu1=nn.ReLU(),
            fc2=nn.Linear(1024, 512),
            relu2=nn.ReLU(),
            out=nn.Linear(512, classes),
        )
    )
    return Backbone(encoder=encoder, head=head, features=width)


def _shortened(length: int) -> int:
    return (length - 8) // 2


def _window(shape: tuple[int, ...]) -> tuple[int, int]:
    # 28 steps are the fewest that leave one after two convolutions of 9, each halved.
    if len(shape) != 2 or shape[0] < 1 or shape[1] < 28:
        raise SettingError(
            f"the backbone har_cnn got examples of shape {shape}",
            expected="windows as (channels, time) of at least 28 steps",
            advice='say {"kind": "windows"} in data.json, take longer windows, or choose the backbone mlp',
        )
    return shape[0], shape[1]
