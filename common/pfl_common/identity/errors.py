"""The reasons for which a coordinator refuses to enrol a site, each with words that a person can act on.

Refused
└── Refusal               the coordinator does not enrol a site
    ├── BadRequest        the certificate request itself is unusable
    ├── UnknownSite       nobody invited a site of this name
    ├── WrongProof        the caller does not hold the secret
    ├── InvitationUsed    the right secret, but another key has used it
    ├── InvitationExpired the right secret, too late
    └── NameTaken         another site already has this name
"""

from typing import ClassVar

from pfl_common.errors import IdentityError, Refused


class Refusal(Refused):
    """The coordinator refuses to enrol this site.

    `str(refusal)` and `code` are for the coordinator's own log and metrics; `answer` and `public_code` are
    what may be told to the caller. They differ where the caller has proved nothing: a stranger must not learn
    from our answers which sites are invited.
    """

    reason: ClassVar[str] = "refused"
    told: ClassVar[bool] = True

    def __init__(self, seen: str, *, expected: str, advice: str) -> None:
        super().__init__(self.reason, str(IdentityError(seen, expected=expected, advice=advice)))
        self.seen, self.expected, self.advice = seen, expected, advice

    @property
    def answer(self) -> str:
        """The text that the caller may see."""
        return self.words if self.told else _NOT_ACCEPTED

    @property
    def public_code(self) -> str:
        """The reason the caller may be told, as one word."""
        return self.code if self.told else "not_accepted"


_NOT_ACCEPTED = (
    "the coordinator did not accept this invitation for this site; expected an unused invitation "
    "that names it: ask the operator for a new one: pfl invite NAME --again"
)


class BadRequest(Refusal):
    """The certificate request cannot be read, is not signed by its own key, or its key is not P-256."""

    reason = "bad_request"


class UnknownSite(Refusal):
    """Nobody invited a site of this name."""

    reason = "unknown_site"
    told = False


class WrongProof(Refusal):
    """The caller does not hold the secret of the invitation."""

    reason = "wrong_proof"
    told = False


class InvitationUsed(Refusal):
    """The proof is right, but another key has already used the invitation."""

    reason = "already_used"


class InvitationExpired(Refusal):
    """The proof is right, but the invitation is no longer valid."""

    reason = "expired"


class NameTaken(Refusal):
    """Another site already has this name."""

    reason = "name_taken"
