"""Sealing: turns bytes into frames that stay closed through any proxy and on the coordinator's disk, and back.

    sender     seal_file → Sealed; wrap for each recipient; sign_down or sign_up
    recipient  read the sender's card; verify_down or verify_up → Vouched; unwrap → ContentKey; open_…

Opening takes a `Vouched`, which only a good signature gives. Knows nothing of what the bytes mean.
"""

from pfl_common.sealing.arriving_frames import ArrivingFrames, EarlyOpener
from pfl_common.sealing.content_key import LOCK_BYTES, ContentKey, lock, unlock, unwrap, wrap
from pfl_common.sealing.frame_format import (
    CODES,
    FRAME,
    TAG,
    Binding,
    Tampered,
    bind,
    plain_size,
    sealed_size,
)
from pfl_common.sealing.parcels import (
    Sealed,
    Vouched,
    check_frames,
    check_whole,
    open_held,
    open_over_file,
    open_to_bytes,
    open_to_file,
    seal_bytes,
    seal_file,
)
from pfl_common.sealing.signatures import (
    Envelope,
    sign_down,
    sign_receipt,
    sign_up,
    verify_down,
    verify_receipt,
    verify_up,
)
from pfl_common.sealing.streams import SealedSource, SealWriter, open_source, open_unverified, seal_stream

__all__ = [
    "CODES",
    "FRAME",
    "LOCK_BYTES",
    "TAG",
    "ArrivingFrames",
    "Binding",
    "ContentKey",
    "EarlyOpener",
    "Envelope",
    "SealWriter",
    "Sealed",
    "SealedSource",
    "Tampered",
    "Vouched",
    "bind",
    "check_frames",
    "check_whole",
    "lock",
    "open_held",
    "open_over_file",
    "open_source",
    "open_to_bytes",
    "open_to_file",
    "open_unverified",
    "plain_size",
    "seal_bytes",
    "seal_file",
    "seal_stream",
    "sealed_size",
    "sign_down",
    "sign_receipt",
    "sign_up",
    "unlock",
    "unwrap",
    "verify_down",
    "verify_receipt",
    "verify_up",
    "wrap",
]
