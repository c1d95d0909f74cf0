"""The operator's decisions about sites and about the federation's authority, typed on the coordinator's own machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Literal, TypeAlias, TypeVar

from pfl_client.connection.link import NotAdmitted, Unreachable
from pfl_client.connection.operator_link import OperatorLink, Rotation
from pfl_common.errors import Refused, SettingError, UserError
from pfl_common.identity import check_site_name, discovery
from pfl_deploy.operator.commands import open_link, silent

Decision: TypeAlias = Literal["Remove", "Revoke", "Approve", "Deny"]
Answer = TypeVar("Answer")


def decide(decision: Decision, name: str, *, server: str | None, fingerprint: str = "") -> tuple[str, str]:
    """Have the coordinator do it; gives its words, and of keys that waited the fingerprint."""
    site = check_site_name(name)
    return asyncio.run(_ask(server, lambda link: link.decide(decision, site, fingerprint)))


def rotate(*, server: str | None, finish: bool, anyway: bool, until: str | None) -> Rotation:
    """Let a new authority take over, or, with `finish`, trust it alone from now on."""
    if (finish and until) or (anyway and not finish):
        raise SettingError(
            "--until with --finish, or --anyway without it",
            expected="--until DAY to finish by itself, --finish now, or --finish --anyway",
            advice="see: pfl rotate-ca --help",
        )
    day = _read_day(until) if until else 0
    return asyncio.run(_ask(server, lambda link: link.rotate(finish=finish, anyway=anyway, until=day)))


async def _ask(server: str | None, call: Callable[[OperatorLink], Awaitable[Answer]]) -> Answer:
    found = discovery.find(server)
    async with open_link(found) as link:
        try:
            return await call(link)
        except Refused as refused:
            raise UserError(refused.words) from None
        except (Unreachable, NotAdmitted) as error:
            raise silent(found, error) from None


def _read_day(said: str) -> int:
    try:
        day = datetime.fromisoformat(said)
    except ValueError:
        raise SettingError(
            f"--until {said}", expected="a day, or a day and a time", advice="for example: --until 2030-05-17"
        ) from None
    moment = day if day.tzinfo else day.replace(tzinfo=UTC)
    if moment <= datetime.now(UTC):
        raise SettingError(
            f"--until {said}, which is over",
            expected="a day to come",
            advice="to finish now: pfl rotate-ca --finish",
        )
    return int(moment.timestamp())
