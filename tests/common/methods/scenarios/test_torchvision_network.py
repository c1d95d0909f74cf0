"""Every method trains a network of torchvision as it trains one of ours."""

from __future__ import annotations

import pytest
import torch

from pfl_common import methods
from pfl_common.app.config import dump
from pfl_common.randomness import generators
from pfl_common.spec.run import Model, RunSpec
from pfl_server.run.rehearsal import rehearse

torch.set_num_threads(1)

NETWORK = "torchvision:shufflenet_v2_x0_5"


def specify(name: str, **settings: object) -> RunSpec:
    """A run on small grey pictures, with a projector unless the method has one of its own."""
    model = Model(NETWORK, (1, 32, 32), ("a", "b", "c"), encoder_projector=name != "dualfed")
    own = dump(methods.load(name).settle({"lr": 0.001, **settings}))
    return RunSpec("run", name, own, model, ("site",), rounds=4, seed=3)


@pytest.mark.parametrize("name", methods.names())
def test_every_method_trains_it(name: str) -> None:
    """Each phase's first two rounds, from both halves, and what a site predicts with."""
    spec = specify(name)
    template = methods.build_participant(spec)
    generators.initialise(template, spec.seed)
    manifests = rehearse(methods.load(name), spec, template)
    inside = [entry.name for entry in manifests["init"] if ".network." in entry.name]
    assert len(inside) > 100
    crossing = {entry.name for key, one in manifests.items() if key != "init" for entry in one}
    assert (name not in ("local", "fedproto")) == any(
        own.rpartition("encoder")[2] in name for own in inside for name in crossing
    )
    with torch.no_grad():
        assert (2, 3) == tuple(template.eval()(torch.rand(2, 1, 32, 32)).shape)


@pytest.mark.parametrize(
    ("policy", "held"), [("share_all", ()), ("local_stats", ("running",)), ("local_bn", ("running", "bn"))]
)
def test_batch_norm_policies_find_its_layers(policy: str, held: tuple[str, ...]) -> None:
    """What the policy keeps does not travel."""
    participant = methods.build_participant(specify("fedavg", bn_policy=policy))
    travels = set(participant.travels("train"))
    stem = "encoder.body.network.conv1.1"
    assert ("running" not in held) == (f"{stem}.running_mean" in travels)
    assert ("bn" not in held) == (f"{stem}.weight" in travels)
    assert "encoder.body.network.conv1.0.weight" in travels
