"""Target protocol: the operations of the engine that the streaming endpoint calls."""

from __future__ import annotations

from typing import Protocol

from moorage.engine.handlers.adapters import ExecProcess, Streams
from moorage.wire.cri import pb
from moorage.wire.streaming.connection import Connection


class Target(Protocol):
    """Starts and connects to processes. Safe for concurrent use.

    Every method raises EngineError and AdapterError.
    """

    async def exec(self, request: pb.ExecRequest) -> ExecProcess:
        """Start the requested process."""

    async def attach(self, request: pb.AttachRequest) -> Streams:
        """Return the streams of the container's first process."""

    async def dial(self, sandbox_id: str, port: int) -> Connection:
        """Connect to a port inside the pod. Raises OSError when nothing listens there."""
