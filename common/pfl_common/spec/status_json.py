"""A run's status as JSON: what the status page reads, the operator's call carries and `pfl status --json` prints."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from pfl_common.errors import UserError
from pfl_common.spec.messages import RunStatus, shorten

MOST_BYTES = (4 << 20) - (1 << 10)
"""gRPC takes no message above 4 MiB: beside the curve and the events there is room for thousands of sites."""

_STATUS = TypeAdapter(RunStatus)


def write(status: RunStatus) -> bytes:
    """In ASCII: no terminal takes a part of it for a command."""
    return _STATUS.dump_json(status, ensure_ascii=True)


def read(content: bytes) -> RunStatus:
    """The status, each value of its type and within its bounds; facts of a newer release are passed over."""
    if len(content) > MOST_BYTES:
        raise _unreadable(f"it has {len(content)} bytes; at most {MOST_BYTES}")
    if not content.isascii():
        raise _unreadable("it is not written in ASCII")
    try:
        return _STATUS.validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise _unreadable(f"{place}: {first['msg']}" if place else first["msg"]) from None


def _unreadable(why: str) -> UserError:
    (words,) = shorten([why])
    return UserError(
        f"the coordinator's status cannot be read: {words}",
        expected="a status as a coordinator of this release tells it",
        advice="compare pfl --version with pfl-server --version; after an upgrade start the coordinator again",
    )
