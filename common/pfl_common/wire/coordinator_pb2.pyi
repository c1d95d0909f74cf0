from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KIND_UNSPECIFIED: _ClassVar[Kind]
    KIND_TRAIN: _ClassVar[Kind]
    KIND_EVALUATE: _ClassVar[Kind]
    KIND_FINISH: _ClassVar[Kind]

class Direction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DIRECTION_UNSPECIFIED: _ClassVar[Direction]
    DIRECTION_DOWN: _ClassVar[Direction]
    DIRECTION_UP: _ClassVar[Direction]

class Ending(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENDING_UNSPECIFIED: _ClassVar[Ending]
    ENDING_FINISHED: _ClassVar[Ending]
    ENDING_STOPPED: _ClassVar[Ending]
    ENDING_FAILED: _ClassVar[Ending]

class Input(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INPUT_UNSPECIFIED: _ClassVar[Input]
    INPUT_IMAGE: _ClassVar[Input]
    INPUT_ARRAY: _ClassVar[Input]
    INPUT_WINDOWS: _ClassVar[Input]
    INPUT_TOKENS: _ClassVar[Input]
    INPUT_TABLE: _ClassVar[Input]

class Numbering(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NUMBERING_UNSPECIFIED: _ClassVar[Numbering]
    NUMBERING_WORDS: _ClassVar[Numbering]
    NUMBERING_WITHHELD: _ClassVar[Numbering]
    NUMBERING_HASHED: _ClassVar[Numbering]
    NUMBERING_NUMBERS: _ClassVar[Numbering]

class Values(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VALUES_UNSPECIFIED: _ClassVar[Values]
    VALUES_BYTES: _ClassVar[Values]
    VALUES_WIDE: _ClassVar[Values]
    VALUES_UNIT: _ClassVar[Values]
    VALUES_BYTE_FLOATS: _ClassVar[Values]
    VALUES_SIGNED: _ClassVar[Values]
    VALUES_NUMBERS: _ClassVar[Values]
KIND_UNSPECIFIED: Kind
KIND_TRAIN: Kind
KIND_EVALUATE: Kind
KIND_FINISH: Kind
DIRECTION_UNSPECIFIED: Direction
DIRECTION_DOWN: Direction
DIRECTION_UP: Direction
ENDING_UNSPECIFIED: Ending
ENDING_FINISHED: Ending
ENDING_STOPPED: Ending
ENDING_FAILED: Ending
INPUT_UNSPECIFIED: Input
INPUT_IMAGE: Input
INPUT_ARRAY: Input
INPUT_WINDOWS: Input
INPUT_TOKENS: Input
INPUT_TABLE: Input
NUMBERING_UNSPECIFIED: Numbering
NUMBERING_WORDS: Numbering
NUMBERING_WITHHELD: Numbering
NUMBERING_HASHED: Numbering
NUMBERING_NUMBERS: Numbering
VALUES_UNSPECIFIED: Values
VALUES_BYTES: Values
VALUES_WIDE: Values
VALUES_UNIT: Values
VALUES_BYTE_FLOATS: Values
VALUES_SIGNED: Values
VALUES_NUMBERS: Values

class Done(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Signed(_message.Message):
    __slots__ = ("site", "session", "counter", "signature")
    SITE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    site: str
    session: bytes
    counter: int
    signature: bytes
    def __init__(self, site: _Optional[str] = ..., session: _Optional[bytes] = ..., counter: _Optional[int] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Blob(_message.Message):
    __slots__ = ("digest", "size")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    digest: str
    size: int
    def __init__(self, digest: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("kind", "round", "rounds", "attempt", "phase", "since", "drop", "before")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    kind: Kind
    round: int
    rounds: int
    attempt: int
    phase: str
    since: int
    drop: bool
    before: int
    def __init__(self, kind: _Optional[_Union[Kind, str]] = ..., round: _Optional[int] = ..., rounds: _Optional[int] = ..., attempt: _Optional[int] = ..., phase: _Optional[str] = ..., since: _Optional[int] = ..., drop: _Optional[bool] = ..., before: _Optional[int] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("run", "round", "attempt", "kind", "phase", "direction", "sender", "manifest", "groups", "state", "digests", "sent")
    RUN_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    run: str
    round: int
    attempt: int
    kind: Kind
    phase: str
    direction: Direction
    sender: str
    manifest: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    state: str
    digests: str
    sent: str
    def __init__(self, run: _Optional[str] = ..., round: _Optional[int] = ..., attempt: _Optional[int] = ..., kind: _Optional[_Union[Kind, str]] = ..., phase: _Optional[str] = ..., direction: _Optional[_Union[Direction, str]] = ..., sender: _Optional[str] = ..., manifest: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., state: _Optional[str] = ..., digests: _Optional[str] = ..., sent: _Optional[str] = ...) -> None: ...

class Seal(_message.Message):
    __slots__ = ("wrap", "signature")
    WRAP_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    wrap: bytes
    signature: bytes
    def __init__(self, wrap: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("input", "shape", "classes", "samples", "warnings", "sizes", "values", "low", "high", "moments", "data", "vocabulary", "columns", "table")
    INPUT_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    MOMENTS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    input: Input
    shape: _containers.RepeatedScalarFieldContainer[int]
    classes: _containers.RepeatedScalarFieldContainer[str]
    samples: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    sizes: _containers.RepeatedCompositeFieldContainer[PictureSize]
    values: Values
    low: float
    high: float
    moments: Moments
    data: str
    vocabulary: Vocabulary
    columns: _containers.RepeatedScalarFieldContainer[str]
    table: _containers.RepeatedCompositeFieldContainer[TableColumn]
    def __init__(self, input: _Optional[_Union[Input, str]] = ..., shape: _Optional[_Iterable[int]] = ..., classes: _Optional[_Iterable[str]] = ..., samples: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ..., sizes: _Optional[_Iterable[_Union[PictureSize, _Mapping]]] = ..., values: _Optional[_Union[Values, str]] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., moments: _Optional[_Union[Moments, _Mapping]] = ..., data: _Optional[str] = ..., vocabulary: _Optional[_Union[Vocabulary, _Mapping]] = ..., columns: _Optional[_Iterable[str]] = ..., table: _Optional[_Iterable[_Union[TableColumn, _Mapping]]] = ...) -> None: ...

class TableColumn(_message.Message):
    __slots__ = ("name", "categorical", "missing", "count", "total", "square", "categories", "hashed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CATEGORICAL_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    SQUARE_FIELD_NUMBER: _ClassVar[int]
    CATEGORIES_FIELD_NUMBER: _ClassVar[int]
    HASHED_FIELD_NUMBER: _ClassVar[int]
    name: str
    categorical: bool
    missing: bool
    count: int
    total: float
    square: float
    categories: _containers.RepeatedScalarFieldContainer[str]
    hashed: int
    def __init__(self, name: _Optional[str] = ..., categorical: _Optional[bool] = ..., missing: _Optional[bool] = ..., count: _Optional[int] = ..., total: _Optional[float] = ..., square: _Optional[float] = ..., categories: _Optional[_Iterable[str]] = ..., hashed: _Optional[int] = ...) -> None: ...

class Vocabulary(_message.Message):
    __slots__ = ("numbering", "words", "tokens")
    NUMBERING_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    numbering: Numbering
    words: _containers.RepeatedScalarFieldContainer[str]
    tokens: int
    def __init__(self, numbering: _Optional[_Union[Numbering, str]] = ..., words: _Optional[_Iterable[str]] = ..., tokens: _Optional[int] = ...) -> None: ...

class PictureSize(_message.Message):
    __slots__ = ("height", "width", "count")
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    height: int
    width: int
    count: int
    def __init__(self, height: _Optional[int] = ..., width: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class Moments(_message.Message):
    __slots__ = ("count", "sums", "squares")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    SQUARES_FIELD_NUMBER: _ClassVar[int]
    count: int
    sums: _containers.RepeatedScalarFieldContainer[float]
    squares: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, count: _Optional[int] = ..., sums: _Optional[_Iterable[float]] = ..., squares: _Optional[_Iterable[float]] = ...) -> None: ...

class JoinAnswer(_message.Message):
    __slots__ = ("gathering", "joined", "warnings", "sums")
    GATHERING_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    gathering: Done
    joined: Joined
    warnings: _containers.RepeatedScalarFieldContainer[str]
    sums: bool
    def __init__(self, gathering: _Optional[_Union[Done, _Mapping]] = ..., joined: _Optional[_Union[Joined, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ..., sums: _Optional[bool] = ...) -> None: ...

class Joined(_message.Message):
    __slots__ = ("spec", "init", "seal", "card")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    INIT_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    CARD_FIELD_NUMBER: _ClassVar[int]
    spec: bytes
    init: Blob
    seal: Seal
    card: bytes
    def __init__(self, spec: _Optional[bytes] = ..., init: _Optional[_Union[Blob, _Mapping]] = ..., seal: _Optional[_Union[Seal, _Mapping]] = ..., card: _Optional[bytes] = ...) -> None: ...

class VisitRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class VisitAnswer(_message.Message):
    __slots__ = ("nothing", "visited")
    NOTHING_FIELD_NUMBER: _ClassVar[int]
    VISITED_FIELD_NUMBER: _ClassVar[int]
    nothing: Done
    visited: Visited
    def __init__(self, nothing: _Optional[_Union[Done, _Mapping]] = ..., visited: _Optional[_Union[Visited, _Mapping]] = ...) -> None: ...

class Visited(_message.Message):
    __slots__ = ("run", "last")
    RUN_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    run: Joined
    last: Assignment
    def __init__(self, run: _Optional[_Union[Joined, _Mapping]] = ..., last: _Optional[_Union[Assignment, _Mapping]] = ...) -> None: ...

class Mark(_message.Message):
    __slots__ = ("round", "attempt")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    round: int
    attempt: int
    def __init__(self, round: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class NextTaskRequest(_message.Message):
    __slots__ = ("marks", "wait_seconds", "beside_bytes", "before")
    MARKS_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BESIDE_BYTES_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    marks: _containers.RepeatedCompositeFieldContainer[Mark]
    wait_seconds: float
    beside_bytes: int
    before: _containers.RepeatedCompositeFieldContainer[Mark]
    def __init__(self, marks: _Optional[_Iterable[_Union[Mark, _Mapping]]] = ..., wait_seconds: _Optional[float] = ..., beside_bytes: _Optional[int] = ..., before: _Optional[_Iterable[_Union[Mark, _Mapping]]] = ...) -> None: ...

class NextTaskAnswer(_message.Message):
    __slots__ = ("nothing", "assignment", "over")
    NOTHING_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    nothing: Done
    assignment: Assignment
    over: Over
    def __init__(self, nothing: _Optional[_Union[Done, _Mapping]] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ..., over: _Optional[_Union[Over, _Mapping]] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("task", "header", "blob", "seal", "content", "hand_in")
    TASK_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    HAND_IN_FIELD_NUMBER: _ClassVar[int]
    task: Task
    header: Header
    blob: Blob
    seal: Seal
    content: bytes
    hand_in: bool
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ..., header: _Optional[_Union[Header, _Mapping]] = ..., blob: _Optional[_Union[Blob, _Mapping]] = ..., seal: _Optional[_Union[Seal, _Mapping]] = ..., content: _Optional[bytes] = ..., hand_in: _Optional[bool] = ...) -> None: ...

class Over(_message.Message):
    __slots__ = ("ending", "words", "counted")
    ENDING_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    ending: Ending
    words: str
    counted: int
    def __init__(self, ending: _Optional[_Union[Ending, str]] = ..., words: _Optional[str] = ..., counted: _Optional[int] = ...) -> None: ...

class OfferRequest(_message.Message):
    __slots__ = ("key", "header", "blob", "seal", "content")
    KEY_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    key: str
    header: Header
    blob: Blob
    seal: Seal
    content: bytes
    def __init__(self, key: _Optional[str] = ..., header: _Optional[_Union[Header, _Mapping]] = ..., blob: _Optional[_Union[Blob, _Mapping]] = ..., seal: _Optional[_Union[Seal, _Mapping]] = ..., content: _Optional[bytes] = ...) -> None: ...

class OfferAnswer(_message.Message):
    __slots__ = ("room", "receipt")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    room: Room
    receipt: Receipt
    def __init__(self, room: _Optional[_Union[Room, _Mapping]] = ..., receipt: _Optional[_Union[Receipt, _Mapping]] = ...) -> None: ...

class Room(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("run", "key", "site", "digest", "signature")
    RUN_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    run: str
    key: str
    site: str
    digest: str
    signature: bytes
    def __init__(self, run: _Optional[str] = ..., key: _Optional[str] = ..., site: _Optional[str] = ..., digest: _Optional[str] = ..., signature: _Optional[bytes] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("digest", "offset")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    digest: str
    offset: int
    def __init__(self, digest: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class StoreRequest(_message.Message):
    __slots__ = ("key", "offset")
    KEY_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    key: str
    offset: int
    def __init__(self, key: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class HandInRequest(_message.Message):
    __slots__ = ("offer", "report", "next")
    OFFER_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    offer: OfferRequest
    report: ReportRequest
    next: NextTaskRequest
    def __init__(self, offer: _Optional[_Union[OfferRequest, _Mapping]] = ..., report: _Optional[_Union[ReportRequest, _Mapping]] = ..., next: _Optional[_Union[NextTaskRequest, _Mapping]] = ...) -> None: ...

class HandInAnswer(_message.Message):
    __slots__ = ("receipt", "next", "held_seconds")
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    HELD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    receipt: Receipt
    next: NextTaskAnswer
    held_seconds: float
    def __init__(self, receipt: _Optional[_Union[Receipt, _Mapping]] = ..., next: _Optional[_Union[NextTaskAnswer, _Mapping]] = ..., held_seconds: _Optional[float] = ...) -> None: ...

class Vector(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("key", "scores")
    class ScoresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Vector
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Vector, _Mapping]] = ...) -> None: ...
    KEY_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    key: str
    scores: _containers.MessageMap[str, Vector]
    def __init__(self, key: _Optional[str] = ..., scores: _Optional[_Mapping[str, Vector]] = ...) -> None: ...

class DeclineRequest(_message.Message):
    __slots__ = ("key", "reason", "words")
    KEY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    key: str
    reason: str
    words: str
    def __init__(self, key: _Optional[str] = ..., reason: _Optional[str] = ..., words: _Optional[str] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("key", "progress", "hold_seconds")
    KEY_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    HOLD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    key: str
    progress: int
    hold_seconds: float
    def __init__(self, key: _Optional[str] = ..., progress: _Optional[int] = ..., hold_seconds: _Optional[float] = ...) -> None: ...

class HeartbeatAnswer(_message.Message):
    __slots__ = ("wanted",)
    WANTED_FIELD_NUMBER: _ClassVar[int]
    wanted: bool
    def __init__(self, wanted: _Optional[bool] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("comes_back",)
    COMES_BACK_FIELD_NUMBER: _ClassVar[int]
    comes_back: bool
    def __init__(self, comes_back: _Optional[bool] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("csr_pem", "card_request")
    CSR_PEM_FIELD_NUMBER: _ClassVar[int]
    CARD_REQUEST_FIELD_NUMBER: _ClassVar[int]
    csr_pem: bytes
    card_request: bytes
    def __init__(self, csr_pem: _Optional[bytes] = ..., card_request: _Optional[bytes] = ...) -> None: ...

class RenewAnswer(_message.Message):
    __slots__ = ("certificate_pem", "card", "authorities_pem")
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    CARD_FIELD_NUMBER: _ClassVar[int]
    AUTHORITIES_PEM_FIELD_NUMBER: _ClassVar[int]
    certificate_pem: bytes
    card: bytes
    authorities_pem: bytes
    def __init__(self, certificate_pem: _Optional[bytes] = ..., card: _Optional[bytes] = ..., authorities_pem: _Optional[bytes] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusAnswer(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    def __init__(self, json: _Optional[bytes] = ...) -> None: ...
