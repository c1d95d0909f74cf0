"""The story of `tests/containers`: build, start, train, look, stop, start again, clean up; says what it saw."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.deploy.containers_built import boxes
from tests.deploy.containers_built.boxes import Box
from tests.deploy.containers_built.images import TARGETS, TOP, Builder, Failed

SITES = ("mnist", "optdigits")
ROUNDS = 2
NETWORK = "torchvision:resnet18"
"""One of torchvision's: it is in the images only if they train it."""
NEEDED = {"buildah": "buildah", "debootstrap": "debootstrap"}
NOT_RUN = (
    "the CUDA variant; compose.yaml, which needs an engine; Prometheus, Alertmanager and Grafana in containers;"
    " a base from a registry of images"
)
WRITABLE = {"/tmp", "/var/tmp", "/run/lock", "/var/lib/pfl", "/invitation"}


def main(words: list[str]) -> int:
    """Do all of it; gives the exit code."""
    lacking = [package for program, package in NEEDED.items() if not shutil.which(program)]
    if os.geteuid() or lacking:
        say(f"this needs root and the packages {', '.join(NEEDED.values())}; lacking: {lacking or 'root'}")
        return 2
    try:
        with scratch_folder(keep="--keep" in words) as folder:
            play(Builder(folder), os.environ.get("PFL_CONTAINERS_BASE", ""))
    except Failed as failure:
        say(f"FAILED: {failure}")
        return 1
    say(f"not run here: {NOT_RUN}")
    return 0


def play(builder: Builder, base: str) -> None:
    """Build the images, then let a federation of containers train."""
    built = build(builder, base)
    running: list[Box] = []
    try:
        federation(builder, built, running)
    finally:
        end_all(running)


def build(builder: Builder, base: str) -> dict[str, str]:
    """The images by target, with their sizes and the time they took."""
    began = time.monotonic()
    base = base or builder.make_base(os.environ.get("PFL_DEBIAN_SUITE", "bookworm"))
    say(f"base {base}: {builder.size(base)}, {time.monotonic() - began:.0f} s")
    built = {}
    for target in TARGETS:
        began = time.monotonic()
        built[target] = builder.build(target, base)
        say(f"image {target}: {builder.size(built[target])} unpacked, {time.monotonic() - began:.0f} s")
    return built


def federation(builder: Builder, built: dict[str, str], running: list[Box]) -> None:
    """A coordinator and its sites, each in a container, from the first invitation to a second start."""
    control, enrol, http, *sites_http = boxes.free_ports(3 + len(SITES))
    state = boxes.private_folder(builder.scratch / "volumes" / "coordinator")
    letters = boxes.private_folder(builder.scratch / "volumes" / "invitations")
    coordinator = Box(
        builder,
        built["coordinator"],
        "coordinator",
        {state: "/var/lib/pfl", letters: "/invitation"},
        {"PFL_HOST": "127.0.0.1", "PFL_HTTP_PORT": str(http)},
    )
    coordinator.make()
    running.append(coordinator)
    words = ("--method", "dualfed", "--sites", str(len(SITES)), "--rounds", str(ROUNDS))
    words += ("--backbone", NETWORK, "--port", str(control), "--enrol-port", str(enrol))
    start_coordinator(coordinator, state, words)
    for name, port in zip(SITES, sites_http, strict=True):
        running.append(start_site(builder, built["site"], invited(coordinator, letters, name), port))
    watch_training(running)
    check_places(builder, running)
    restart(coordinator, state, words)


def start_coordinator(box: Box, state: Path, words: tuple[str, ...]) -> None:
    """Start it and wait until its own health check is content; before that the check must not be."""
    expect(not box.check_health(), "the health check fails while nothing runs")
    box.start(*words)
    box.wait_for(lambda: any((state / "pfl" / "coordinators").glob("*.json")), "open ports", seconds=120)
    seconds = box.wait_for(box.check_health, "healthy coordinator", seconds=60)
    expect(boxes.user_of(boxes.coordinator_pid(state)) == boxes.USER, "the coordinator runs as user 10001")
    say(f"coordinator healthy ({seconds:.1f} s after its ports)")


def invited(coordinator: Box, letters: Path, name: str) -> Path:
    """The folder with one site's invitation, written by the image's one-shot; a second call changes nothing."""
    written = []
    for _ in range(2):
        done = coordinator.call("invite-once", name)
        expect(done.returncode == 0, f"{name} is invited: {done.stdout + done.stderr}")
        # By the file: the words of a program as short as this sometimes do not get through buildah.
        written.append((letters / f"{name}.join").read_bytes())
    expect(written[0] == written[1], f"{name} is invited once: the second call wrote another invitation")
    own = boxes.private_folder(letters.parent / f"invitation-{name}")
    (letters / f"{name}.join").rename(own / f"{name}.join")
    return own


def start_site(builder: Builder, image: str, letter: Path, port: int) -> Box:
    """A site with its sample of digits and its invitation, both only to be read."""
    name = letter.name.removeprefix("invitation-")
    state = boxes.private_folder(letter.parent / f"site-{name}")
    volumes = {
        state: "/var/lib/pfl",
        letter: "/invitation:ro",
        TOP / "deploy/samples/digits" / name: "/data:ro",
    }
    box = Box(builder, image, name, volumes, {"PFL_HTTP_HOST": "127.0.0.1", "PFL_HTTP_PORT": str(port)})
    box.make()
    box.start("--join", f"/invitation/{name}.join")
    box.wait_for(box.check_health, "healthy site", seconds=180)
    say(f"site {name} healthy")
    return box


def watch_training(running: list[Box]) -> None:
    """Wait for the sites to end by themselves; the coordinator's own status must say that all was done."""
    began = time.monotonic()
    coordinator, *sites = running
    for site in sites:
        code = site.started[-1].wait(600)
        expect(code == 0, f"{site.name} ends with 0, not {code}:\n{site.said()}")
    asked = coordinator.call("pfl", "status", "--json")
    expect(asked.returncode == 0, f"pfl status answers: {asked.stderr}")
    status = json.loads(asked.stdout)
    expect(("finished", ROUNDS) == (status["status"], status["round"]), f"finished: {status['status']}")
    accuracy = {name: round(value, 3) for name, value in status["scores"].items() if "macro" in name}
    say(
        f"{ROUNDS} rounds of dualfed with {len(sites)} sites: {time.monotonic() - began:.0f} s {accuracy or ''}"
    )


def check_places(builder: Builder, running: list[Box]) -> None:
    """Nothing was written outside volumes, and the user could not have: a read-only root takes nothing away."""
    search = "find / -xdev -writable ! -type l ! -path '/proc/*' ! -path '/dev/*' ! -path '/var/lib/pfl/*' 2>/dev/null"
    for box in running:
        found = set(box.call("sh", "-c", search + " || true").stdout.split())
        expect(
            found <= WRITABLE | {"/etc/hosts", "/etc/resolv.conf"},
            f"{box.name} may write in {found - WRITABLE}",
        )
        root = Path(builder.call("mount", box.name).strip())
        places = ("tmp", "var", "opt", "run", "usr")
        made = [str(p.relative_to(root)) for place in places for p in newer_files(root / place, root)]
        expect(not made, f"{box.name} wrote outside its volumes: {made[:5]}")
    say("nothing was written outside the volumes, nor could it be")


def newer_files(folder: Path, root: Path) -> Iterator[Path]:
    """Files made since the container was."""
    made = root.stat().st_ctime
    return (path for path in folder.rglob("*") if path.is_file() and path.lstat().st_mtime > made)


def restart(box: Box, state: Path, words: tuple[str, ...]) -> None:
    """SIGTERM ends it with 0; the same command on the same volume goes on with the same run."""
    before = json.loads(box.call("pfl", "status", "--json").stdout)["run"]
    began = time.monotonic()
    os.kill(boxes.coordinator_pid(state), signal.SIGTERM)
    code = box.started[-1].wait(60)
    expect(code == 0, f"SIGTERM ends the coordinator with 0, not {code}:\n{box.said()}")
    say(f"coordinator stopped {time.monotonic() - began:.1f} s after SIGTERM")
    start_coordinator(box, state, words)
    after = json.loads(box.call("pfl", "status", "--json").stdout)["run"]
    expect(before == after, f"the same run after a restart: {before}, {after}")
    os.kill(boxes.coordinator_pid(state), signal.SIGTERM)
    box.started[-1].wait(60)


def end_all(running: list[Box]) -> None:
    """Whatever still runs is ended: each program has a session of its own, so its number reaches all of it."""
    left = [process for box in running for process in box.started if process.poll() is None]
    for process in left:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


@contextmanager
def scratch_folder(*, keep: bool) -> Iterator[Path]:
    """A folder for everything, about 15 GB at its fullest; it is gone afterwards."""
    within = os.environ.get("PFL_CONTAINERS_SCRATCH") or None
    folder = Path(tempfile.mkdtemp(prefix="pfl-containers-", dir=within))
    folder.chmod(0o755)  # the images' user reaches its volumes through it
    try:
        yield folder
    finally:
        if keep:
            say(f"kept: {folder}")
        else:
            clear(Builder(folder))


def clear(builder: Builder) -> None:
    """Containers, images, volumes, all of it."""
    for words in (("rm", "--all"), ("rmi", "--all", "--force")):
        subprocess.run(builder.command(*words), capture_output=True, timeout=600, check=False)
    shutil.rmtree(builder.scratch)


def expect(truth: bool, words: str) -> None:
    """What has to hold."""
    if not truth:
        raise Failed(f"expected: {words}")


def say(words: str) -> None:
    """One line of what was seen."""
    sys.stdout.write(words + "\n")
    sys.stdout.flush()
