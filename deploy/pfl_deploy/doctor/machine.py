"""Checks the machine and its software: Python, torch, memory, disks, access to the network."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

from pfl_client.settings import ClientSettings
from pfl_common.errors import UserError, nearest
from pfl_deploy.doctor.result import GIB, Check, error, ok, warning
from pfl_server.settings import ServerSettings

OLDEST = (3, 11)
LITTLE_MEMORY, LITTLE_ROOM, NO_ROOM = GIB, GIB, 100 << 20
_PROXIES = ("https_proxy", "http_proxy", "grpc_proxy", "no_proxy", "no_grpc_proxy")
_OF_SCRIPTS = {"PFL_TORCH_INDEX", "PFL_PYTHON", "PFL_TAG", "PFL_PROMETHEUS_URL"}
"""Read by the scripts that install and start us."""


def examine(state: Path, environ: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """All that can be said without a coordinator and without data."""
    yield _python()
    yield _package()
    yield from _torch()
    yield _torchvision()
    yield _processor()
    yield _clock(datetime.now(UTC))
    yield _memory()
    yield _temporary(Path(tempfile.gettempdir()))
    yield _loopback()
    yield look_at_room("disk of the sites' state", state)
    yield from _proxies(environ)
    yield from _settings(environ)


def _python() -> Check:
    words = f"{platform.python_version()} ({sys.executable}), {platform.system()} {platform.machine()}"
    if sys.version_info < OLDEST:
        return error("Python", words, advice="install Python 3.11 or newer, then: deploy/environment")
    return ok("Python", words)


def _package() -> Check:
    try:
        return ok("pfl-net", version("pfl-net"))
    except PackageNotFoundError:
        return error("pfl-net", "is not installed as a package", advice="deploy/environment installs it")


def _torch() -> Iterator[Check]:
    try:
        import torch
    except (ImportError, OSError) as failed:
        advice = "deploy/environment installs the build that fits; PFL_TORCH_INDEX names its place"
        yield error("torch", f"cannot be loaded: {failed}", advice=advice)
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    capability = torch.backends.cpu.get_cpu_capability()
    yield ok(
        "torch", f"{torch.__version__}, CPU class {capability} on {cores} core{'s' if cores > 1 else ''}"
    )
    if torch.backends.mps.is_available():
        yield ok("GPU", "that of this Mac (mps): training runs there, without float64")
    elif not torch.cuda.is_available():
        yield ok("GPU", "none that torch can use: training runs on the CPU")
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, total = torch.cuda.mem_get_info(number)
        name = torch.cuda.get_device_name(number)
        yield ok("GPU", f"{name}: {free / GIB:.1f} of {total / GIB:.1f} GiB free")


def _torchvision() -> Check:
    advice = "deploy/environment installs the version that fits torch"
    try:
        from pfl_common.models.torchvision_import import declared_operators, import_torchvision

        found = import_torchvision()
    except UserError:
        return error("torchvision", "is not installed", advice=advice)
    except (ImportError, OSError, RuntimeError) as failed:
        return error("torchvision", f"cannot be loaded: {failed}", advice=advice)
    beside = ", beside a torch without CUDA" if declared_operators() else ""
    return ok("torchvision", f"{found.__version__}{beside}")


def _processor() -> Check:
    """What a trainer may take of this machine: a site's settings narrow it further."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    niceness, busy = os.getpriority(os.PRIO_PROCESS, 0), os.getloadavg()[0]
    words = f"{cores} of {os.cpu_count()} cores for programs started here, niceness {niceness}, {busy:.1f} at work now"
    return ok("processor", f"{words}; pfl-client --threads and --nice bound what training takes")


def _clock(now: datetime) -> Check:
    """Without a coordinator to compare with: no clock may be before the day our own files were written."""
    written = datetime.fromtimestamp(Path(__file__).stat().st_mtime, UTC)
    if now < written - timedelta(days=1):
        words = f"says {now:%Y-%m-%d %H:%M} UTC, and these programs were installed on {written:%Y-%m-%d}"
        return error("clock", words, advice="set this machine's clock (look at it with: date -u)", code=75)
    return ok("clock", f"{now:%Y-%m-%d %H:%M} UTC")


def _temporary(place: Path) -> Check:
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(bytes(1 << 16))
    except OSError as failed:
        advice = "make room there or give this user the right to write, or name another folder with TMPDIR"
        return error("temporary files", f"{place} takes none: {failed.strerror}", advice=advice, code=4)
    return ok("temporary files", f"{place} takes them")


def _loopback() -> Check:
    try:
        with socket.create_server(("127.0.0.1", 0)):
            return ok("ports", "this machine gives a free one")
    except OSError as failed:
        advice = "end programs that hold many connections, or bring the interface up: ip link set lo up"
        return error("ports", f"127.0.0.1 gives no free one: {failed.strerror}", advice=advice, code=75)


def _memory() -> Check:
    free = free_memory()
    if free is None:
        return ok("memory", "this system does not tell how much is free")
    words = f"{free / GIB:.1f} GiB free"
    if free < LITTLE_MEMORY:
        advice = "end other programs; a trainer needs some 0.5 GiB beside its data and model"
        return warning("memory", words, advice=advice)
    return ok("memory", words)


def free_memory() -> int | None:
    """Bytes that a new program could have, within a container's limit; None where the system does not tell."""
    found = [_number_after("MemAvailable:", Path("/proc/meminfo"), unit=1024)]
    group = Path("/sys/fs/cgroup")
    limit, used = _number_after("", group / "memory.max"), _number_after("", group / "memory.current")
    if limit is not None and used is not None:
        found.append(max(0, limit - used))
    known = [number for number in found if number is not None]
    return min(known) if known else None


def look_at_room(about: str, place: Path) -> Check:
    """Whether a state folder can be written, and how much fits on its disk."""
    there = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    words = f"{free / GIB:.1f} GiB free at {place}"
    if not os.access(there, os.W_OK | os.X_OK):
        advice = "give this user the folder, or name another with --state"
        return error(about, f"{words}, and this user may not write to {there}", advice=advice, code=4)
    if free < NO_ROOM:
        return error(about, words, advice="make room: keys, models and uploads have to lie there", code=4)
    if free < LITTLE_ROOM:
        return warning(about, words, advice="make room: a site keeps some four models there")
    return ok(about, words)


def _proxies(environ: Mapping[str, str]) -> Iterator[Check]:
    found = {name.lower(): value for name, value in environ.items() if name.lower() in _PROXIES and value}
    if not found:
        yield ok("proxy", "none in the environment: lines are dialled directly")
    for name, value in sorted(found.items()):
        if name.startswith("no_"):
            yield ok("proxy", f"{name}={value}: these are dialled directly")
        elif urlsplit(value).scheme != "http":
            advice = f"write {name}=http://HOST:PORT (the line through it is encrypted all the same)"
            yield warning("proxy", f"{name} is no http:// address: gRPC does not use it", advice=advice)
        else:
            yield ok("proxy", f"{name}={without_password(value)}: lines to other machines go through it")


def without_password(address: str) -> str:
    """A proxy's address as it can be shown: who logs in there and how is nobody's business."""
    parts = urlsplit(address)
    login = "***@" if "@" in parts.netloc else ""
    return f"{parts.scheme}://{login}{parts.netloc.rpartition('@')[2]}"


def _settings(environ: Mapping[str, str]) -> Iterator[Check]:
    """Nobody is told of a setting in the environment whose name is wrong: it is not read."""
    known = {
        f"PFL_{field.name.upper()}" for kind in (ServerSettings, ClientSettings) for field in fields(kind)
    }
    for name in sorted(name for name in environ if name.startswith("PFL_")):
        if name in known:
            yield ok("environment", f"{name} is set; a flag or --config wins over it")
        elif name not in _OF_SCRIPTS and not name.startswith("PFL_TEST_"):
            meant = nearest(name, known).partition("? known")[0]
            yield warning(
                "environment", f"{name} is no setting of ours", advice=f"{meant}?" if "mean" in meant else ""
            )


def _number_after(word: str, file: Path, *, unit: int = 1) -> int | None:
    """The number behind a word in a file of the system, if it is there and one."""
    try:
        line = next(line for line in file.read_text().splitlines() if line.startswith(word))
        return int(line.removeprefix(word).split()[0]) * unit
    except (OSError, ValueError, StopIteration, IndexError):
        return None
