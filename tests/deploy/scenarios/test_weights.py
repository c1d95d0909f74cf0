"""A network that begins from weights and is frozen in part: over real lines, sealed, and in one process.

The lines, calls, envelopes, daemons and the coordinator are the product's; only the trainers are in the test's process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.daemon.loop import Daemon
from pfl_client.envelopes.sealed import SealedEnvelopes
from pfl_client.trainer_process.api import DataFolder
from pfl_common.app.config import settle
from pfl_common.errors import SettingError
from pfl_common.models.torchvision_import import import_torchvision
from pfl_common.randomness import generators
from pfl_common.sealing.frame_format import sealed_size
from pfl_common.spec.manifest import full_size
from pfl_common.spec.run import Kind, RunSpec
from pfl_deploy.simulation.loopback import LoopbackBench
from pfl_deploy.simulation.replay import replay
from pfl_deploy.simulation.simulate import Result, simulate
from pfl_server.envelopes.sealed import seal_with
from pfl_server.network.server import GrpcServer
from pfl_server.run.host import RunHost
from pfl_server.settings import ServerSettings
from tests.deploy.support.processes import write_site
from tests.network.federation import Federation

NETWORK = "shufflenet_v2_x0_5"
PUBLISHED = "ShuffleNet_V2_X0_5_Weights.IMAGENET1K_V1"
FROZEN = ("encoder.network.conv1", "encoder.network.stage2")
NAMES = ("hospital_a", "hospital_b")
ROUNDS = 1


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two sites with grey pictures."""
    place = tmp_path_factory.mktemp("data")
    return [write_site(place / name, samples=12, size=32, seed=at) for at, name in enumerate(NAMES)]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file under torchvision's names, for a thousand classes."""
    with generators.scope("weights"):
        network = import_torchvision("torchvision.models").get_model(NETWORK)
    file = tmp_path_factory.mktemp("weights") / "shuffle.safetensors"
    save_file(network.state_dict(), file)
    return file


def choose(state: Path, **words: object) -> ServerSettings:
    """Few rounds on the pictures as they are."""
    given = {"sites": len(NAMES), "rounds": ROUNDS, "state": state, "quorum": 1.0, "durability": "process"}
    chosen = {
        "method": "fedavg",
        "image_size": 32,
        "weights_like": PUBLISHED,
        "set": {"lr": 0.01, "batch": 6},
    }
    return settle(ServerSettings, given | chosen | words, what="test")


@dataclass(frozen=True)
class Crossed:
    """A run over the network: its specification, and what the coordinator counted of its bytes."""

    spec: RunSpec
    bytes: Mapping[tuple[str, str], int]
    sites: Mapping[str, Path]

    def sized(self, kind: Kind, way: str) -> int:
        """Bytes of all parcels of a kind, as their manifest says them."""
        times = len(NAMES) * (ROUNDS if kind is Kind.TRAIN else 1)
        return times * sealed_size(full_size(self.spec.manifest(kind, "train", way)))


async def cross(settings: ServerSettings, folders: list[Path], place: Path) -> Crossed:
    """Play a run with mutual TLS, signed calls and sealed parcels on a loopback port."""
    place.mkdir()
    federation, turn = Federation(place), asyncio.Lock()
    host = RunHost(settings, seal_with(federation.authority, now=federation.now), all_here=True)
    server = GrpcServer(federation.callers(), meter=host.record.meter)
    port = await server.start(
        host, host="127.0.0.1", port=0, pair=federation.pair, ca_pem=federation.authority.ca_pem
    )

    async def visit(folder: Path) -> None:
        keyring = federation.keyring(folder.name)
        async with GrpcLink(f"127.0.0.1:{port}", keyring) as link:
            data = DataFolder(folder, folder.name, device="cpu")
            envelopes = SealedEnvelopes(keyring, secret=b"s" * 32)
            bench, state = LoopbackBench(turn), place / "sites" / folder.name
            await Daemon(data, link=link, bench=bench, envelopes=envelopes, state=state).run()

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(host.run())
            for folder in folders:
                group.create_task(visit(folder))
    finally:
        await server.stop(0)
        host.runs.close()
    assert host.books is not None
    spec = host.books.spec
    sites = {name: place / "sites" / name / "runs" / spec.id for name in NAMES}
    return Crossed(spec, dict(host.record.meter.bytes), sites)


PARCELS = ((Kind.TRAIN, "down"), (Kind.TRAIN, "up"), (Kind.FINISH, "down"))


def check_sizes(run: Crossed) -> None:
    """What was counted is what the manifests say, to the byte."""
    assert len(NAMES) * sealed_size(full_size(run.spec.init_manifest)) == run.bytes["down", "init"]
    for kind, way in PARCELS:
        assert run.sized(kind, way) == run.bytes[way, kind.value], (kind, way)


async def test_frozen_tensors_cross_once(folders: list[Path], weights: Path, tmp_path: Path) -> None:
    """Beside the same run without: the first model is as large, and all else is smaller by what its manifests lack."""
    free, frozen = [
        await cross(
            choose(tmp_path / f"state-{place}", weights=str(weights), freeze=list(names)),
            folders,
            tmp_path / place,
        )
        for place, names in (("free", ()), ("frozen", FROZEN))
    ]
    check_sizes(free)
    check_sizes(frozen)
    assert free.bytes["down", "init"] == frozen.bytes["down", "init"]
    for kind, way in PARCELS:
        saved = free.bytes[way, kind.value] - frozen.bytes[way, kind.value]
        assert free.sized(kind, way) - frozen.sized(kind, way) == saved
        assert saved > 20_000
    check_weights(frozen, weights)


@pytest.mark.parametrize("method", ["dualfed", "fedbn"])
async def test_other_methods(method: str, folders: list[Path], weights: Path, tmp_path: Path) -> None:
    """One with a head that is the site's own, one with norms that are."""
    settings = choose(tmp_path / "state", method=method, weights=str(weights), freeze=list(FROZEN))
    run = await cross(settings, folders, tmp_path / "run")
    check_sizes(run)
    check_weights(run, weights)


def check_weights(run: Crossed, weights: Path) -> None:
    """What stood still is the file's at each site's end; the rest began there and has moved."""
    given = load_file(weights)
    for site in run.sites.values():
        serving = load_file(site / "serving" / "serving.safetensors")
        for name, value in given.items():
            own = serving.get(f"encoder.network.{name}")
            if own is not None and f"encoder.network.{name}".startswith(FROZEN):
                assert torch.equal(value, own), name
        assert not torch.equal(given["conv5.0.weight"], serving["encoder.network.conv5.0.weight"])


@pytest.fixture(scope="module")
def own(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of ours as a site ended with it."""
    words = {"backbone": "digits_linear_head", "weights_like": "", "method": "fedavg"}
    result = play(folders, tmp_path_factory.mktemp("own"), **words)
    return result.sites[NAMES[0]] / "serving" / "serving.safetensors"


def play(folders: list[Path], place: Path, **words: object) -> Result:
    """The same in one process."""
    return simulate(choose(place / "coordinator", **words), folders, place / "sites")


def test_torchvisions_own_name(
    folders: list[Path], weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is taken from where torchvision keeps it; network, size and standardisation of pictures come with it."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    cache = tmp_path / "torch" / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    torch.save(load_file(weights), cache / "shufflenetv2_x0.5-f707e7126e.pth")  # noqa: TID251  # what is published
    words = {"method": "fedper", "image_size": 0, "weights_like": "", "rounds": 1}
    result = play(folders, tmp_path / "run", weights=PUBLISHED, **words)
    model = result.spec.model
    assert (f"torchvision:{NETWORK}", (1, 224, 224)) == (model.backbone, model.shape)
    assert ((0.449,), (0.226,)) == tuple(
        tuple(round(value, 6) for value in values) for values in (model.pixel_mean, model.pixel_deviation)
    )
    assert PUBLISHED == result.spec.weights.source
    assert {"weights", "pixels", "image size"} <= result.spec.chosen.keys()


def test_a_finished_model_begins_another_run(folders: list[Path], own: Path, tmp_path: Path) -> None:
    """With its network, its pictures' size and its head; and when the file is gone, with what the run has kept."""
    file = tmp_path / "mine.safetensors"
    file.write_bytes(own.read_bytes())
    words = {"method": "ditto", "image_size": 0, "weights_like": "", "weights": str(file)}
    first = play(folders, tmp_path / "run", freeze="encoder.conv1", **words)
    assert "digits_linear_head" == first.spec.model.backbone
    assert "and head" in first.spec.chosen["weights"]
    given = load_file(own)
    for site in first.sites.values():
        serving = load_file(site / "serving" / "serving.safetensors")
        still = [name for name in serving if ".conv1." in f".{name}"]
        assert 4 <= len(still)
        assert all(torch.equal(given[name.removeprefix("personal.")], serving[name]) for name in still)
    file.unlink()
    assert first.spec == play(folders, tmp_path / "run", freeze="encoder.conv1", **words).spec
    assert ROUNDS == replay(first.coordinator, folders, tmp_path / "again").round


def test_another_file_is_not_what_a_specification_begins_from(
    folders: list[Path], own: Path, tmp_path: Path
) -> None:
    """A pinned run takes the very file, or what the first one kept of it."""
    words = {"weights_like": "", "backbone": "digits_linear_head"}
    first = play(folders, tmp_path / "one", weights=str(own), **words)
    other = tmp_path / "other.safetensors"
    save_file({name: value + 1 for name, value in load_file(own).items()}, other)
    for given in ("", str(other)):
        settings = choose(tmp_path / "two", weights=given, **words)
        with pytest.raises(SettingError, match=r"serving\.safetensors"):
            simulate(settings, folders, tmp_path / "sites", pinned=first.spec)
    for place, file in (("three", own), ("four", first.coordinator / "weights.safetensors")):
        settings = choose(tmp_path / place / "coordinator", weights=str(file), **words)
        again = simulate(settings, folders, tmp_path / place / "sites", pinned=first.spec)
        last = f"checkpoints/round-{ROUNDS:06d}.safetensors"
        assert (first.coordinator / last).read_bytes() == (again.coordinator / last).read_bytes()
