"""A site's door: what a coordinator says of a run is held against bounds before anything is made or begun for it.

A site trusts its coordinator with one thing, to combine what sites send. Whether a specification or a task makes sense
it sees for itself: a number that is wrong by accident or on purpose ends here, in words, and costs the site nothing.
"""

from __future__ import annotations

from pydantic import ValidationError

from pfl_common.errors import Distrusted
from pfl_common.printable import printable
from pfl_common.spec.messages import Joined
from pfl_common.spec.run import RunSpec
from pfl_common.spec.run_bounds import MOST_BYTES, OutOfBounds, check_spec

ADVICE = (
    "compare the versions with the operator (pfl-client --version, pfl-server --version); if they are the same, this "
    "coordinator is not to be trusted: tell its operator, and take no part"
)
_LONGEST = 300


def hear_run(joined: Joined) -> RunSpec:
    """The run that a site is to take part in, once every field of it is within its bounds."""
    text = joined.spec
    if len(text) > MOST_BYTES:
        raise distrust(f"a specification of {len(text)} letters", f"at most {MOST_BYTES}")
    try:
        spec = RunSpec.from_json(text)
        check_spec(spec)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "its text"
        raise distrust(
            f"a specification whose {place} cannot be read: {first['msg']}", "one of this release"
        ) from None
    except OutOfBounds as error:
        raise distrust(f"a specification with {error.seen}", error.expected) from None
    return spec


def distrust(seen: str, expected: str) -> Distrusted:
    """An error about what the coordinator sends."""
    return Distrusted(f"the coordinator sends {printable(seen)[:_LONGEST]}", expected=expected, advice=ADVICE)
