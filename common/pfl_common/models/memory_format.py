"""How the tensors of a network lie in memory: what a run says of it, put into effect and checked.

With `channels-last` the channels of one place of a picture lie side by side, which convolutions on many processors and
cards read faster. Values are the same; sums over them are taken in another order, so their last digits are others.
"""

from __future__ import annotations

from itertools import chain

import torch
from torch import Tensor, nn

from pfl_common.errors import SettingError
from pfl_common.spec.rules import MemoryFormat


def arrange(network: nn.Module, memory_format: MemoryFormat) -> None:
    """Lay out a network's convolutions so; what passes through them follows of itself."""
    if memory_format == "channels-last":
        for tensor in _kernels(network):
            tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)


def check_arrangeable(network: nn.Module, backbone: str, memory_format: MemoryFormat) -> None:
    """Refuse a layout that changes nothing: channels are those of pictures."""
    if memory_format == "channels-last" and not _kernels(network):
        raise SettingError(
            f"--memory-format channels-last with the network {backbone}, which has no convolutions over pictures",
            expected="a network that has some, as cnn, resnet18 or torchvision:resnet18",
            advice="leave --memory-format out",
        )


def _kernels(network: nn.Module) -> list[Tensor]:
    """Tensors of a convolution over pictures: channels out, channels in, height, width."""
    return [tensor for tensor in chain(network.parameters(), network.buffers()) if tensor.dim() == 4]
