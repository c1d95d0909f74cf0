from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_OTHER: _ClassVar[Reason]
    REASON_NOT_A_SITE: _ClassVar[Reason]
    REASON_NOT_THE_OPERATOR: _ClassVar[Reason]
    REASON_NOT_IN_THE_RUN: _ClassVar[Reason]
    REASON_CLASSES: _ClassVar[Reason]
    REASON_SHAPE: _ClassVar[Reason]
    REASON_TOO_LATE_TO_JOIN: _ClassVar[Reason]
    REASON_OTHER_KEYS: _ClassVar[Reason]
    REASON_NO_NEWCOMERS: _ClassVar[Reason]
    REASON_UNPRINTABLE: _ClassVar[Reason]
    REASON_BAD_REQUEST: _ClassVar[Reason]
    REASON_NOT_JOINED: _ClassVar[Reason]
    REASON_LATE: _ClassVar[Reason]
    REASON_UNKNOWN_BLOB: _ClassVar[Reason]
    REASON_NO_RENEWAL: _ClassVar[Reason]
    REASON_SCORES: _ClassVar[Reason]
    REASON_REASON: _ClassVar[Reason]
    REASON_RUN_FAILED: _ClassVar[Reason]
    REASON_SESSION: _ClassVar[Reason]
    REASON_TOO_MANY: _ClassVar[Reason]
    REASON_NOT_OFFERED: _ClassVar[Reason]
    REASON_WRONG_OFFSET: _ClassVar[Reason]
    REASON_SUPERSEDED: _ClassVar[Reason]
    REASON_TOO_LARGE: _ClassVar[Reason]
    REASON_TOO_SHORT: _ClassVar[Reason]
    REASON_STALLED: _ClassVar[Reason]
    REASON_NO_ROOM: _ClassVar[Reason]
    REASON_DIGEST: _ClassVar[Reason]
    REASON_DIFFERENT: _ClassVar[Reason]
    REASON_HEADER: _ClassVar[Reason]
    REASON_MANIFEST: _ClassVar[Reason]
    REASON_GROUPS: _ClassVar[Reason]
    REASON_SIZE: _ClassVar[Reason]
    REASON_NOT_FINITE: _ClassVar[Reason]
    REASON_NORM: _ClassVar[Reason]
    REASON_WEIGHT: _ClassVar[Reason]
    REASON_SEAL: _ClassVar[Reason]
    REASON_CARD: _ClassVar[Reason]
    REASON_VALUE: _ClassVar[Reason]
    REASON_CHANGE: _ClassVar[Reason]
    REASON_ENCODING: _ClassVar[Reason]
    REASON_NOT_ACCEPTED: _ClassVar[Reason]
    REASON_ALREADY_USED: _ClassVar[Reason]
    REASON_EXPIRED: _ClassVar[Reason]
    REASON_NAME_TAKEN: _ClassVar[Reason]
    REASON_WAITING: _ClassVar[Reason]
    REASON_DENIED: _ClassVar[Reason]
    REASON_REVOKED: _ClassVar[Reason]
REASON_OTHER: Reason
REASON_NOT_A_SITE: Reason
REASON_NOT_THE_OPERATOR: Reason
REASON_NOT_IN_THE_RUN: Reason
REASON_CLASSES: Reason
REASON_SHAPE: Reason
REASON_TOO_LATE_TO_JOIN: Reason
REASON_OTHER_KEYS: Reason
REASON_NO_NEWCOMERS: Reason
REASON_UNPRINTABLE: Reason
REASON_BAD_REQUEST: Reason
REASON_NOT_JOINED: Reason
REASON_LATE: Reason
REASON_UNKNOWN_BLOB: Reason
REASON_NO_RENEWAL: Reason
REASON_SCORES: Reason
REASON_REASON: Reason
REASON_RUN_FAILED: Reason
REASON_SESSION: Reason
REASON_TOO_MANY: Reason
REASON_NOT_OFFERED: Reason
REASON_WRONG_OFFSET: Reason
REASON_SUPERSEDED: Reason
REASON_TOO_LARGE: Reason
REASON_TOO_SHORT: Reason
REASON_STALLED: Reason
REASON_NO_ROOM: Reason
REASON_DIGEST: Reason
REASON_DIFFERENT: Reason
REASON_HEADER: Reason
REASON_MANIFEST: Reason
REASON_GROUPS: Reason
REASON_SIZE: Reason
REASON_NOT_FINITE: Reason
REASON_NORM: Reason
REASON_WEIGHT: Reason
REASON_SEAL: Reason
REASON_CARD: Reason
REASON_VALUE: Reason
REASON_CHANGE: Reason
REASON_ENCODING: Reason
REASON_NOT_ACCEPTED: Reason
REASON_ALREADY_USED: Reason
REASON_EXPIRED: Reason
REASON_NAME_TAKEN: Reason
REASON_WAITING: Reason
REASON_DENIED: Reason
REASON_REVOKED: Reason

class Refusal(_message.Message):
    __slots__ = ("reason", "words", "session", "card")
    REASON_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CARD_FIELD_NUMBER: _ClassVar[int]
    reason: Reason
    words: str
    session: bytes
    card: bytes
    def __init__(self, reason: _Optional[_Union[Reason, str]] = ..., words: _Optional[str] = ..., session: _Optional[bytes] = ..., card: _Optional[bytes] = ...) -> None: ...
