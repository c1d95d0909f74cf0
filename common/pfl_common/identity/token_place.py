"""The coordinator's keys in a token (PKCS#11: a smart card, an HSM, a cloud's key service), which never gives them out.

The authority's key signs inside the token. HPKE opens parcels with a key that it must have itself, and the library
knows no X25519 keys of tokens: so the sealing keys lie in the state folder, locked by an AES key inside the token.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar  # the token's library has no types for its objects
from urllib.parse import parse_qs, unquote

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from pfl_common.errors import IdentityError, SettingError
from pfl_common.files import private
from pfl_common.identity import certificates, issuing
from pfl_common.identity.issuing import Signer
from pfl_common.identity.key_place import TOKEN, KeyPlace, read_secret_file

CERTIFICATE_ENDS, SEALED_ENDS = ".crt", ".token"
_SEALING_LABEL, _AUTHORITY_LABEL = "pfl sealing keys", "pfl authority"
_NONCE = 12
_EXAMPLE = "pkcs11:token=pfl?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=/run/credentials/pin"

Answer = TypeVar("Answer")


class TokenKey(ec.EllipticCurvePrivateKey):
    """A P-256 key inside a token: it signs, and nothing else is to be had from it."""

    def __init__(self, sign: Callable[[bytes], bytes], public: ec.EllipticCurvePublicKey) -> None:
        self._sign, self._public = sign, public

    @property
    def curve(self) -> ec.EllipticCurve:
        """P-256."""
        return self._public.curve

    @property
    def key_size(self) -> int:
        """In bits."""
        return self._public.key_size

    def public_key(self) -> ec.EllipticCurvePublicKey:
        """The public half."""
        return self._public

    def sign(self, data: Any, signature_algorithm: ec.EllipticCurveSignatureAlgorithm) -> bytes:
        """Sign inside the token; every signature of a federation's authority is over SHA-256."""
        if signature_algorithm.algorithm.name != "sha256":  # type: ignore[union-attr]  # never prehashed here
            raise ValueError(f"a signature over {signature_algorithm.algorithm}; expected: over SHA-256")
        return self._sign(hashlib.sha256(data).digest())

    def exchange(self, algorithm: ec.ECDH, peer_public_key: ec.EllipticCurvePublicKey) -> NoReturn:
        """A token's key of ours only signs."""
        raise TypeError("the authority's key agrees on nothing; expected: a signature")

    def private_numbers(self) -> NoReturn:
        """There are none outside the token."""
        raise TypeError("the authority's key does not leave its token; expected: a signature")

    def private_bytes(self, *_: object, **__: object) -> NoReturn:
        """There are none outside the token."""
        raise TypeError("the authority's key does not leave its token; expected: a signature")

    def __copy__(self) -> TokenKey:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> TokenKey:
        return self


class Token:
    """A token that is logged in to; one call at a time, and logged in again when it was lost."""

    def __init__(self, module: str, label: str, pin: str) -> None:
        self._module, self._label, self._pin = module, label, pin
        self._turn = threading.Lock()
        self._session: Any = None
        self.work(lambda session: None)

    def work(self, call: Callable[[Any], Answer]) -> Answer:
        """Do something inside the token."""
        from pkcs11.exceptions import PKCS11Error

        with self._turn:
            for attempt in (1, 2):
                try:
                    if self._session is None:
                        self._session = self._open()
                    return call(self._session)
                except (PKCS11Error, RuntimeError, OSError) as error:
                    self._hang_up()
                    if attempt == 2:
                        raise _not_usable(self._label, error) from None
            raise AssertionError  # one of the two attempts ended above

    def close(self) -> None:
        """Log out; the next work logs in again."""
        with self._turn:
            self._hang_up()

    def _open(self) -> Any:
        import pkcs11
        from pkcs11.exceptions import UserAlreadyLoggedIn

        token = pkcs11.lib(self._module).get_token(token_label=self._label)
        try:
            return token.open(rw=True, user_pin=self._pin)
        except UserAlreadyLoggedIn:
            # Another session of this very process: who is logged in is so for all of them.
            return token.open(rw=True)

    def _hang_up(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):  # it may be gone with its token
                session.close()

    def __repr__(self) -> str:
        return f"Token({self._label!r})"  # without its PIN


@dataclass(frozen=True)
class TokenPlace(KeyPlace):
    """A token, and the folder where certificates lie and what only the token opens."""

    token: Token = field(kw_only=True)

    @property
    def hidden(self) -> bool:
        """Always: without the token the folder opens nothing."""
        return True

    def signer(self, name: str) -> Signer | None:
        """The certificate from the folder, with its key in the token."""
        path = self._certificate_file(name)
        if not path.exists():
            return None
        found = certificates.load_certificates(private.read(path), where=str(path))[0]
        public = found.public_key()
        if not isinstance(public, ec.EllipticCurvePublicKey):
            raise IdentityError(
                f"{path} is for no P-256 key", expected="the token's", advice="bring back the right file"
            )
        return Signer(self._key(public), found)

    def keep_signer(self, name: str, signer: Signer) -> None:
        """Its certificate; the key is in the token already."""
        if not isinstance(signer.key, TokenKey):
            raise SettingError(
                "--ca-key with --keys pkcs11:…",
                expected="an authority whose key was made inside the token",
                advice="leave --ca-cert and --ca-key out, or keep the keys in a folder",
            )
        private.write(self._certificate_file(name), issuing.to_pem(signer.certificate))

    def make_signer(self, now: datetime, *, federation: str = "") -> Signer:
        """A key pair made inside the token, which keeps it."""
        from pkcs11 import Attribute, KeyType
        from pkcs11.util.ec import encode_ec_public_key, encode_named_curve_parameters

        def make(session: Any) -> bytes:
            curve = {Attribute.EC_PARAMS: encode_named_curve_parameters("secp256r1")}
            parameters = session.create_domain_parameters(KeyType.EC, curve, local=True)
            label = f"{_AUTHORITY_LABEL} {secrets.token_hex(4)}"
            public, made = parameters.generate_keypair(store=True, label=label)
            encoded: bytes = encode_ec_public_key(public)
            mark = hashlib.sha256(encoded).digest()
            for key in (public, made):
                key[Attribute.ID] = mark
            return encoded

        public = load_der_public_key(self.token.work(make))
        if not isinstance(public, ec.EllipticCurvePublicKey):
            raise TypeError("a token that makes other keys than it was asked for")
        return issuing.new_signer(now, federation=federation, key=self._key(public))

    def read(self, name: str) -> bytes | None:
        """What the token's own key opens."""
        path = self.folder / (name + SEALED_ENDS)
        if not path.exists():
            return None
        content, kind = private.read(path), _gcm()
        nonce, sealed = content[:_NONCE], content[_NONCE:]
        return self.token.work(
            lambda session: bytes(_sealing_key(session).decrypt(sealed, **kind(nonce, name)))
        )

    def write(self, name: str, content: bytes) -> None:
        """Closed by the token's own key, which is made at the first call."""
        nonce, kind = secrets.token_bytes(_NONCE), _gcm()
        sealed = self.token.work(
            lambda session: bytes(_sealing_key(session, make=True).encrypt(content, **kind(nonce, name)))
        )
        private.write(self.folder / (name + SEALED_ENDS), nonce + sealed)

    def remove(self, name: str) -> None:
        """The file goes; the key stays in the token until its owner clears it."""
        for path in (self._certificate_file(name), self.folder / (name + SEALED_ENDS)):
            private.remove(path)

    def _certificate_file(self, name: str) -> Path:
        # Not `authority.crt`, by which others learn whose folder this is.
        return self.folder / (name + CERTIFICATE_ENDS)

    def _key(self, public: ec.EllipticCurvePublicKey) -> TokenKey:
        encoded = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        mark = hashlib.sha256(encoded).digest()

        def sign(digest: bytes) -> bytes:
            from pkcs11 import Mechanism, ObjectClass
            from pkcs11.util.ec import encode_ecdsa_signature

            def work(session: Any) -> bytes:
                key = session.get_key(object_class=ObjectClass.PRIVATE_KEY, id=mark)
                signed: bytes = encode_ecdsa_signature(key.sign(digest, mechanism=Mechanism.ECDSA))
                return signed

            return self.token.work(work)

        return TokenKey(sign, public)


def open_token(folder: Path, address: str) -> TokenPlace:
    """The token that a PKCS#11 address (RFC 7512) names, with its library and the file of its PIN."""
    path, _, query = address.removeprefix(TOKEN).partition("?")
    parts = dict(part.partition("=")[::2] for part in path.split(";"))
    asked = {name: values[0] for name, values in parse_qs(query).items()}
    if not (parts.get("token") and asked.get("module-path") and asked.get("pin-source")):
        raise SettingError(
            "--keys names a token without its label, its library or the file of its PIN",
            expected="token, module-path and pin-source",
            advice=f"for example: --keys '{_EXAMPLE}'",
        )
    try:
        import pkcs11  # noqa: F401  # whether it is there
    except ImportError:
        raise SettingError(
            "--keys names a token, and the library for tokens is not installed",
            expected="python-pkcs11",
            advice="pip install 'pfl-net[token]'",
        ) from None
    pin = read_secret_file(asked["pin-source"].removeprefix("file:")).split(b"\n", 1)[0].strip()
    token = Token(asked["module-path"], unquote(parts["token"]), pin.decode("ascii", "replace"))
    return TokenPlace(folder, token=token)


def _sealing_key(session: Any, *, make: bool = False) -> Any:
    from pkcs11 import KeyType, ObjectClass
    from pkcs11.exceptions import NoSuchKey

    try:
        return session.get_key(object_class=ObjectClass.SECRET_KEY, label=_SEALING_LABEL)
    except NoSuchKey:
        if not make:
            raise
        return session.generate_key(KeyType.AES, 256, store=True, label=_SEALING_LABEL)


def _gcm() -> Callable[[bytes, str], dict[str, Any]]:
    from pkcs11 import GCMParams, Mechanism

    return lambda nonce, name: {
        "mechanism": Mechanism.AES_GCM,
        "mechanism_param": GCMParams(nonce, name.encode(), 128),
    }


def _not_usable(label: str, error: Exception) -> IdentityError:
    return IdentityError(
        f"the token {label!r} does not do it: {type(error).__name__}",
        expected="a token that is there, a PIN that opens it, and the keys that were made in it",
        advice="look at it with: pkcs11-tool --list-objects --login, or softhsm2-util --show-slots",
    )
