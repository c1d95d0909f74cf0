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
    REASON_UNFIT_DATA: _ClassVar[Reason]
    REASON_TOO_LATE_TO_JOIN: _ClassVar[Reason]
    REASON_BAD_REQUEST: _ClassVar[Reason]
    REASON_NOT_JOINED: _ClassVar[Reason]
    REASON_UNKNOWN_TASK: _ClassVar[Reason]
    REASON_TASK_OVER: _ClassVar[Reason]
    REASON_UNKNOWN_BLOB: _ClassVar[Reason]
    REASON_NO_RENEWAL: _ClassVar[Reason]
    REASON_NOT_OFFERED: _ClassVar[Reason]
    REASON_WRONG_OFFSET: _ClassVar[Reason]
    REASON_SUPERSEDED: _ClassVar[Reason]
    REASON_TOO_LARGE: _ClassVar[Reason]
    REASON_TOO_SHORT: _ClassVar[Reason]
    REASON_STALLED: _ClassVar[Reason]
    REASON_NO_ROOM: _ClassVar[Reason]
    REASON_WRONG_DIGEST: _ClassVar[Reason]
    REASON_DIFFERENT_UPDATE: _ClassVar[Reason]
    REASON_WRONG_HEADER: _ClassVar[Reason]
    REASON_WRONG_MANIFEST: _ClassVar[Reason]
    REASON_UNSOUND_NUMBERS: _ClassVar[Reason]
    REASON_BROKEN_SEAL: _ClassVar[Reason]
    REASON_NOT_ACCEPTED: _ClassVar[Reason]
    REASON_LOCKED: _ClassVar[Reason]
    REASON_ALREADY_USED: _ClassVar[Reason]
    REASON_EXPIRED: _ClassVar[Reason]
    REASON_NAME_TAKEN: _ClassVar[Reason]
REASON_OTHER: Reason
REASON_NOT_A_SITE: Reason
REASON_NOT_THE_OPERATOR: Reason
REASON_NOT_IN_THE_RUN: Reason
REASON_UNFIT_DATA: Reason
REASON_TOO_LATE_TO_JOIN: Reason
REASON_BAD_REQUEST: Reason
REASON_NOT_JOINED: Reason
REASON_UNKNOWN_TASK: Reason
REASON_TASK_OVER: Reason
REASON_UNKNOWN_BLOB: Reason
REASON_NO_RENEWAL: Reason
REASON_NOT_OFFERED: Reason
REASON_WRONG_OFFSET: Reason
REASON_SUPERSEDED: Reason
REASON_TOO_LARGE: Reason
REASON_TOO_SHORT: Reason
REASON_STALLED: Reason
REASON_NO_ROOM: Reason
REASON_WRONG_DIGEST: Reason
REASON_DIFFERENT_UPDATE: Reason
REASON_WRONG_HEADER: Reason
REASON_WRONG_MANIFEST: Reason
REASON_UNSOUND_NUMBERS: Reason
REASON_BROKEN_SEAL: Reason
REASON_NOT_ACCEPTED: Reason
REASON_LOCKED: Reason
REASON_ALREADY_USED: Reason
REASON_EXPIRED: Reason
REASON_NAME_TAKEN: Reason

class Refusal(_message.Message):
    __slots__ = ("reason", "words")
    REASON_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    reason: Reason
    words: str
    def __init__(self, reason: _Optional[_Union[Reason, str]] = ..., words: _Optional[str] = ...) -> None: ...
