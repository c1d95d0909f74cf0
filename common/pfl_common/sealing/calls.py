"""Signed calls: caller and answerer are known even behind a proxy that ends TLS, and no call is accepted twice.

A coordinator gives each line a session, a token only it can make. A call is signed over its name, its body, the
session and a number that no other call of the session has; the answer over the call's signature and its own body.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from cryptography.exceptions import InvalidSignature

from pfl_common.errors import Refused
from pfl_common.identity.cards import Card, EnvelopeKeys
from pfl_common.spec.run import ClientId

SESSION_SECONDS = 24 * 3600
SESSIONS_AT_ONCE = 1024
"""Of one site: a session is remembered until its time is over, for only so can nothing be heard twice."""
CALLS_ABREAST = 512
"""How far behind the newest call of a session another one may come."""

_CALL_LABEL = b"pfl call 1\0"
_ANSWER_LABEL = b"pfl answer 1\0"
_SALT, _TIME, _MAC = 8, 8, 32


@dataclass(frozen=True)
class SignedCall:
    """A call's sender, its session, its number there, and the signature over these and the body."""

    site: ClientId
    session: bytes
    counter: int
    signature: bytes


class NoSession(Refused):
    """The call belongs to no session of this coordinator; the refusal carries a new one and the coordinator's card."""

    def __init__(self, words: str, *, session: bytes, card: bytes) -> None:
        self.session, self.card = session, card
        super().__init__("session", words)


class CallSigner:
    """A site's side of one line: numbers and signs its calls, and verifies the answers."""

    def __init__(self, keys: EnvelopeKeys, site: ClientId, *, read_card: Callable[[bytes], Card]) -> None:
        self._keys, self._site, self._read_card = keys, site, read_card
        # Not from 1: an attacker in between may give an old session to a site that starts again, and were its
        # calls the same to the bit, an answer to one of its former life would do for the new one.
        self._session, self._numbers = b"", itertools.count(secrets.randbits(62) + 1)
        self._coordinator: Card | None = None

    def begin(self, given: NoSession) -> None:
        """Go on in the session that was given; numbers are never used again."""
        self._coordinator = self._read_card(given.card)
        self._session = given.session

    @property
    def meets_hybrid(self) -> bool:
        """Whether the coordinator has shown a key for the hybrid envelope."""
        return self._coordinator is not None and bool(self._coordinator.lattice)

    def check(self, call: str, *, asked: SignedCall, body: bytes, signature: bytes) -> None:
        """Refuse an answer that is not the coordinator's own to this very call."""
        if self._coordinator is None:
            raise Refused("seal", f"an answer to {call} before any session; expected: one to be given first")
        try:
            self._coordinator.verifier.verify(signature, _say_answer(call, asked.signature, body))
        except InvalidSignature:
            raise Refused(
                "seal", f"an answer to {call} that the coordinator did not sign; expected: its own"
            ) from None

    def sign(self, call: str, body: bytes) -> SignedCall:
        """The next call."""
        number = next(self._numbers)
        signature = self._keys.signing.sign(_say_call(call, body, self._session, number))
        return SignedCall(self._site, self._session, number, signature)


@dataclass
class _Window:
    """The call numbers used in one session, as one bit each below the newest."""

    ends: float
    newest: int = 0
    heard: int = 0

    def take(self, number: int) -> bool:
        """Whether this number is heard for the first time."""
        if number > self.newest:
            shift = number - self.newest
            self.heard = (
                ((self.heard << shift) | 1) & ((1 << CALLS_ABREAST) - 1) if shift < CALLS_ABREAST else 1
            )
            self.newest = number
            return True
        place = self.newest - number
        if place >= CALLS_ABREAST or self.heard >> place & 1:
            return False
        self.heard |= 1 << place
        return True


@dataclass
class CallBook:
    """The coordinator's side: opens sessions, verifies calls, signs answers."""

    keys: EnvelopeKeys
    card: bytes
    find_card: Callable[[ClientId], Card]
    clock: Callable[[], float] = monotonic
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _windows: dict[ClientId, dict[bytes, _Window]] = field(default_factory=dict, repr=False)

    def give_session(self, site: ClientId) -> bytes:
        """A session for a caller of this name; nothing is remembered until it is used."""
        words = secrets.token_bytes(_SALT) + int(self.clock() * 1000).to_bytes(_TIME, "big")
        return words + self._mac(site, words)

    def check(self, call: str, body: bytes, said: SignedCall) -> ClientId:
        """The site that calls; refused unless it signed exactly this, in a session of ours, for the first time."""
        ends = self._ends(said)
        if ends is None:
            words = "a call in no session of this coordinator; expected: the one given here"
            raise NoSession(words, session=self.give_session(said.site), card=self.card)
        try:
            message = _say_call(call, body, said.session, said.counter)
            self.find_card(said.site).verifier.verify(said.signature, message)
        except InvalidSignature:
            words = f"{said.site[:63]} did not sign this call with the keys it was last let in with"
            raise Refused("other_keys", f"{words}; expected: those and no others") from None
        if not self._window(said, ends).take(said.counter):
            raise Refused("seal", f"a call of {said.site} that was heard before; expected: a new one")
        return said.site

    def sign_answer(self, call: str, said: SignedCall, body: bytes) -> bytes:
        """The coordinator's word for an answer to this very call."""
        return self.keys.signing.sign(_say_answer(call, said.signature, body))

    def _ends(self, said: SignedCall) -> float | None:
        words, mac = said.session[: _SALT + _TIME], said.session[_SALT + _TIME :]
        if len(mac) != _MAC or not hmac.compare_digest(mac, self._mac(said.site, words)):
            return None
        ends = int.from_bytes(words[_SALT:], "big") / 1000 + SESSION_SECONDS
        return ends if self.clock() < ends else None

    def _window(self, said: SignedCall, ends: float) -> _Window:
        windows = self._windows.setdefault(said.site, {})
        if said.session not in windows:
            for session in [session for session, window in windows.items() if window.ends < self.clock()]:
                del windows[session]
            if len(windows) >= SESSIONS_AT_ONCE:
                raise Refused(
                    "other", f"{said.site} has begun {len(windows)} sessions in a day; expected: few"
                )
        return windows.setdefault(said.session, _Window(ends))

    def _mac(self, site: ClientId, words: bytes) -> bytes:
        return hmac.digest(self._secret, words + site.encode(), "sha256")


def _say_call(call: str, body: bytes, session: bytes, number: int) -> bytes:
    return _CALL_LABEL + _both(call, body) + session + number.to_bytes(8, "big")


def _say_answer(call: str, asked: bytes, body: bytes) -> bytes:
    return _ANSWER_LABEL + _both(call, body) + asked


def _both(call: str, body: bytes) -> bytes:
    # Two hashes of fixed length: no name can run into a body.
    return hashlib.sha256(call.encode()).digest() + hashlib.sha256(body).digest()
