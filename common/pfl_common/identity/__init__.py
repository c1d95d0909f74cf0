"""Identities in a federation: names, the authority, invitations, a site's keys, and the search for the coordinator.

Bytes and files in, bytes and files out; the calls that carry them are made elsewhere. Every moment
is an argument.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from pfl_common.errors import IdentityError
from pfl_common.identity.certificates import KeyPair, Peer, federation_id, peer_of
from pfl_common.identity.discovery import Found, coordinators_folder, find, publish, withdraw
from pfl_common.identity.errors import (
    ApprovalAwaited,
    ApprovalDenied,
    BadRequest,
    InvitationExpired,
    InvitationUsed,
    KeysRevoked,
    NameTaken,
    Refusal,
    SiteRemoved,
    UnknownSite,
    WrongProof,
    tell_fingerprint,
)
from pfl_common.identity.join_file import (
    Addresses,
    Invitation,
    host_and_port,
    read_join_file,
    split_port,
    write_join_file,
)
from pfl_common.identity.keyring import Keyring
from pfl_common.identity.names import check_site_name, keep_name, site_name
from pfl_common.identity.proofs import new_secret

if TYPE_CHECKING:
    from pfl_common.identity.authority import Authority, Lives
    from pfl_common.identity.invitation_ledger import Ledger

__all__ = [
    "Addresses",
    "ApprovalAwaited",
    "ApprovalDenied",
    "Authority",
    "BadRequest",
    "Found",
    "IdentityError",
    "Invitation",
    "InvitationExpired",
    "InvitationUsed",
    "KeyPair",
    "Keyring",
    "KeysRevoked",
    "Ledger",
    "Lives",
    "NameTaken",
    "Peer",
    "Refusal",
    "SiteRemoved",
    "UnknownSite",
    "WrongProof",
    "check_site_name",
    "coordinators_folder",
    "federation_id",
    "find",
    "host_and_port",
    "keep_name",
    "new_secret",
    "peer_of",
    "publish",
    "read_join_file",
    "site_name",
    "split_port",
    "tell_fingerprint",
    "withdraw",
    "write_join_file",
]

_OF_THE_AUTHORITY = {"Authority": "authority", "Lives": "authority", "Ledger": "invitation_ledger"}


def __getattr__(name: str) -> object:
    """What only who admits sites needs is loaded when it is asked for: a waiting site has no authority."""
    if name not in _OF_THE_AUTHORITY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_OF_THE_AUTHORITY[name]}"), name)
