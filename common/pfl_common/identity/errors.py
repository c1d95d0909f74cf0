"""The reasons for which a coordinator refuses to enrol a site, each with words that a person can act on.

Refused
└── Refusal               the coordinator does not enrol a site
    ├── BadRequest        the certificate request itself is unusable
    ├── UnknownSite       nobody invited a site of this name
    ├── WrongProof        the caller does not hold the secret
    ├── InvitationUsed    the right secret, but another key has used it
    ├── InvitationExpired the right secret, too late
    ├── NameTaken         another site already has this name
    ├── SiteRemoved       the right secret, of a site that the operator has removed
    ├── KeysRevoked       the right secret, with keys that the operator has declared worthless
    ├── ApprovalAwaited   the right secret, and the operator has yet to look at the keys
    └── ApprovalDenied    the right secret, and the operator has said no
"""

from typing import ClassVar

from pfl_common.errors import IdentityError, Refused


def tell_fingerprint(fingerprint: str) -> str:
    """A fingerprint as two people compare it: half of its digits, in fours; nobody finds a second key with the same."""
    return " ".join(fingerprint[at : at + 4] for at in range(0, 32, 4))


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


class SiteRemoved(Refusal):
    """The operator has removed this site; only a new invitation brings it back."""

    reason = "not_in_the_run"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name}, which the operator has removed from this federation",
            expected="a site that takes part",
            advice=f"if it should come back: pfl invite {name}, then pfl-client --join FILE",
        )


class KeysRevoked(Refusal):
    """The operator has declared these keys worthless."""

    reason = "revoked"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"keys of {name} that the operator has revoked",
            expected="other keys, which come with a new invitation",
            advice=f"pfl invite {name} --again, then pfl-client --join FILE: it makes new keys by itself",
        )


class ApprovalAwaited(Refusal):
    """The invitation is good, and the operator has to approve the keys that came with it."""

    reason = "waiting"

    def __init__(self, name: str, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        super().__init__(
            f"{name} waits to be approved, with keys of the fingerprint {tell_fingerprint(fingerprint)}",
            expected="the operator's approval, after both have compared the fingerprint",
            advice=f"the operator types: pfl approve {name}",
        )


class ApprovalDenied(Refusal):
    """The operator has looked at the keys and said no."""

    reason = "denied"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name}, which the operator did not approve",
            expected="a site that the operator knows",
            advice=f"talk to the operator, who may type: pfl invite {name} --again",
        )
