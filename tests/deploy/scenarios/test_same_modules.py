"""The simulator is the product without its network: what it loads and what the programs load differ in seams only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy.support.processes import Machine, write_site

WITNESS = """
import os, sys

class Witness:
    book = open(os.path.join({folder!r}, str(os.getpid())), "a", buffering=1)

    def find_spec(self, name, path=None, target=None):
        if name.startswith("pfl_"):
            self.book.write(name + "\\n")

sys.meta_path.insert(0, Witness())
"""

TRANSPORT = {
    "pfl_client.connection.bulk",
    "pfl_client.connection.certificate_renewal",
    "pfl_client.connection.channel",
    "pfl_client.onboarding.enrolment",
    "pfl_client.connection.message_values",
    "pfl_client.connection.grpc_link",
    "pfl_common.wire.carrying",
    "pfl_common.wire.parts",
    "pfl_common.wire.convert",
    "pfl_common.wire",
    "pfl_common.wire.administration_pb2",
    "pfl_common.wire.coordinator_pb2",
    "pfl_common.wire.enrolment_pb2",
    "pfl_common.wire.refusal_pb2",
    "pfl_server.network",
    "pfl_server.network.administration",
    "pfl_server.network.bulk",
    "pfl_server.network.caller_limits",
    "pfl_server.network.port_limits",
    "pfl_server.network.requests",
    "pfl_common.wire.limits",
    "pfl_server.network.proxies",
    "pfl_server.network.shown_identity",
    "pfl_server.network.renewal",
    "pfl_server.network.rpc",
    "pfl_server.network.enrolment_port",
    "pfl_server.network.server",
    "pfl_server.network.shared_frames",
}
IPC = {
    "pfl_client.trainer_process.mailbox",
    "pfl_client.trainer_process.memory_limit",
    "pfl_client.trainer_process.protocol",
    "pfl_client.trainer_process.process",
    "pfl_client.trainer.__main__",
    "pfl_client.trainer.loop",
}
SEALING = {
    "pfl_client.envelopes.sealed",
    "pfl_common.sealing",
    "pfl_common.sealing.arriving_frames",
    "pfl_common.sealing.calls",
    "pfl_common.sealing.content_key",
    "pfl_common.sealing.frame_cipher",
    "pfl_common.sealing.parcels",
    "pfl_common.sealing.frame_format",
    "pfl_common.sealing.signatures",
    "pfl_common.sealing.streams",
    "pfl_server.envelopes.sealed",
}
PROGRAMS = {
    "pfl_client.onboarding",
    "pfl_client.onboarding.admission",
    "pfl_client.onboarding.preflight",
    "pfl_client.cli",
    "pfl_client.connection.clock_check",
    "pfl_client.daemon.exporter",
    "pfl_client.policy.policy_file",
    "pfl_client.process",
    "pfl_common.app.called_off",
    "pfl_common.files.descriptors",
    "pfl_common.identity.authority",
    "pfl_common.identity.invitation_ledger",
    "pfl_common.identity.issuing",
    "pfl_common.identity.key_place",
    "pfl_common.identity.site_cards",
    "pfl_server.status.connections",
    "pfl_server.process",
    "pfl_common.spec.status_json",
    "pfl_server.status",
    "pfl_server.status.exporter",
    "pfl_server.status.page",
    "pfl_server.status.probe",
    "pfl_server.status.view",
    "pfl_server.status.http",
}
"""What makes a process of it: words, signals, who is admitted, ports for health and metrics."""
SIMULATOR = {
    "pfl_deploy.operator.cli",
    "pfl_deploy",
    "pfl_deploy.cli",
    "pfl_deploy.simulation.loopback",
    "pfl_deploy.simulation.previous",
    "pfl_deploy.report",
    "pfl_deploy.report.formatting",
    "pfl_deploy.report.sources",
    "pfl_deploy.report.sources.coordinator",
    "pfl_deploy.simulation",
    "pfl_deploy.operator",
    "pfl_deploy.simulation.tables",
    "pfl_deploy.simulation.simulate",
    "pfl_deploy.operator.status_text",
    "pfl_deploy.prediction",
    "pfl_deploy.prediction.cli",
}
"""Puts a federation together, and tells of the run that was kept before."""
CORE = {
    "pfl_client.daemon.loop",
    "pfl_client.run_folder.outbox",
    "pfl_client.trainer.tasks",
    "pfl_client.trainer.session",
    "pfl_client.run_folder.vault_generations",
    "pfl_common.tensors.codec",
    "pfl_common.methods.dualfed",
    "pfl_server.store.checkpoints",
    "pfl_server.sites.fleet",
    "pfl_server.run.host",
    "pfl_server.store.journal",
    "pfl_server.decisions.round",
    "pfl_server.decisions.sampling",
    "pfl_server.store.spool",
    "pfl_server.run.training",
}
"""Where a run happens: without these on both sides the comparison would say nothing."""


@dataclass
class Watched(Machine):
    """A machine on which every Python process writes down the modules it loads, trainers included."""

    @property
    def environment(self) -> Mapping[str, str]:
        """With a start file that every interpreter reads; a trainer that is killed has written down all the same."""
        start, books = self.home / "start", self.home / "books"
        for folder in (start, books):
            folder.mkdir(parents=True, exist_ok=True)
        (start / "sitecustomize.py").write_text(WITNESS.format(folder=str(books)))
        before = super().environment
        path = [str(start), *filter(None, [before.get("PYTHONPATH")])]
        return {**before, "PYTHONPATH": os.pathsep.join(path)}

    def loaded(self) -> set[str]:
        """What all of them loaded together."""
        return {name for book in (self.home / "books").iterdir() for name in book.read_text().split()}


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Watched, Watched]]:
    """One for the real processes, one for the simulator."""
    both = (Watched(tmp_path / "network"), Watched(tmp_path / "alone"))
    yield both
    for machine in both:
        machine.end_all()


def test_only_the_seams_differ(machines: tuple[Watched, Watched], tmp_path: Path) -> None:
    """Both programs and the trainer on one side, `pfl simulate` on the other, one run each: no module more or less."""
    network, alone = machines
    folders = [write_site(tmp_path / "data" / f"hospital_{x}", samples=12, size=12) for x in "ab"]
    words = ("--method", "dualfed", "--rounds", "1")
    server = network.server(*words)
    clients = [network.client(folder) for folder in folders]
    assert [0, 0] == [network.finish(c, log=f.name) for c, f in zip(clients, folders, strict=True)]
    assert 0 == network.stop(server)
    assert 0 == alone.call("pfl", "simulate", "--data", tmp_path / "data", *words).returncode

    real, simulated = network.loaded(), alone.loaded()
    assert set() == CORE - (real & simulated)
    assert TRANSPORT | IPC | SEALING | PROGRAMS == real - simulated
    assert SIMULATOR == simulated - real
