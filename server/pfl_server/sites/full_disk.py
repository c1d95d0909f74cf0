"""A full disk, or no descriptor, under a site's call: both sides are told, and the site is not taken for silent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

from pfl_common.errors import Refused
from pfl_common.files.full import is_crowded, is_full
from pfl_common.spec.messages import Receipt
from pfl_common.spec.run import ClientId
from pfl_server.sites.notices import Notices
from pfl_server.sites.open_tasks import OpenTasks

FULL = "the coordinator's disk is full; its operator has to make room"
CROWDED = "too many connections are open at the coordinator; it goes on by itself"

Call = TypeVar("Call", bound=Callable[..., Awaitable[object]])


class Writing(Protocol):
    """A Desk whose calls write to the disk."""

    notices: Notices
    tasks: OpenTasks


def tells_full_disk(call: Call) -> Call:
    """For a Desk's call that writes: on a full disk it is refused as `no_room`; a receipt shows that there is room."""

    @wraps(call)
    async def told(desk: Writing, site: ClientId, *words: Any, **named: Any) -> object:  # those of the call
        try:
            answer = await call(desk, site, *words, **named)
        except Exception as error:
            lacking = error.words if isinstance(error, Refused) and error.code == "no_room" else ""
            crowded = is_crowded(error)
            if not (lacking or crowded or is_full(error)):
                raise
            desk.notices.room.lack(lacking, crowded=crowded)
            desk.tasks.bear_with(site)
            if lacking:
                raise
            raise Refused("no_room", CROWDED if crowded else FULL) from None
        if isinstance(answer, Receipt):
            desk.notices.room.relieve()
        return answer

    return cast(Call, told)
