"""Checks the state of this machine's sites (keys, vaults, running daemons) without changing anything."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pfl_common.errors import IdentityError
from pfl_common.files import locks, private
from pfl_common.identity.certificates import federation_of, load_certificates
from pfl_deploy.doctor.policy import examine_policy
from pfl_deploy.doctor.result import Check, error, guarded, of_error, ok, warning

SOON_DAYS = 5
_LOCKS = Path("/proc/locks")


def examine(state: Path) -> Iterator[Check]:
    """Every site of every federation below a state folder."""
    folders = (
        [site for site in sorted(state.glob("*/*")) if (site / "keys").is_dir()] if state.is_dir() else []
    )
    if not folders:
        yield ok("sites", f"none has joined a federation from here yet (looked in {state})")
        yield from guarded("sites, policy", partial(examine_policy, "sites", state))
    for folder in folders:
        yield from guarded(f"site {folder.name}", partial(examine_site, folder))


def examine_site(folder: Path) -> Iterator[Check]:
    """One site: its daemon and trainer, its keys, its data's place, and what it keeps of each run."""
    about = f"site {folder.name}"
    yield from _daemon(about, folder)
    yield from _permissions(about, folder)
    yield from _federation(about, folder)
    yield _keys(about, folder)
    yield from guarded(f"{about}, policy", partial(examine_policy, about, folder, folder.parents[1]))
    note = folder / "data.txt"
    if note.is_file() and not Path(note.read_text()).is_dir():
        yield warning(
            about,
            f"its data folder is not there: {note.read_text()}",
            advice="mount it, or start pfl-client with the folder's new place and --name",
        )
    yield from _runs(about, folder)


def _daemon(about: str, folder: Path) -> Iterator[Check]:
    holder = held_by(folder / "site.lock")
    if holder is None:
        yield ok(about, f"no pfl-client is at work; state in {folder}")
        return
    yield ok(about, f"pfl-client is at work{f' (process {holder})' if holder else ''}; state in {folder}")
    for trainer in list_trainers(holder):
        words = f"its trainer (process {trainer}) has niceness {os.getpriority(os.PRIO_PROCESS, trainer)}"
        yield ok(about, words)


def list_trainers(daemon: int, processes: Path = Path("/proc")) -> list[int]:
    """The trainers that a daemon has started; none where the system does not tell."""
    found = []
    for listed in processes.glob(f"{daemon}/task/*/children"):
        for child in listed.read_text().split():
            if b"pfl_client.trainer" in (processes / child / "cmdline").read_bytes():
                found.append(int(child))
    return sorted(found)


def _permissions(about: str, folder: Path) -> Iterator[Check]:
    """Keys that others can read are refused by the programs when they open them; here all are named."""
    # Keys that were put aside are keys: what was sealed for them they open still.
    keys = sorted(folder.glob("keys*"))
    looks: list[Callable[[], object]] = [partial(private.check_folder, one) for one in keys]
    looks += [partial(private.read, file) for one in keys for file in sorted(one.glob("site.*"))]
    for look in looks:
        try:
            look()
        except (IdentityError, OSError) as refused:
            yield of_error(about, refused)
    if not os.access(folder, os.W_OK | os.X_OK):
        yield error(
            about,
            f"this user may not write to {folder}",
            advice=f"give it back: chown -R USER '{folder}'",
            code=4,
        )


def _federation(about: str, folder: Path) -> Iterator[Check]:
    """A site's folder lies in its federation's; one that was moved or copied there has keys of another."""
    file = folder / "keys" / "site.pem"
    if not file.is_file():
        return
    held = load_certificates(file.read_bytes(), where=str(file))
    found = federation_of(held[-1])
    if found != folder.parent.name:
        advice = f"move it to {folder.parent.parent / found / folder.name}, or away"
        yield error(
            about,
            f"its keys are of the federation {found}, and it lies in that of {folder.parent.name}",
            advice=advice,
            code=4,
        )


def held_by(lock: Path) -> int | None:
    """The process that holds a lock file, 0 if one does and the system does not tell which; None: nobody."""
    if not lock.exists():
        return None
    if _LOCKS.exists():
        inode = f":{lock.stat().st_ino}"
        lines = (line.split() for line in _LOCKS.read_text().splitlines())
        return next((int(line[4]) for line in lines if len(line) > 5 and line[5].endswith(inode)), None)
    return 0 if locks.is_held(lock) else None


def _keys(about: str, folder: Path) -> Check:
    file = folder / "keys" / "site.pem"
    if not file.is_file():
        return warning(
            about, "has keys and no certificate yet", advice="start pfl-client: it enrols by itself"
        )
    certificate = load_certificates(file.read_bytes(), where=str(file))[0]
    now, end = datetime.now(UTC), certificate.not_valid_after_utc
    left = (end - now).days
    if now < certificate.not_valid_before_utc:
        begins = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M}"
        words = f"its certificate begins at {begins} UTC, and here it is {now:%Y-%m-%d %H:%M} UTC"
        return error(about, words, advice="set this machine's clock (look at it with: date -u)", code=75)
    if now > end:
        advice = (
            f"on the coordinator's own machine pfl-client renews it by itself; elsewhere ask the operator for: "
            f"pfl invite {folder.name} --again"
        )
        return error(about, f"its certificate ended on {end:%Y-%m-%d %H:%M} UTC", advice=advice, code=2)
    words = f"keys are good until {end:%Y-%m-%d}, {left} days"
    if left < SOON_DAYS:
        return warning(
            about, words, advice="start pfl-client while the coordinator runs: it renews them by itself"
        )
    return ok(about, words)


def _runs(about: str, folder: Path) -> Iterator[Check]:
    for run in sorted((folder / "runs").glob("*")):
        yield from guarded(f"{about}, run {run.name}", partial(_vault, about, run))


def _vault(about: str, run: Path) -> Iterator[Check]:
    """Check that the files named by the vault's pointer exist; the programs do so only when they open it."""
    about = f"{about}, run {run.name}"
    pointer = run / "vault.json"
    served = (run / "serving" / "serving.safetensors").is_file()
    model = "its model for predictions is there" if served else "no model for predictions yet"
    if not pointer.is_file():
        yield ok(about, f"nothing of its own is kept yet; {model}")
        return
    advice = (
        "bring the site's folder back from a copy, or move this run's folder away: the site begins it anew"
    )
    try:
        content = json.loads(pointer.read_text())
        named, owner = [str(one["file"]) for one in content["generations"]], content.get("owner", {})
    except (ValueError, KeyError, TypeError, AttributeError):
        yield error(about, f"{pointer} is damaged", advice=advice, code=4)
        return
    mine = {"run": run.name, "site": run.parents[1].name}
    foreign = [f"{what} {owner[what]}" for what in mine if owner.get(what, mine[what]) != mine[what]]
    missing = [name for name in named if not (run / "generations" / name).is_file()]
    torn = [name for name in named if name not in missing and not is_whole(run / "generations" / name)]
    if foreign:
        yield error(
            about,
            f"the vault belongs to {' and '.join(foreign)}",
            advice="move this run's folder to where it belongs, or away",
            code=4,
        )
    elif missing or torn:
        why = f"{missing[0]}, which is not there" if missing else f"{torn[0]}, which is damaged"
        yield error(about, f"the vault names {why}", advice=advice, code=4)
    else:
        yield ok(
            about, f"the vault is whole ({len(named)} generation{'s' if len(named) != 1 else ''}); {model}"
        )


def is_whole(file: Path) -> bool:
    """Whether a file of tensors is as long as its own header says."""
    size = file.stat().st_size
    with file.open("rb") as content:
        length = int.from_bytes(content.read(8), "little")
        if size < 8 or length > size - 8:
            return False
        try:
            header = json.loads(content.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return False
    return size == 8 + length + max(ends, default=0)
