"""Identities in a federation: names, the authority, invitations, a site's keys, and the search for the coordinator.

Bytes and files in, bytes and files out; the calls that carry them are made elsewhere. Every moment
is an argument.
"""

from pfl_common.errors import IdentityError
from pfl_common.identity.authority import Authority, Lives
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
from pfl_common.identity.invitation_ledger import Ledger
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
