"""A trainer's memory is held to a limit: in a cgroup where one can be made, by its own limit elsewhere."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import structlog

from pfl_client.trainer_process import memory_limit
from pfl_client.trainer_process.api import DataFolder
from pfl_client.trainer_process.memory_limit import SITE_GROUP, Held, hold
from pfl_client.trainer_process.process import TrainerProcess, describe_end
from pfl_client.trainer_process.task_errors import OutOfMemory
from pfl_common.errors import SettingError

LIMIT = 512 << 20


def system(root: Path, *, given: str = "", has: str = "cpu memory", procs: str | None = None) -> Path:
    """Files as a machine with cgroups of version 2 has them; children of this process's group may have `given`."""
    group = root / "sys/fs/cgroup/site.service"
    group.mkdir(parents=True)
    (group / "cgroup.controllers").write_text(has)
    (group / "cgroup.subtree_control").write_text(given)
    (group / "cgroup.procs").write_text(str(os.getpid()) if procs is None else procs)
    place = root / "proc/self"
    place.mkdir(parents=True)
    (place / "mounts").write_text("proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    (place / "cgroup").write_text("0::/site.service\n")
    return group


def waiting() -> subprocess.Popen[bytes]:
    """A process that waits for its input."""
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def test_in_a_cgroup_below_the_own(tmp_path: Path) -> None:
    """Its children can have a limit already."""
    group = system(tmp_path, given="cpu memory")
    held = hold(12, LIMIT, system=tmp_path)
    own = group / "pfl-trainer-12"
    assert Held(LIMIT, own) == held
    assert ("cgroup", str(LIMIT), "12") == (
        held.means,
        (own / "memory.max").read_text(),
        (own / "cgroup.procs").read_text(),
    )
    (own / "memory.events").write_text("oom 1\noom_kill 1\n")
    assert "it needed more: --memory-limit allows it 512 MiB" in describe_end(-9, held)
    (own / "memory.events").write_text("oom 0\noom_kill 0\n")
    assert "most often the system had no memory left" in describe_end(-9, held)


def test_alone_in_its_cgroup_a_site_moves_aside(tmp_path: Path) -> None:
    """Then its own can give the controller to its children; the next trainer's lies beside the first one's."""
    group = system(tmp_path)
    assert group / "pfl-trainer-12" == hold(12, LIMIT, system=tmp_path).group
    assert (str(os.getpid()), "+memory") == (
        (group / SITE_GROUP / "cgroup.procs").read_text(),
        (group / "cgroup.subtree_control").read_text(),
    )
    (tmp_path / "proc/self/cgroup").write_text(f"0::/site.service/{SITE_GROUP}\n")
    (group / "cgroup.subtree_control").write_text("memory")
    assert group / "pfl-trainer-13" == hold(13, LIMIT, system=tmp_path).group


@pytest.mark.parametrize(
    "lacking",
    [{"has": "cpu"}, {"procs": f"1\n{os.getpid()}\n"}, None],
    ids=["no controller", "others in it", "none"],
)
def test_elsewhere_by_the_process_itself(tmp_path: Path, lacking: dict[str, str] | None) -> None:
    """No cgroup is changed then."""
    if lacking is not None:
        system(tmp_path, **lacking)
    with waiting() as process:
        held = hold(process.pid, LIMIT, system=tmp_path)
        assert (LIMIT, LIMIT) == resource.prlimit(process.pid, resource.RLIMIT_DATA)
        process.communicate(b"\n")
    assert ("RLIMIT_DATA", []) == (held.means, list(tmp_path.rglob("pfl-*")))
    assert "--memory-limit allows it 512 MiB" in describe_end(-6, held)


def test_another_system_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than a limit that does not hold."""
    monkeypatch.setattr(memory_limit.sys, "platform", "darwin")
    with pytest.raises(SettingError, match="does not hold a process"):
        hold(os.getpid(), LIMIT)


async def test_a_trainer_reads_more_than_it_may_have(tmp_path: Path) -> None:
    """Its samples lie on the disk. Without a cache the task is declined in words, and the trainer lives."""
    shape = (250, 3, 224, 224)
    for part, count in (("train", shape[0]), ("test", 4)):
        np.savez(
            tmp_path / f"{part}.npz", x=np.full((count, *shape[1:]), 0.5, np.float32), y=np.arange(count) % 2
        )
    held = DataFolder(tmp_path, "site", device="cpu")
    trainer = TrainerProcess(tmp_path / "state", memory_limit=LIMIT)
    try:
        with (
            structlog.testing.capture_logs() as logs,
            pytest.raises(OutOfMemory, match="too little memory to read"),
        ):
            await trainer.describe(held)
        pid = trainer.pid
        cached = replace(held, cache=tmp_path / "cache", cache_bytes=1 << 30, in_memory=1 << 20)
        assert shape[1:] == (await trainer.describe(cached)).shape
        assert pid == trainer.pid
        assert [512] == [one["mib"] for one in logs if one["event"] == "the trainer's memory is limited"]
    finally:
        await trainer.close()
