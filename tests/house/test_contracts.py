"""Each import contract catches the line it was written against."""

from __future__ import annotations

import pytest

from tests.house.skeleton import Skeleton, list_contracts

ROOMS = "Rooms: deploy sees both programs, the programs never see each other, common sees neither"
DAEMON = "The site daemon stays light: no torch, no numpy, nothing of the trainer"
TRAINER = "The trainer has no network and no keys"
SEALING = "Sealing sees bytes and codec sees tensors: neither sees the other"
AGREED = "What is agreed before any tensor moves needs no torch"
METHODS = "A method imports no other method"
LEARNING = "Learning knows no network, no clockwork, no keys"
ROUND = "A round is decided without clock, socket or tensor"
TRANSPORTS = "Transports carry bytes: no torch, no methods"
WIRE = "Only transports speak the wire's generated messages"
SPEECH = "Only transports translate to and from the wire"
ZEROMQ = "ZeroMQ lies between daemon and trainer and nowhere else"
SIMULATOR = "The simulator has no transport, no second process and no seal"

VIOLATIONS = [
    (ROOMS, "pfl_server.training", "import pfl_client.daemon"),
    (ROOMS, "pfl_client.daemon", "from pfl_server import round"),
    (ROOMS, "pfl_common.run", "import pfl_server"),
    (ROOMS, "pfl_common.run", "import pfl_client"),
    (ROOMS, "pfl_client.data", "import pfl_deploy"),
    (DAEMON, "pfl_client.daemon", "import torch"),
    (DAEMON, "pfl_client.transport", "from torch import Tensor"),
    (DAEMON, "pfl_client.ipc", "import numpy as np"),
    (DAEMON, "pfl_client.daemon", "from pfl_client.trainer import work"),
    (DAEMON, "pfl_client.daemon", "def later():\n    import torch"),
    (DAEMON, "pfl_client.bench", "import torch"),
    (TRAINER, "pfl_client.trainer", "from grpc import aio"),
    (TRAINER, "pfl_client.trainer", "import pfl_client.transport"),
    (TRAINER, "pfl_client.data", "import grpc"),
    (SEALING, "pfl_common.sealing", "from pfl_common import codec"),
    (SEALING, "pfl_common.codec", "from pfl_common import sealing"),
    (AGREED, "pfl_common.run", "import torch"),
    (AGREED, "pfl_common.sealing", "from torch import Tensor"),
    (AGREED, "pfl_common.identity", "import torch"),
    (METHODS, "pfl_common.methods.first", "from pfl_common.methods import second"),
    (METHODS, "pfl_common.methods.second", "from pfl_common.methods.first import Client"),
    (LEARNING, "pfl_common.methods.first", "import grpc"),
    (LEARNING, "pfl_common.methods.first", "import socket"),
    (LEARNING, "pfl_common.learning", "import asyncio"),
    (LEARNING, "pfl_common.learning", "import prometheus_client"),
    (LEARNING, "pfl_common.models", "from cryptography.hazmat.primitives import hashes"),
    (ROUND, "pfl_server.round", "import torch"),
    (ROUND, "pfl_server.round", "from time import monotonic"),
    (ROUND, "pfl_server.sampling", "import grpc.aio"),
    (ROUND, "pfl_server.sampling", "import asyncio"),
    (TRANSPORTS, "pfl_server.transport", "import torch"),
    (TRANSPORTS, "pfl_server.transport", "from pfl_common.methods import first"),
    (TRANSPORTS, "pfl_client.transport", "from pfl_common import methods"),
    (TRANSPORTS, "pfl_server.enrolment", "import torch"),
    (TRANSPORTS, "pfl_common.speech", "import torch"),
    (WIRE, "pfl_server.training", "from pfl_common import wire"),
    (WIRE, "pfl_client.daemon", "from pfl_common.wire import coordinator_pb2"),
    (WIRE, "pfl_common.messages", "import pfl_common.wire"),
    (SPEECH, "pfl_server.training", "from pfl_common.speech import tell"),
    (SPEECH, "pfl_client.daemon", "from pfl_common import speech"),
    (ZEROMQ, "pfl_server.training", "import zmq"),
    (ZEROMQ, "pfl_common.run", "import zmq.asyncio"),
    (SIMULATOR, "pfl_deploy.simulate", "from pfl_server import transport"),
    (SIMULATOR, "pfl_deploy.simulate", "import pfl_client.transport"),
    (SIMULATOR, "pfl_deploy.simulate", "import pfl_client.ipc"),
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
    skeleton.plant("pfl_client.daemon", "import pfl_common.between\n")
    skeleton.plant("pfl_common.between", "import torch\n")
    verdict = skeleton.run("lint-imports", "--no-cache", "--no-logo")
    assert f"{DAEMON} BROKEN" in verdict.stdout


@pytest.mark.parametrize("module", ["pfl_server.transport", "pfl_client.transport"])
def test_a_transport_may_speak_the_wire(skeleton: Skeleton, module: str) -> None:
    """The contract on generated messages lets those through whom it is meant for."""
    skeleton.plant(module, "from pfl_common import wire\n")
    verdict = skeleton.run("lint-imports", "--no-cache", "--no-logo")
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr


def test_every_contract_has_a_violation() -> None:
    """A contract that nobody has seen fail is not a contract."""
    planted = {contract for contract, _, _ in VIOLATIONS}
    assert planted == {contract["name"] for contract in list_contracts()}
