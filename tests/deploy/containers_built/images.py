"""Build the images with buildah, without an engine and without a registry of images."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
TARGETS = ("coordinator", "site")
FOR_PIP = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT", "PIP_DEFAULT_TIMEOUT")
"""What the caller's pip goes by; the image's pip goes by it too."""
NOT_NEEDED = ("var/lib/apt/lists", "var/cache/apt", "usr/share/doc", "usr/share/man", "usr/share/locale")
"""What a base image of Debian leaves out as well."""
LONGEST_STEP = 1800


class Failed(Exception):
    """A command that had to succeed did not; its last words are the text."""


@dataclass(frozen=True)
class Builder:
    """buildah with a storage of its own, which nobody else uses and which is removed at the end."""

    scratch: Path

    def call(self, *words: str, seconds: float = LONGEST_STEP) -> str:
        """Run buildah to its end; gives what it printed."""
        return run(self.command(*words), seconds=seconds)

    def command(self, *words: str) -> list[str]:
        """The words that start buildah on this storage, behind whatever else the machine does."""
        store = ["--root", str(self.scratch / "store"), "--runroot", str(self.scratch / "run")]
        return ["nice", "-n", "15", "buildah", *store, "--storage-driver", "vfs", *words]

    def make_base(self, suite: str) -> str:
        """A base image from Debian's own packages; gives its name."""
        folder, context = self.scratch / "debian", self.scratch / "base"
        wanted = "--include=python3,python3-venv"
        run(["nice", "-n", "15", "debootstrap", "--variant=minbase", wanted, suite, str(folder)])
        for name in NOT_NEEDED:
            shutil.rmtree(folder / name, ignore_errors=True)
        context.mkdir()
        with tarfile.open(context / "base.tar", "w") as archive:
            archive.add(folder, arcname=".")
        shutil.rmtree(folder)
        (context / "Dockerfile").write_text(
            "FROM scratch\nADD base.tar /\nENV PATH=/usr/local/bin:/usr/bin:/bin\n"
        )
        self._bud("localhost/pfl-base", str(context))
        shutil.rmtree(context)
        return "localhost/pfl-base"

    def build(self, target: str, base: str) -> str:
        """One of our images on that base; gives its name."""
        name = f"localhost/pfl-{target}"
        file = ("-f", str(TOP / "deploy/docker/Dockerfile"), "--target", target, "--layers=true")
        self._bud(name, *file, "--build-arg", f"BASE={base}", *pip_words(os.environ), str(TOP))
        return name

    def configured(self, image: str) -> dict[str, object]:
        """What an engine would read of an image before it starts it."""
        found: dict[str, object] = json.loads(self.call("inspect", "--type", "image", image))["Docker"][
            "config"
        ]
        return found

    def size(self, image: str) -> str:
        """An image unpacked, as buildah words it."""
        return str(json.loads(self.call("images", "--json", image))[0]["size"])

    def _bud(self, name: str, *words: str) -> None:
        # OCI's own format has no place for a health check.
        self.call("bud", "--isolation", "chroot", "--format", "docker", "-t", name, *words)


def run(command: Sequence[str], *, seconds: float = LONGEST_STEP) -> str:
    """Run a command to its end; gives what it printed, or fails with its last words."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
        raise Failed(f"exit code {done.returncode} of: {' '.join(command)}\n{last}")
    return done.stdout


def pip_words(environ: Mapping[str, str]) -> Iterator[str]:
    """What of the caller's environment a build's pip needs, as words for buildah; local files are made reachable."""
    given = {name: environ[name] for name in FOR_PIP if environ.get(name)}
    for name, value in given.items():
        yield from ("--build-arg", f"{name}={value}")
    if environ.get("PFL_TORCH_INDEX"):
        yield from ("--build-arg", f"TORCH_INDEX={environ['PFL_TORCH_INDEX']}")
    settings = Path(environ.get("PIP_CONFIG_FILE") or os.devnull)
    if settings.is_file():
        yield from ("--secret", f"id=pip.conf,src={settings}")
        given["PIP_CONFIG_FILE"] = settings.read_text()
    for path in sorted({path for value in given.values() for path in local_paths(value)}):
        yield from ("--volume", f"{path}:{path}:ro")


def local_paths(value: str) -> Iterator[str]:
    """The files and folders of this machine that a setting of pip names."""
    for word in value.split():
        path = word.removeprefix("file://")
        if path.startswith("/") and Path(path).exists():
            yield path
