"""Each import contract catches the line it was written against."""

from __future__ import annotations

import pytest

from tests.house.skeleton import Skeleton, list_contracts

ROOMS = "Rooms: deploy sees both programs, the programs never see each other, common sees neither"
SERVER = "Server: from the program at the top to its settings at the bottom"
CLIENT = "Client: the daemon's floors stand above the trainer's"
COMMON = "Common: methods at the top, errors and exit codes at the bottom; sealing sees bytes and tensors see numbers"
DEPLOY = "Deploy: commands at the top, data sets at the bottom"
DAEMON = "The site daemon stays light: no torch, no numpy, nothing of the trainer"
TRAINER = "The trainer has no network and no keys"
DECISIONS = "A round is decided without clock, socket or tensor"
AGREED = "What is agreed, counted or carried needs no torch"
LEARNING = "Learning knows no network, no clockwork, no keys"
METHODS = "A method imports no other method"
WIRE = "Only what talks to the network speaks its messages"
ZEROMQ = "ZeroMQ lies between daemon and trainer and nowhere else"
SIMULATOR = "The simulator has no transport, no second process and no seal"

VIOLATIONS = [
    (ROOMS, "pfl_server.run", "import pfl_client.daemon"),
    (ROOMS, "pfl_client.daemon", "from pfl_server import run"),
    (ROOMS, "pfl_common.spec", "import pfl_server"),
    (ROOMS, "pfl_common.spec", "import pfl_client"),
    (ROOMS, "pfl_client.data", "import pfl_deploy"),
    (SERVER, "pfl_server.store", "from pfl_server import sites"),
    (SERVER, "pfl_server.sites", "import pfl_server.run"),
    (SERVER, "pfl_server.network", "import pfl_server.status"),
    (SERVER, "pfl_server.status", "import pfl_server.network"),
    (SERVER, "pfl_server.settings", "import pfl_server.store"),
    (SERVER, "pfl_server.decisions", "import pfl_server.telemetry"),
    (CLIENT, "pfl_client.run_folder", "import pfl_client.daemon"),
    (CLIENT, "pfl_client.connection", "from pfl_client import envelopes"),
    (CLIENT, "pfl_client.trainer_process", "import pfl_client.data"),
    (CLIENT, "pfl_client.data", "import pfl_client.trainer"),
    (COMMON, "pfl_common.sealing", "from pfl_common import tensors"),
    (COMMON, "pfl_common.tensors", "from pfl_common import sealing"),
    (COMMON, "pfl_common.spec", "import pfl_common.identity"),
    (COMMON, "pfl_common.tensors", "import pfl_common.learning"),
    (DEPLOY, "pfl_deploy.datasets", "import pfl_deploy.report"),
    (DEPLOY, "pfl_deploy.report", "import pfl_deploy.demo"),
    (DAEMON, "pfl_client.daemon", "import torch"),
    (DAEMON, "pfl_client.connection", "from torch import Tensor"),
    (DAEMON, "pfl_client.trainer_process", "import numpy as np"),
    (DAEMON, "pfl_client.daemon", "from pfl_client import trainer"),
    (DAEMON, "pfl_client.run_folder", "def later():\n    import torch"),
    (TRAINER, "pfl_client.trainer", "from grpc import aio"),
    (TRAINER, "pfl_client.trainer", "import pfl_client.connection"),
    (TRAINER, "pfl_client.data", "import cryptography"),
    (DECISIONS, "pfl_server.decisions", "import torch"),
    (DECISIONS, "pfl_server.decisions", "from time import monotonic"),
    (DECISIONS, "pfl_server.decisions", "import grpc.aio"),
    (DECISIONS, "pfl_server.decisions", "import asyncio"),
    (AGREED, "pfl_common.spec", "import torch"),
    (AGREED, "pfl_common.sealing", "from torch import Tensor"),
    (AGREED, "pfl_common.identity", "import torch"),
    (AGREED, "pfl_common.wire", "import torch"),
    (AGREED, "pfl_server.telemetry", "import torch"),
    (AGREED, "pfl_server.network", "from pfl_common.methods import first"),
    (AGREED, "pfl_client.connection", "from pfl_common import methods"),
    (LEARNING, "pfl_common.methods.first", "import grpc"),
    (LEARNING, "pfl_common.learning", "import asyncio"),
    (LEARNING, "pfl_common.learning", "import prometheus_client"),
    (LEARNING, "pfl_common.models", "from cryptography.hazmat.primitives import hashes"),
    (LEARNING, "pfl_common.tensors", "import socket"),
    (METHODS, "pfl_common.methods.first", "from pfl_common.methods import second"),
    (METHODS, "pfl_common.methods.second", "from pfl_common.methods.first import Client"),
    (WIRE, "pfl_server.run", "from pfl_common import wire"),
    (WIRE, "pfl_client.daemon", "from pfl_common.wire import coordinator_pb2"),
    (WIRE, "pfl_common.learning", "import pfl_common.wire"),
    (ZEROMQ, "pfl_server.run", "import zmq"),
    (ZEROMQ, "pfl_common.spec", "import zmq.asyncio"),
    (ZEROMQ, "pfl_client.daemon", "import zmq"),
    (SIMULATOR, "pfl_deploy.simulation", "from pfl_server import network"),
    (SIMULATOR, "pfl_deploy.simulation", "import pfl_client.connection.grpc_link"),
    (SIMULATOR, "pfl_deploy.simulation", "import pfl_client.trainer_process.process"),
]


def test_the_empty_house_keeps_every_contract(skeleton: Skeleton) -> None:
    """Nothing is planted, so nothing is broken: a red line below comes from its plant alone."""
    verdict = skeleton.run("lint-imports", "--no-cache", "--no-logo")
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr


@pytest.mark.parametrize(("contract", "module", "line"), VIOLATIONS)
def test_a_planted_import_breaks_its_contract(
    skeleton: Skeleton, contract: str, module: str, line: str
) -> None:
    """One forbidden line in one module, and the build fails naming the contract."""
    skeleton.plant(module, line + "\n")
    verdict = skeleton.run("lint-imports", "--no-cache", "--no-logo")
    assert verdict.returncode == 1, verdict.stdout + verdict.stderr
    assert f"{contract} BROKEN" in verdict.stdout


def test_a_chain_is_seen_like_a_single_line(skeleton: Skeleton) -> None:
    """The daemon reaches torch through a harmless module of common: that counts as if it had imported it."""
    skeleton.plant("pfl_client.daemon", "import pfl_common.learning.between\n")
    skeleton.plant("pfl_common.learning.between", "import torch\n")
    verdict = skeleton.run("lint-imports", "--no-cache", "--no-logo")
    assert f"{DAEMON} BROKEN" in verdict.stdout


@pytest.mark.parametrize(
    "module", ["pfl_server.network", "pfl_client.connection", "pfl_client.onboarding.enrolment"]
)
def test_a_transport_may_speak_the_wire(skeleton: Skeleton, module: str) -> None:
    """The contract on generated messages lets those through whom it is meant for."""
    skeleton.plant(module, "from pfl_common import wire\n")
    verdict = skeleton.run("lint-imports", "--no-cache", "--no-logo")
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr


@pytest.mark.parametrize("package", ["pfl_server", "pfl_client", "pfl_common", "pfl_deploy"])
def test_a_folder_without_a_place_is_seen(skeleton: Skeleton, package: str) -> None:
    """A new folder has to be given its place among the others before it can be used."""
    skeleton.plant(f"{package}.attic", "")
    verdict = skeleton.run("lint-imports", "--no-cache", "--no-logo")
    assert verdict.returncode == 1
    assert "attic" in verdict.stdout


def test_every_contract_has_a_violation() -> None:
    """A contract that nobody has seen fail is not a contract."""
    planted = {contract for contract, _, _ in VIOLATIONS}
    assert planted == {contract["name"] for contract in list_contracts()}
