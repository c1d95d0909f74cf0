"""Proves that a site holds an invitation's secret, without sending the secret.

    key   = HKDF-SHA256(secret, salt = federation id, info = label and site name)
    proof = HMAC-SHA256(key, label, federation id, site name, SHA-256 of the certificate request)

The coordinator keeps the key only: a thief who reads it there can use this one invitation and nothing else. The
secret itself stands in the join file alone.
"""

import hashlib
import hmac
import secrets

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding

from pfl_common.identity import certificates
from pfl_common.identity.errors import WrongProof

SECRET_BYTES = 32

_KEY_LABEL = b"pfl enrolment key 1"
_PROOF_LABEL = b"pfl enrolment proof 1"
_NAME_LABEL = b"pfl invitation 1"


def new_secret() -> bytes:
    """A fresh secret from the operating system."""
    return secrets.token_bytes(SECRET_BYTES)


def name_of(secret: bytes) -> str:
    """A name that tells an invitation from others; it reveals neither the secret nor a key or proof made from it."""
    return hmac.digest(secret, _NAME_LABEL, "sha256").hex()


def derive_key(secret: bytes, federation_id: str, *, name: str) -> bytes:
    """The key that stands for a secret: good for one site in one federation only."""
    info = _joined(_KEY_LABEL, name.encode())
    return HKDF(hashes.SHA256(), length=32, salt=federation_id.encode(), info=info).derive(secret)


def prove(secret: bytes, federation_id: str, *, name: str, csr_pem: bytes) -> bytes:
    """The site's proof, sent beside its request: 32 bytes that only a holder of the secret can make."""
    return _proof(derive_key(secret, federation_id, name=name), federation_id, name=name, csr_pem=csr_pem)


def check(key: bytes, federation_id: str, *, name: str, csr_pem: bytes, proof: bytes) -> None:
    """Refuse a proof that was not made with this key for this federation, site and certificate request."""
    if not hmac.compare_digest(_proof(key, federation_id, name=name, csr_pem=csr_pem), proof):
        raise WrongProof(
            f"a wrong proof for site '{name}'",
            expected="a proof made with the secret of its invitation",
            advice=f"if {name} holds an old file, invite it once more: pfl invite {name} --again",
        )


def _proof(key: bytes, federation_id: str, *, name: str, csr_pem: bytes) -> bytes:
    request = certificates.load_request(csr_pem).public_bytes(Encoding.DER)
    parts = (_PROOF_LABEL, federation_id.encode(), name.encode(), hashlib.sha256(request).digest())
    return hmac.digest(key, _joined(*parts), "sha256")


def _joined(*parts: bytes) -> bytes:
    # Each part after its length: 'ab' + 'c' and 'a' + 'bc' must not be the same message.
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
