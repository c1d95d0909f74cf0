"""How long each call's message can be: what is longer is refused unread.

Parsing is what costs: a message of 4 MB can hold two million empty ones. The bounds are those of what a site can have
to say, with room for what a later release may add; a call that is not listed has none of its own to send.
"""

from __future__ import annotations

from pfl_common.errors import Refused
from pfl_common.spec import data_description
from pfl_common.wire.carrying import HAND_IN_BYTES, QUESTION_BYTES, REPORT_BYTES
from pfl_common.wire.convert import CARRYING_BYTES

_SHORT = 4 << 10

LARGEST: dict[str, int] = {
    "Join": data_description.MOST_BYTES,
    "Visit": _SHORT,
    "NextTask": QUESTION_BYTES,
    "Offer": CARRYING_BYTES,
    "HandIn": HAND_IN_BYTES,
    "Report": REPORT_BYTES,
    "Decline": 256 << 10,
    "Heartbeat": _SHORT,
    "Leave": _SHORT,
    "Renew": 64 << 10,
    "Fetch": _SHORT,
    "Status": _SHORT,
    "Stop": _SHORT,
    "Remove": _SHORT,
    "Revoke": _SHORT,
    "Approve": _SHORT,
    "Deny": _SHORT,
    "Rotate": _SHORT,
    "Enrol": 64 << 10,
}
"""In bytes, by the call's name."""


def check_length(call: str, body: bytes) -> None:
    """Refuse a message that is longer than any of its kind, before it is taken apart."""
    if len(body) > (most := LARGEST[call]):
        raise Refused("too_large", f"{len(body)} bytes in a call of {call}; expected: at most {most}")
