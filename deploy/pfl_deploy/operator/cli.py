"""The commands of `pfl` by which the operator decides about sites, their keys and the federation's authority."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from pfl_common.app.terminal import console as make_console

if TYPE_CHECKING:
    from pfl_deploy.operator.membership import Decision

console = make_console()
Server = Annotated[str | None, typer.Option(help="Which coordinator of this machine: address or id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
SiteName = Annotated[str, typer.Argument(help="The site's name.")]
Fingerprint = Annotated[
    str | None, typer.Option(help="As its engineer reads it out; with another one nothing is done.")
]


def remove(
    site: SiteName,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Take a site out: its next call is refused, the run goes on without it, its invitations are worthless.

    A new `pfl invite SITE` lets it come back. Of a site that is to stay and only needs other keys: pfl revoke.
    """
    _decide("Remove", site, server, as_json=as_json)


def revoke(
    site: SiteName,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Declare a site's keys worthless, for ever: a laptop was stolen, a backup is in other hands.

    The site keeps its place in the run and comes back with new keys by `pfl invite SITE --again`. Of a site that is to
    take part no more: pfl remove.
    """
    _decide("Revoke", site, server, as_json=as_json)


def approve(
    site: SiteName,
    fingerprint: Fingerprint = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Let a site in that waits, of a coordinator started with --approve; shows the fingerprint of its keys."""
    _decide("Approve", site, server, as_json=as_json, fingerprint=fingerprint or "")


def deny(
    site: SiteName,
    fingerprint: Fingerprint = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Send a site away that waits to be approved; its invitation is worthless then."""
    _decide("Deny", site, server, as_json=as_json, fingerprint=fingerprint or "")


def _decide(
    decision: Decision, site: str, server: str | None, *, as_json: bool, fingerprint: str = ""
) -> None:
    from pfl_deploy.operator import membership

    words, keys = membership.decide(decision, site, server=server, fingerprint=fingerprint)
    if as_json:
        console.print_json(json.dumps({"site": site, "words": words, "fingerprint": keys}))
        return
    console.print(words)
    if keys:
        console.print(f"fingerprint of its keys: {keys}")


def rotate_ca(
    finish: Annotated[
        bool, typer.Option("--finish", help="Trust the new authority alone from now on.")
    ] = False,
    anyway: Annotated[
        bool,
        typer.Option("--anyway", help="Also if some sites know the old authority only: they are locked out."),
    ] = False,
    until: Annotated[str | None, typer.Option(help="Finish by itself on this day: 2030-05-17.")] = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Replace the federation's authority, with an overlap in which both are trusted."""
    from pfl_deploy.operator import membership

    found = membership.rotate(server=server, finish=finish, anyway=anyway, until=until)
    if as_json:
        console.print_json(json.dumps({"words": found.words, "lacking": list(found.lacking)}))
        return
    console.print(found.words)
    if found.lacking:
        console.print(f"not renewed yet: {', '.join(found.lacking)}")
