"""What the streaming endpoint needs of the engine: to start, to attach, to reach a port."""

from __future__ import annotations

from typing import Protocol

from moorage.cri import pb
from moorage.handlers.adapters import ExecProcess, Streams
from moorage.streaming.connection import Connection


class Target(Protocol):
    """Safe for use by many tasks at once. Everything raises EngineError and AdapterError."""

    async def exec(self, request: pb.ExecRequest) -> ExecProcess:
        """Start the process that was asked for."""

    async def attach(self, request: pb.AttachRequest) -> Streams:
        """The streams of the container's own process."""

    async def dial(self, sandbox_id: str, port: int) -> Connection:
        """A connection to a port inside the pod. Raises OSError too, when nobody listens."""
