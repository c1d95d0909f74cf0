"""The operator's commands (invite sites, show status, stop) on the coordinator's own machine."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from pfl_client.connection.link import NotAdmitted, Unreachable
from pfl_client.connection.operator_link import OperatorLink
from pfl_common.errors import SettingError, Unavailable, UserError, nearest
from pfl_common.identity import Authority, Found, Ledger, check_site_name, discovery, write_join_file
from pfl_common.identity.authority import CARDS_FOLDER
from pfl_common.identity.site_cards import SiteCards
from pfl_common.printable import printable
from pfl_common.spec import status_json
from pfl_common.spec.messages import RunStatus
from pfl_deploy.operator.status_text import (
    NAMED,
    tell_ago,
    tell_place,
    tell_rest,
    tell_rounds,
    tell_sentence,
    tell_stop,
    tell_troubles,
    tell_waiting,
    tell_warnings,
)

OVER = ("finished", "stopped", "failed")
"""How a run's status reads when it is over."""


def invite(name: str, *, server: str | None, under: str | None, out: Path | None, again: bool) -> Path:
    """Write the file that lets one site, once, enrol from anywhere, under one of the coordinator's names."""
    found, now = discovery.find(server), datetime.now(UTC)
    site = check_site_name(name)
    if under is not None and under not in found.names:
        raise SettingError(
            f"the coordinator is not known as {under!r}",
            expected=nearest(under, found.names),
            advice=f"start it with --advertise {','.join([*found.names, under])}: its certificate has to hold the name",
        )
    path = (out or Path.cwd()) / f"{site}.join"
    _check_place(path, again=again)
    ledger = Ledger(found.state_folder / "invitations", found.ca_pem)
    dialled = under or next(iter(found.names), "")
    addresses = found.addresses.under(dialled) if dialled else found.addresses
    invited = ledger.invite(site, now, addresses=addresses, again=again)
    invitation = replace(invited, hybrid=found.hybrid)
    # Only now: a site that was removed is heard again when it comes with this.
    SiteCards(found.state_folder / "federation" / CARDS_FOLDER, lambda: found.ca_pem).readmit(site)
    try:
        write_join_file(invitation, path, replace=again)
    except OSError as error:
        raise SettingError(
            f"{path} cannot be written: {error.strerror}",
            expected="a folder with room for a small file",
            advice=f"the name is taken: pfl invite {site} --again --out FOLDER",
        ) from None
    return path


def status_as_json(server: str | None) -> str:
    """The run at a glance as JSON, exactly as the status page reads it."""
    content = asyncio.run(_ask_status(discovery.find(server)))
    status_json.read(content)  # nothing is passed on that is no status
    return content.decode("ascii")


def status(server: str | None) -> RunStatus:
    """The run at a glance."""
    return status_json.read(asyncio.run(_ask_status(discovery.find(server))))


def stop(server: str | None) -> str:
    """End the run in good order: the round at work is finished, sites get their model. Gives what comes of it."""
    return tell_stop(asyncio.run(_ask_stop(discovery.find(server))))


def _check_place(path: Path, *, again: bool) -> None:
    """Before an invitation counts: a name is used up with it."""
    folder = path.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        why = "cannot be written in" if folder.is_dir() else "is not there"
        raise SettingError(
            f"the folder {folder} {why}",
            expected="a folder where the invitation can be written",
            advice="make it, or name another with --out",
        )
    if path.exists() and not again:
        raise SettingError(
            f"{path} exists already",
            expected="a name that is free",
            advice=f"remove the old file, name another folder with --out, or: pfl invite {path.stem} --again",
        )


async def _ask_status(found: Found) -> bytes:
    async with open_link(found) as link:
        try:
            return await link.status()
        except (Unreachable, NotAdmitted) as error:
            raise silent(found, error) from None


async def _ask_stop(found: Found) -> RunStatus:
    """How the run stood when it was stopped."""
    async with open_link(found) as link:
        try:
            now = status_json.read(await link.status())
            if now.status in OVER:
                raise UserError(
                    f"{f'run {now.run}' if now.run else 'the run'} is over ({now.status}): there is nothing to stop",
                    expected="a run that is not over",
                    advice="to end the coordinator itself: Ctrl-C where it runs, or systemctl stop",
                )
            await link.stop()
            return now
        except (Unreachable, NotAdmitted) as error:
            raise silent(found, error) from None


def open_link(found: Found) -> OperatorLink:
    """The operator's line to a coordinator of this machine."""
    pair = found.operator
    if pair is None:
        # A coordinator of an earlier release leaves it to us; its keys lie in its state.
        authority = Authority.open(found.state_folder / "federation")
        pair = authority.operator_certificate(now=datetime.now(UTC))
    address = found.operator_address or found.addresses.control
    return OperatorLink(address, pair, ca_pem=found.ca_pem, tell=partial(print, file=sys.stderr))


def silent(found: Found, error: Exception) -> UserError:
    """What to say of a coordinator that does not answer."""
    kind = Unavailable if isinstance(error, Unreachable) else UserError
    return kind(
        f"the coordinator at {found.addresses.control} does not answer: {error}",
        expected="the running pfl-server of this state folder",
        advice="look at its log; start it again with the same command, it goes on where it was",
    )


def show(status: RunStatus, console: Console) -> None:
    """The status as a person reads it."""
    begun = (status.run or "no run yet", status.method, (status.status, "bold"), tell_place(status))
    console.print(Text("  ").join(_plain(part) if isinstance(part, str) else _plain(*part) for part in begun))
    lines = [status.words, tell_sentence(status), status.patience]
    if len(status.awaited) > NAMED:
        lines.append("awaited: " + ", ".join(status.awaited))
    for line in filter(None, [*lines, *tell_rounds(status.curve, status.fewest_reporters)]):
        console.print(_plain(line))
    for words in tell_waiting(status):
        console.print(_plain(words, "bold yellow"))
    for remarks, style in ((tell_troubles(status), "bold red"), (tell_warnings(status), "yellow")):
        for words in remarks:
            console.print(_plain(words, style))
    table = Table("site", "state", "phase", "last heard", "counted", Column("doing", overflow="fold"))
    for site in status.sites:
        doing = "" if site.doing == site.phase else site.doing
        cells = (site.site, site.state, site.phase, tell_ago(site.seen_seconds), str(site.counted), doing)
        table.add_row(*map(_plain, cells))
    console.print(table)
    for line in tell_rest(status):
        console.print(_plain(line))


def _plain(words: str, style: str = "") -> Text:
    # A peer's own words are among them: never a markup, and nothing that a terminal would obey.
    return Text(printable(words, keep="\n"), style)
