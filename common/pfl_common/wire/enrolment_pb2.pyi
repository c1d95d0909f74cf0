from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Way(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WAY_UNSPECIFIED: _ClassVar[Way]
    WAY_INVITATION: _ClassVar[Way]
    WAY_SAME_USER: _ClassVar[Way]
WAY_UNSPECIFIED: Way
WAY_INVITATION: Way
WAY_SAME_USER: Way

class EnrolRequest(_message.Message):
    __slots__ = ("way", "site", "csr_pem", "proof", "card_request")
    WAY_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    CSR_PEM_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    CARD_REQUEST_FIELD_NUMBER: _ClassVar[int]
    way: Way
    site: str
    csr_pem: bytes
    proof: bytes
    card_request: bytes
    def __init__(self, way: _Optional[_Union[Way, str]] = ..., site: _Optional[str] = ..., csr_pem: _Optional[bytes] = ..., proof: _Optional[bytes] = ..., card_request: _Optional[bytes] = ...) -> None: ...

class EnrolAnswer(_message.Message):
    __slots__ = ("certificate_pem", "card")
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    CARD_FIELD_NUMBER: _ClassVar[int]
    certificate_pem: bytes
    card: bytes
    def __init__(self, certificate_pem: _Optional[bytes] = ..., card: _Optional[bytes] = ...) -> None: ...
