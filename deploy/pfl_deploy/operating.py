"""What the operator does with a coordinator: invite sites, look, stop. Works on the coordinator's own machine."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from pfl_client.link import NotAdmitted, Unreachable
from pfl_client.operator import OperatorLink
from pfl_common.errors import SettingError, Unavailable, UserError, nearest
from pfl_common.identity import Authority, Found, Ledger, check_site_name, discovery, write_join_file
from pfl_common.messages import RunStatus
from pfl_deploy.standing import NAMED, tell_ago, tell_place, tell_rest, tell_rounds, tell_sentence


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
    ledger = Ledger(found.state_folder / "invitations", found.ca_pem)
    addresses = found.addresses.under(under) if under else found.addresses
    invitation = ledger.invite(site, now, addresses=addresses, again=again)
    path = (out or Path.cwd()) / f"{site}.join"
    write_join_file(invitation, path, replace=again)
    return path


def status(server: str | None) -> RunStatus:
    """The run at a glance."""
    return asyncio.run(_ask_status(discovery.find(server)))


def stop(server: str | None) -> None:
    """End the run in good order: the round at work is finished, every site gets its model."""
    asyncio.run(_ask_stop(discovery.find(server)))


async def _ask_status(found: Found) -> RunStatus:
    async with _link(found) as link:
        try:
            return await link.status()
        except (Unreachable, NotAdmitted) as error:
            raise _silent(found, error) from None


async def _ask_stop(found: Found) -> None:
    async with _link(found) as link:
        try:
            await link.stop()
        except (Unreachable, NotAdmitted) as error:
            raise _silent(found, error) from None


def _link(found: Found) -> OperatorLink:
    authority = Authority.open(found.state_folder / "federation")
    pair = authority.operator_certificate(now=datetime.now(UTC))
    return OperatorLink(found.addresses.control, pair, ca_pem=found.ca_pem)


def _silent(found: Found, error: Exception) -> UserError:
    kind = Unavailable if isinstance(error, Unreachable) else UserError
    return kind(
        f"the coordinator at {found.addresses.control} does not answer: {error}",
        expected="the running pfl-server of this state folder",
        advice="look at its log; start it again with the same command, it goes on where it was",
    )


def show(status: RunStatus, console: Console) -> None:
    """The status as a person reads it."""
    begun = (status.run or "no run yet", status.method, (status.status, "bold"), tell_place(status))
    console.print(Text("  ").join(Text(part) if isinstance(part, str) else Text(*part) for part in begun))
    lines = [status.words, tell_sentence(status)]
    if len(status.awaited) > NAMED:
        lines.append("awaited: " + ", ".join(status.awaited))
    for line in filter(None, [*lines, *tell_rounds(status.curve)]):
        console.print(line, markup=False, highlight=False)
    table = Table("site", "state", "last heard", Column("doing", overflow="fold"))
    for site in status.sites:
        # A peer's own words are among them: shown as they are, and never as a markup.
        cells = (site.site, site.state, tell_ago(site.seen_seconds), site.doing)
        table.add_row(*map(Text, cells))
    console.print(table)
    for line in tell_rest(status):
        console.print(line, markup=False, highlight=False)
