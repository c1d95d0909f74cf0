"""Rules for a site's name, which is its identity in certificates, file names and reports alike."""

import re
from pathlib import Path

from pfl_common.errors import IdentityError
from pfl_common.spec.participation import SITE_NAME

LONGEST = 63
KEPT_IN_MEMORY = 1 << 14
"""Of so many sites a coordinator remembers what it has read: more than ten thousand. One of fewer that all call in
turn would forget each just before it is asked for again.
"""
RESERVED = frozenset({"coordinator", "operator"})

_ILLEGAL_CHARACTER = re.compile(r"[^a-z0-9_-]")

# Read by an operator who invites and by a site that names itself.
_CHOOSE_ANOTHER = "choose another name: pfl invite hospital_a, or pfl-client --name hospital_a"


def keep_name(folder: Path) -> Path:
    """A folder's whole path under the name it was given: a link `hospital_a` to `/mnt/disk7/x` stays `hospital_a`."""
    named = folder.resolve() if folder.name in ("", "..") else folder
    return named.parent.resolve() / named.name


def site_name(folder: Path) -> str:
    """The name a site gets from its data folder when none is given: `./Hospital A` is `hospital_a`.

    A link gives its own name, not that of the folder it leads to.
    """
    shown = keep_name(folder).name
    name = _ILLEGAL_CHARACTER.sub("_", shown.lower()).lstrip("_-")[:LONGEST]
    if not name:
        raise IdentityError(
            f"the data folder '{folder}' has no letter a-z or digit in its name",
            expected="a folder name that can become a site name",
            advice="name the site yourself: --name hospital_a",
        )
    return check_site_name(name)


def check_site_name(name: str) -> str:
    """Give the name back if a site may be called so, and refuse it with the reason otherwise."""
    if name in RESERVED:
        raise IdentityError(
            f"a site called '{name}'",
            expected=f"another name, for {' and '.join(sorted(RESERVED))} are reserved",
            advice=_CHOOSE_ANOTHER,
        )
    if not SITE_NAME.fullmatch(name):
        raise IdentityError(
            f"a site called {_shortened(name)}",
            expected=f"1 to {LONGEST} characters a-z, 0-9, '_', '-', the first a letter or digit",
            advice=_CHOOSE_ANOTHER,
        )
    return name


def is_site_name(name: str) -> bool:
    """Whether a site may be called so; for names that come from a stranger."""
    return name not in RESERVED and SITE_NAME.fullmatch(name) is not None


def _shortened(name: str) -> str:
    # The name may come from a stranger: it must not fill a log.
    return repr(name) if len(name) <= LONGEST else f"{name[:LONGEST]!r}..."
