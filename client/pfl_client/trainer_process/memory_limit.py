"""Holds a trainer to an amount of memory: by a cgroup where this process may make one, else by a limit of its own.

In a cgroup (version 2) all memory of the trainer counts, mapped files too, which the system takes back when it must; a
trainer that needs more is killed. Elsewhere RLIMIT_DATA bounds what it may allocate; an allocation beyond it fails, and
the task is declined in words. Mapped files do not count there.
"""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pfl_common.errors import SettingError

SITE_GROUP = "pfl-site"
"""Where this process moves to in its own cgroup: only one without processes may give controllers to those below it."""


@dataclass(frozen=True)
class Held:
    """A process that is held to so many bytes."""

    limit: int
    group: Path | None = None
    """Its cgroup; None: it is held by its own limit."""

    @property
    def means(self) -> str:
        """What holds it, for the log."""
        return "RLIMIT_DATA" if self.group is None else "cgroup"

    def explain(self) -> str:
        """What the limit may have to do with its end; empty if nothing."""
        spelled = f"--memory-limit allows it {self.limit / (1 << 20):.0f} MiB"
        if self.group is None:
            return f"; {spelled}, and not every library can go on without more"
        with suppress(OSError, ValueError):
            events = dict(line.split() for line in (self.group / "memory.events").read_text().splitlines())
            if int(events.get("oom_kill", 0)):
                return f"; it needed more: {spelled}"
        return ""

    def release(self) -> None:
        """Remove the cgroup of a process that has ended."""
        if self.group is not None:
            with suppress(OSError):
                self.group.rmdir()


def hold(pid: int, limit: int, *, system: Path = Path("/")) -> Held:
    """Hold a process of this user to so many bytes, before it has allocated any; `system` is the root of the files by
    which a system tells of itself.
    """
    if sys.platform != "linux":
        raise SettingError(
            "this system does not hold a process to an amount of memory",
            expected="Linux, for --memory-limit",
            advice="leave --memory-limit out, or start the site in a container with a limit",
        )
    group = _make_group(pid, limit, system)
    if group is None:
        resource.prlimit(pid, resource.RLIMIT_DATA, (limit, limit))
    return Held(limit, group)


def _make_group(pid: int, limit: int, system: Path) -> Path | None:
    """A cgroup with this limit and this process in it; None where this process may not make one."""
    try:
        parent = _find_parent(system)
        if parent is None:
            return None
        group = parent / f"pfl-trainer-{pid}"
        group.mkdir()
    except OSError:
        return None
    try:
        (group / "memory.max").write_text(str(limit))
        if (group / "memory.swap.max").exists():
            (group / "memory.swap.max").write_text("0")
        (group / "cgroup.procs").write_text(str(pid))
    except OSError:
        with suppress(OSError):
            group.rmdir()
        return None
    return group


def _find_parent(system: Path) -> Path | None:
    """The cgroup whose children can have a limit of memory; alone in its own, this process moves aside there."""
    own = _own_group(system)
    if own is None:
        return None
    parent = own.parent if own.name == SITE_GROUP else own
    if "memory" in (parent / "cgroup.subtree_control").read_text().split():
        return parent
    alone = (own / "cgroup.procs").read_text().split() == [str(os.getpid())]
    if not alone or "memory" not in (own / "cgroup.controllers").read_text().split():
        return None
    aside = own / SITE_GROUP
    aside.mkdir(exist_ok=True)
    (aside / "cgroup.procs").write_text(str(os.getpid()))
    try:
        (own / "cgroup.subtree_control").write_text("+memory")
    except OSError:
        (own / "cgroup.procs").write_text(str(os.getpid()))
        aside.rmdir()
        return None
    return own


def _own_group(system: Path) -> Path | None:
    """The folder of this process's cgroup of version 2."""
    mounts = (line.split() for line in (system / "proc/self/mounts").read_text().splitlines())
    place = next((words[1] for words in mounts if words[2] == "cgroup2"), None)
    lines = (system / "proc/self/cgroup").read_text().splitlines()
    inside = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    if place is None or inside is None:
        return None
    return system / place.lstrip("/") / inside.lstrip("/")
