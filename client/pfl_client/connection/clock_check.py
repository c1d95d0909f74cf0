"""Checks, when a coordinator's certificate is refused, whether the two machines' clocks disagree."""

from __future__ import annotations

import ssl
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from pfl_common.errors import Unavailable, UserError
from pfl_common.identity.certificates import CLOCK_SKEW

LOOK_SECONDS = 5.0


def explain(address: str, ca_pem: bytes, *, now: datetime) -> UserError | None:
    """Look at the certificate shown at `host:port`. Only one that our own federation signed says anything of clocks."""
    host, _, port = address.rpartition(":")
    try:
        shown = ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=LOOK_SECONDS)
        certificate = x509.load_pem_x509_certificate(shown.encode())
        authority = x509.load_pem_x509_certificate(ca_pem)
        certificate.verify_directly_issued_by(authority)
    except (OSError, ValueError, TypeError, InvalidSignature):
        return None
    starts = max(certificate.not_valid_before_utc, authority.not_valid_before_utc)
    ends = min(certificate.not_valid_after_utc, authority.not_valid_after_utc)
    return None if starts <= now <= ends else _differing(now, starts, ends=ends)


def _differing(now: datetime, starts: datetime, *, ends: datetime) -> UserError:
    ours = f"this machine's clock says {now:%Y-%m-%d %H:%M} UTC"
    if now < starts:
        made = starts + CLOCK_SKEW
        theirs = f"the coordinator's said {made:%Y-%m-%d %H:%M} UTC already when it was started"
    else:
        theirs = (
            f"the coordinator's certificate ended at {ends:%Y-%m-%d %H:%M} UTC by the coordinator's clock"
        )
    return Unavailable(
        f"{ours}, but {theirs}",
        expected=f"two clocks that agree to within {CLOCK_SKEW.seconds // 60} minutes",
        advice="set the clock that is wrong (look at it with: date -u), then start pfl-client again",
    )
