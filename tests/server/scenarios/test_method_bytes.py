"""The bytes that cross in a round of each method are those the methods' specification predicts."""

from __future__ import annotations

import dataclasses
from io import BytesIO

import pytest
import torch

from pfl_common import methods
from pfl_common.randomness import generators
from pfl_common.spec.run import Kind, RunSpec, Task, parcel_key
from pfl_common.tensors import codec
from pfl_common.tensors.update import flatten
from pfl_server.method_help import costs
from pfl_server.run.kept_figures import NETWORKS, Network, read_kept
from tests.common.methods.predicted import CONSTANT, PREDICTED, SHARE, SIZES, TINY, Sizes

torch.set_num_threads(1)

LARGE_RESNET = Sizes(11_176_512, 102_600, 9_600, 102_400)
"""ResNet-18 with 200 classes, as the papers have it."""
PUBLISHED = [
    ("fedcp", TINY, 1.0926),
    ("gpfl", TINY, 1.093),
    ("fedcac", TINY, 1.031),
    ("fedper", TINY, 0.982),
    ("lgfedavg", TINY, 0.018),
    ("fedproto", TINY, 0.018),
]


@pytest.mark.parametrize(("name", "network", "ratio"), PUBLISHED)
def test_predictions_are_the_published_ratios(name: str, network: Network, ratio: float) -> None:
    """What goes up beside FedAvg on the network of the papers, as the specification prints it."""
    sizes = SIZES[network]
    assert ratio == pytest.approx(PREDICTED[name][0](sizes) / sizes.model, abs=0.0005)


def test_predictions_on_resnet18_are_the_published_ratios() -> None:
    """FedCP 1.0468, GPFL 1.047; FedCAC downloads two models."""
    up = {name: PREDICTED[name][0](LARGE_RESNET) / LARGE_RESNET.model for name in ("fedcp", "gpfl")}
    assert {"fedcp": pytest.approx(1.0468, abs=5e-5), "gpfl": pytest.approx(1.047, abs=5e-4)} == up
    assert 2.0 == PREDICTED["fedcac"][1](LARGE_RESNET) / LARGE_RESNET.model


ONCE = {"lgfedavg": {"encoder"}}
"""Branches that a site gets once and not in a usual round."""


QUICK = {"pfedme": {"K_in": 1}}
"""Settings that make a rehearsal shorter and no parcel any other."""


def measure(name: str, network: Network) -> tuple[int, int]:
    """Bytes up and down that the rehearsal pins."""
    method = methods.load(name)
    return pinned(costs.describe(method, network, QUICK.get(name, {})))


def pinned(spec: RunSpec) -> tuple[int, int]:
    """The same of a run, in the phase of most rounds, with everything that may come in each of them."""
    method = methods.load(spec.method)
    manifests, phase = costs.pin(method, spec), costs.usual_phase(method, spec)
    parcels = [manifests[parcel_key(Kind.TRAIN, phase, way)] for way in ("up", "down")]
    once = ONCE.get(spec.method, set())
    up, down = (codec.size_of(parcel, {e.group for e in parcel if e.group} - once) for parcel in parcels)
    return up, down


@pytest.mark.parametrize("name", methods.names())
def test_bytes_on_the_network_of_the_papers(name: str) -> None:
    """Up and down, on the four-layer network with 200 classes."""
    for counted, predict in zip(measure(name, TINY), PREDICTED[name], strict=True):
        assert 4 * predict(SIZES[TINY]) == pytest.approx(counted, rel=SHARE, abs=CONSTANT)


KINDS = ("dualfed", "fedavg", "fedbn", "fedcac", "fedcp", "gpfl", "lgfedavg", "pfedme")
"""What sends statistics of batch norm, keeps them, or sends something else beside the model."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A rehearsal of ResNet-18 takes two seconds: one method of each kind, with `--long` all."""
    if "on_resnet18" in metafunc.fixturenames:
        metafunc.parametrize("on_resnet18", methods.names() if metafunc.config.option.long else KINDS)


def test_bytes_with_batch_norm(on_resnet18: str) -> None:
    """Up and down on ResNet-18, and the same as the file of figures has."""
    name = on_resnet18
    kept = read_kept()[NETWORKS[1].words][name]
    counted = measure(name, NETWORKS[1])
    assert (kept.up, kept.down) == counted, (
        "make the pages again: python -m pfl_deploy.reference.method_pages"
    )
    for size, predict in zip(counted, PREDICTED[name], strict=True):
        assert 4 * predict(SIZES[NETWORKS[1]]) == pytest.approx(size, rel=SHARE, abs=CONSTANT)


def test_the_projector_that_the_paper_charges_for() -> None:
    """Beside a FedAvg that trains and sends a projector, DualFed sends 0.977 (ResNet-18, seven classes)."""
    network = dataclasses.replace(NETWORKS[1], classes=7)
    method = methods.load("fedavg")
    spec = costs.describe(method, network, {"bn_policy": "local_stats"})
    with_projector = dataclasses.replace(spec, model=dataclasses.replace(spec.model, encoder_projector=True))
    assert 0.977 == pytest.approx(measure("dualfed", network)[1] / pinned(with_projector)[1], abs=0.0005)


@pytest.mark.parametrize("name", methods.names())
def test_the_codec_writes_as_many_bytes_as_the_manifest_says(name: str) -> None:
    """What a newcomer gets and what it sends, encoded."""
    method = methods.load(name)
    spec = costs.describe(method, NETWORKS[0], {"batch": 2, **QUICK.get(name, {})})
    manifests, phase = costs.pin(method, spec), costs.usual_phase(method, spec)
    task = Task(Kind.TRAIN, 1, spec.rounds, phase=phase)
    participant = methods.build_participant(spec)
    generators.initialise(participant, spec.seed)
    half = method.build_server(spec)
    down = half.welcome(half.start(participant, spec.seed))
    data = costs.make_up(spec, 4)
    with generators.scope(0, "test"):
        participant.receive(down, task)
        participant.learn(data, task)
        up = flatten(participant.report(data, task))
    for state, way in ((down, "down"), (up, "up")):
        written, manifest = BytesIO(), manifests[parcel_key(Kind.TRAIN, phase, way)]
        groups = codec.encode(state, manifest, written)
        assert codec.size_of(manifest, groups) == len(written.getvalue())
