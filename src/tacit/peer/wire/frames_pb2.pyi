from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Opening(_message.Message):
    __slots__ = ("protocol", "software", "name", "run", "agreement", "time", "check")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    AGREEMENT_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    software: str
    name: str
    run: bytes
    agreement: bytes
    time: float
    check: bool
    def __init__(self, protocol: _Optional[int] = ..., software: _Optional[str] = ..., name: _Optional[str] = ..., run: _Optional[bytes] = ..., agreement: _Optional[bytes] = ..., time: _Optional[float] = ..., check: _Optional[bool] = ...) -> None: ...

class FrameHeader(_message.Message):
    __slots__ = ("kind", "run", "agreement", "round", "exchange", "protocol", "dtype", "length", "sha256", "held_round", "held_exchange", "held_sha256", "answer", "plan")
    KIND_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    AGREEMENT_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    HELD_ROUND_FIELD_NUMBER: _ClassVar[int]
    HELD_EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    HELD_SHA256_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    kind: int
    run: bytes
    agreement: bytes
    round: int
    exchange: int
    protocol: int
    dtype: str
    length: int
    sha256: bytes
    held_round: int
    held_exchange: int
    held_sha256: bytes
    answer: bool
    plan: bytes
    def __init__(self, kind: _Optional[int] = ..., run: _Optional[bytes] = ..., agreement: _Optional[bytes] = ..., round: _Optional[int] = ..., exchange: _Optional[int] = ..., protocol: _Optional[int] = ..., dtype: _Optional[str] = ..., length: _Optional[int] = ..., sha256: _Optional[bytes] = ..., held_round: _Optional[int] = ..., held_exchange: _Optional[int] = ..., held_sha256: _Optional[bytes] = ..., answer: _Optional[bool] = ..., plan: _Optional[bytes] = ...) -> None: ...
