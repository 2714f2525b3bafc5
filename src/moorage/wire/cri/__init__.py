"""Container Runtime Interface: the client and its messages, between node agent and engine."""

from moorage.wire.cri.client import (
    CriClient,
    CriError,
    HandlersUnknownError,
    handlers_in,
    handlers_of,
)
from moorage.wire.cri.engine_probe import Probed, UnusableEngineError, probe
from moorage.wire.cri.generated import engine_pb2 as engine_pb
from moorage.wire.cri.generated import runtime_pb2 as pb

__all__ = [
    "CriClient",
    "CriError",
    "HandlersUnknownError",
    "Probed",
    "UnusableEngineError",
    "engine_pb",
    "handlers_in",
    "handlers_of",
    "pb",
    "probe",
]
