from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class SiteRequest(_message.Message):
    __slots__ = ("site", "fingerprint")
    SITE_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    site: str
    fingerprint: str
    def __init__(self, site: _Optional[str] = ..., fingerprint: _Optional[str] = ...) -> None: ...

class Decided(_message.Message):
    __slots__ = ("words", "fingerprint")
    WORDS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    words: str
    fingerprint: str
    def __init__(self, words: _Optional[str] = ..., fingerprint: _Optional[str] = ...) -> None: ...

class RotateRequest(_message.Message):
    __slots__ = ("finish", "anyway", "until")
    FINISH_FIELD_NUMBER: _ClassVar[int]
    ANYWAY_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    finish: bool
    anyway: bool
    until: int
    def __init__(self, finish: _Optional[bool] = ..., anyway: _Optional[bool] = ..., until: _Optional[int] = ...) -> None: ...

class Rotated(_message.Message):
    __slots__ = ("words", "lacking")
    WORDS_FIELD_NUMBER: _ClassVar[int]
    LACKING_FIELD_NUMBER: _ClassVar[int]
    words: str
    lacking: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, words: _Optional[str] = ..., lacking: _Optional[_Iterable[str]] = ...) -> None: ...
