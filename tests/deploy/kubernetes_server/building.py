"""A real kube-apiserver, built once from Debian's source package and kept.

Debian ships the source of 1.20.2 and not the server. What it speaks is the API of that release: no PodDisruptionBudget
of policy/v1, no pod security labels. In return it is the very code that would judge our objects, not a schema of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.deploy.kubernetes_server.kubectl import cache_folder

VERSION = "1.20.2"
GO = Path("/usr/lib/go-1.19/bin/go")
REFLECT = Path("/usr/share/gocode/src/github.com/modern-go/reflect2")
NEEDED = {
    "apt-get": "apt",
    "dpkg-source": "dpkg-dev",
    "etcd": "etcd-server",
    str(GO): "golang-1.19-go",
    str(REFLECT): "golang-github-modern-go-reflect2-dev",
}
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
RELEASE = "bookworm"
"""Debian's release that has this source."""
MODULE = "k8s.io/kubernetes"
LEFT_OUT = ("_examples", "sample-", "testdata")
"""Folders that belong to examples."""


def missing() -> list[str]:
    """Debian packages without which there is no API server here."""
    absent = {path for path in NEEDED if not (Path(path).exists() if "/" in path else shutil.which(path))}
    return sorted(NEEDED[path] for path in absent)


def apiserver() -> Path:
    """The kept one, or a new one: about four minutes of one processor."""
    kept = cache_folder() / f"kube-apiserver-{VERSION}"
    if kept.is_file():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="building-") as folder:
        # A path of Go's old kind, in which the tree stands under its own name.
        tree = Path(folder) / "go" / "src" / MODULE
        _bring_source(Path(folder), tree)
        environment = _go_environment(Path(folder))
        _generate_descriptions(tree, environment)
        made = Path(folder) / "kube-apiserver"
        _build(tree, made, environment)
        made.replace(kept)
    return kept


def _bring_source(folder: Path, tree: Path) -> None:
    """Debian's source with its patches, by lists of our own: the machine's name packages, and need not name sources."""
    (folder / "sources.list").write_text(_sources())
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    settings = {
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root" if os.geteuid() == 0 else "",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    _run(["apt-get", *options, "update"], folder)
    _run(["apt-get", *options, "source", "--download-only", "kubernetes"], folder)
    [description] = folder.glob("kubernetes_*.dsc")
    # apt has compared the hashes already; the uploader's own key is in no keyring of a plain machine.
    tree.parent.mkdir(parents=True)
    _run(["dpkg-source", "--no-check", "-x", str(description), str(tree)], folder)
    # The copy of that time reads maps as Go did before 1.18: with ours, objects of custom kinds bring the server down.
    vendored = tree / "vendor" / "github.com" / "modern-go" / "reflect2"
    shutil.rmtree(vendored)
    shutil.copytree(REFLECT, vendored)


def _sources() -> str:
    """From where this machine has its packages, their sources too."""
    words = [
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI) $(RELEASE) $(COMPONENT)",
        "Created-By: Packages",
    ]
    told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    found = {line for line in told.splitlines() if line.split()[1:] == [RELEASE, "main"]}
    if not found:
        raise SystemExit(f"no source of Debian's {RELEASE} among this machine's; expected: one with main")
    return "".join(f"deb-src [signed-by={KEYRING}] {line}\n" for line in sorted(found))


def _go_environment(folder: Path) -> dict[str, str]:
    own = {"GOPATH": str(folder / "go"), "GOCACHE": str(folder / "gocache"), "GOFLAGS": ""}
    return {**os.environ, **own, "GO111MODULE": "off", "CGO_ENABLED": "0"}


def _generate_descriptions(tree: Path, environment: Mapping[str, str]) -> None:
    """The server's own description of its API, which kubectl checks fields by; it is not part of the source."""
    generator = Path(environment["GOPATH"]) / "openapi-gen"
    package = "./vendor/k8s.io/kube-openapi/cmd/openapi-gen"
    _run([str(GO), "build", "-o", str(generator), package], tree, environment)
    command = [str(generator), "--logtostderr", "-O", "zz_generated.openapi"]
    command += ["--go-header-file", "hack/boilerplate/boilerplate.generatego.txt"]
    command += ["-i", ",".join(_described(tree)), "-p", f"{MODULE}/pkg/generated/openapi"]
    command += ["--output-base", str(tree.parents[1]), "-r", os.devnull]
    _run(command, tree, environment)


def _described(tree: Path) -> list[str]:
    """The packages that ask to be described."""
    found = set()
    for top in ("staging/src/k8s.io", "pkg", "cmd"):
        for file in (tree / top).rglob("*.go"):
            if b"+k8s:openapi-gen=" in file.read_bytes():
                found.add(str(file.parent.relative_to(tree)))
    wanted = sorted(name for name in found if not any(part in name for part in LEFT_OUT))
    return [f"{MODULE}/{name.replace('staging/src/', 'vendor/', 1)}" for name in wanted]


def _build(tree: Path, made: Path, environment: Mapping[str, str]) -> None:
    facts = {"gitVersion": f"v{VERSION}", "gitMajor": "1", "gitMinor": "20"}
    flags = ["-s", "-w"]
    for package in ("component-base", "client-go/pkg"):
        where = f"{MODULE}/vendor/k8s.io/{package}/version"
        flags += [word for name, value in facts.items() for word in ("-X", f"{where}.{name}={value}")]
    command = [str(GO), "build", "-trimpath", "-ldflags", " ".join(flags), "-o", str(made)]
    _run([*command, "./cmd/kube-apiserver"], tree, environment)


def _run(command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    said = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    if said.returncode != 0:
        words = "\n".join([*said.stdout.splitlines()[-20:], *said.stderr.splitlines()[-20:]])
        raise SystemExit(f"{' '.join(command[:3])} … ended with {said.returncode}:\n{words}")
