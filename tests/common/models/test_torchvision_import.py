"""torchvision can be imported on this machine, and our residual network computes what torchvision's does."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest
import torch
from torch import nn

from pfl_common.models import build, torchvision_import

torch.set_num_threads(1)


def run_fresh(program: str) -> str:
    """Run a program in a process of its own, where torchvision has not been imported yet."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert not done.returncode, done.stderr
    return done.stdout


def test_transforms_work_in_a_fresh_process() -> None:
    """A process that goes through this door gets working transforms, with or without the binary operators."""
    program = (
        "import sys, torch\n"
        "from pfl_common.models import torchvision_import\n"
        "v2 = torchvision_import.import_torchvision('torchvision.transforms.v2')\n"
        "sys.stdout.write(str(tuple(v2.Resize((4, 6))(torch.zeros(3, 8, 8)).shape)))\n"
    )
    expected = "(3, 4, 6)"
    assert expected == run_fresh(program)


def test_backbones_do_not_import_torchvision() -> None:
    """Building a network loads no torchvision: it is an option of the data, not a need of the model."""
    program = (
        "import sys\n"
        "from pfl_common.models import build\n"
        "build('resnet8', shape=(3, 32, 32), classes=2)\n"
        "sys.stdout.write(str('torchvision' in sys.modules))\n"
    )
    expected = "False"
    assert expected == run_fresh(program)


def test_only_what_is_absent_is_declared() -> None:
    """Operators the binary brings are left alone; when it does not load, both signatures are declared."""
    extension = torchvision_import.import_torchvision("torchvision.extension")
    expected = () if extension._has_ops() else ("nms", "qnms")
    assert expected == torchvision_import.declared_operators()
    assert all(hasattr(torch.ops.torchvision, name) for name in ("nms", "qnms"))


def test_operators_of_a_binary_that_loads_are_not_declared_again() -> None:
    """Where the operators exist, the door declares none; a second declaration would be an error."""
    program = (
        "import sys, torch\n"
        "binary = torch.library.Library('torchvision', 'DEF')\n"
        "binary.define('nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')\n"
        "binary.define('qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')\n"
        "from pfl_common.models import torchvision_import\n"
        "torchvision_import._load_binary = lambda: None\n"
        "sys.stdout.write(str(torchvision_import.declared_operators()))\n"
    )
    expected = "()"
    assert expected == run_fresh(program)


def test_asking_twice_declares_once() -> None:
    """The door may be used any number of times in one process."""
    first, second = (torchvision_import.import_torchvision() for _ in range(2))
    assert first is second


@pytest.mark.parametrize("side", [64, 97])
def test_resnet18_agrees_with_torchvision(side: int) -> None:
    """With the same values in the same order, our resnet18 returns what torchvision's returns."""
    models = torchvision_import.import_torchvision("torchvision.models")
    theirs: nn.Module = models.resnet18(weights=None, num_classes=5)
    backbone = build("resnet18", shape=(3, side, side), classes=5)
    ours = nn.Sequential(backbone.encoder, backbone.head)
    values = theirs.state_dict().values()
    assert [v.shape for v in values] == [v.shape for v in ours.state_dict().values()]
    ours.load_state_dict(dict(zip(ours.state_dict(), values, strict=True)))
    x = torch.linspace(-2, 2, 2 * 3 * side * side).sin().reshape(2, 3, side, side)
    with torch.no_grad():
        results = [model(x) for model in (theirs.train(), ours.train(), theirs.eval(), ours.eval())]
    for expected, actual in list(pairwise(results))[::2]:
        torch.testing.assert_close(actual, expected)
