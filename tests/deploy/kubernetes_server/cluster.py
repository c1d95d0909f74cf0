"""An API server with its etcd, on free loopback ports, for as long as it is needed. There are no nodes: no pod runs."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

READY_SECONDS = 90


@dataclass(frozen=True)
class Said:
    """What kubectl answered."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Cluster:
    """A way to talk to the API server."""

    kubectl: Path
    folder: Path
    server: subprocess.Popen[bytes]

    def check(self) -> None:
        """A server that has ended says nothing about manifests: its last words do."""
        if self.server.poll() is not None:
            raise SystemExit("the API server has ended:\n" + self.last_words())

    def last_words(self) -> str:
        """The end of the API server's log."""
        log = (self.folder / "apiserver.log").read_text(errors="replace").splitlines()
        return "\n".join(log[-40:])

    def ask(self, *words: str, objects: list[dict[str, object]] | None = None) -> Said:
        """One call of kubectl; objects go in by standard input."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}) if objects else ""
        return self.call([*words, *(["-f", "-"] if objects else [])], given=text, folder=self.folder)

    def call(self, words: list[str], *, given: str, folder: Path) -> Said:
        """One call of kubectl as somebody else put it."""
        said = subprocess.run(
            [str(self.kubectl), *words],
            input=given,
            cwd=folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.folder),
                "KUBECONFIG": str(self.folder / "config"),
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Said(said.returncode, said.stdout, said.stderr)


@contextmanager
def running(apiserver: Path, kubectl: Path) -> Iterator[Cluster]:
    """Both servers, with an administrator who may do everything."""
    started: list[subprocess.Popen[bytes]] = []
    folder = Path(tempfile.mkdtemp(prefix="pfl-kubernetes-"))
    try:
        store, peers, port = (_free_port() for _ in range(3))
        started.append(_start(_etcd(folder, store, peers), folder / "etcd.log"))
        token = secrets.token_hex(16)
        started.append(_start(_server(apiserver, folder, store, port, token), folder / "apiserver.log"))
        (folder / "config").write_text(_kubeconfig(port, token))
        cluster = Cluster(kubectl, folder, started[-1])
        _wait_until_ready(cluster)
        yield cluster
    finally:
        for process in reversed(started):
            process.terminate()
        for process in reversed(started):
            _end(process)
        shutil.rmtree(folder)


def _etcd(folder: Path, store: int, peers: int) -> list[str]:
    client, peer = f"http://127.0.0.1:{store}", f"http://127.0.0.1:{peers}"
    return [
        "etcd", "--data-dir", str(folder / "etcd"),
        "--listen-client-urls", client, "--advertise-client-urls", client,
        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
    ]  # fmt: skip


def _server(apiserver: Path, folder: Path, store: int, port: int, token: str) -> list[str]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    account = folder / "accounts.key"
    account.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    tokens = folder / "tokens.csv"
    tokens.write_text(f"{token},operator,operator,system:masters\n")
    return [
        str(apiserver), f"--etcd-servers=http://127.0.0.1:{store}", f"--cert-dir={folder / 'certificates'}",
        "--bind-address=127.0.0.1", f"--secure-port={port}", "--service-cluster-ip-range=10.0.0.0/24",
        f"--token-auth-file={tokens}", "--authorization-mode=RBAC",
        # Pods are judged by policy as the restricted level of newer releases would: see `restricted.yaml`.
        "--enable-admission-plugins=PodSecurityPolicy",
        "--service-account-issuer=https://localhost", f"--service-account-key-file={account}",
        f"--service-account-signing-key-file={account}",
    ]  # fmt: skip


def _kubeconfig(port: int, token: str) -> str:
    # It makes itself a certificate that nobody knows; both ends are on this machine's loopback.
    server = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    context = {"cluster": "here", "user": "operator"}
    return json.dumps(
        {
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": server}],
            "users": [{"name": "operator", "user": {"token": token}}],
            "contexts": [{"name": "here", "context": context}],
        }
    )  # fmt: skip


def _start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, cwd=log.parent)


def _wait_until_ready(cluster: Cluster) -> None:
    end = time.monotonic() + READY_SECONDS
    while cluster.ask("get", "--raw", "/readyz").out != "ok":
        cluster.check()
        if time.monotonic() > end:
            raise SystemExit("the API server did not come up:\n" + cluster.last_words())
        threading.Event().wait(0.2)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
