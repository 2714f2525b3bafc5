"""Task service client: calls to shims, over connections that tasks of one shim share."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TypeVar

from google.protobuf.message import Message

from moorage.engine.handlers.adapters.adapter import (
    AdapterError,
    TaskNotFoundError,
    UnsupportedError,
)
from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.adapters.shim.program import Address
from moorage.engine.handlers.adapters.ttrpc import (
    NOT_FOUND,
    UNIMPLEMENTED,
    ConnectionLostError,
    TtrpcClient,
    TtrpcError,
)

CALL_DEADLINE_S = 30.0
CONNECT_DEADLINE_S = 5.0
_ABOUT_A_TASK = frozenset({"State", "Wait", "Delete", "Pids", "Stats"})
_GONE = ("no such file", "not found", "does not exist", "no such process")
_SUBJECTS = {NOT_FOUND: TaskNotFoundError, UNIMPLEMENTED: UnsupportedError}

_Reply = TypeVar("_Reply", bound=Message)


class ShimLostError(AdapterError):
    """No shim answers at the address: it has exited, or was killed."""


class TaskGoneError(ShimLostError):
    """A shim answers that what it ran is gone: it can do no more for the task than a lost one.

    A virtual machine has ended on its own, and its shim knows only by its missing files.
    """


class ShimConnections:
    """Connection pool with one connection per shim, opened on first use."""

    def __init__(self) -> None:
        self._clients: dict[str, TtrpcClient] = {}
        self._connecting = asyncio.Lock()

    async def call(
        self,
        address: Address,
        method: str,
        request: Message,
        reply: type[_Reply],
        *,
        deadline_s: float | None = CALL_DEADLINE_S,
    ) -> _Reply:
        """Call a method of the shim at an address and return its reply.

        Raises TaskNotFoundError and UnsupportedError when the shim returns those codes,
        ShimLostError when no shim answers, TaskGoneError when one answers that what it ran is gone,
        and AdapterError for other errors and when the deadline passes.
        """
        try:
            client = await self._client(address.path)
            return await client.call(address.service, method, request, reply, deadline_s=deadline_s)
        except ConnectionLostError as error:
            raise ShimLostError(f"the shim does not answer: {error}") from error
        except TtrpcError as error:
            text = " ".join(str(error).split())
            kind = _SUBJECTS.get(error.code, AdapterError)
            if kind is AdapterError and method in _ABOUT_A_TASK and says_gone(text):
                kind = TaskGoneError
            raise kind(text) from error
        except TimeoutError:
            raise AdapterError(f"the shim's {method} took longer than {deadline_s:g} s") from None

    async def order(
        self,
        address: Address,
        method: str,
        request: Message,
        *,
        deadline_s: float | None = CALL_DEADLINE_S,
    ) -> None:
        """Call a method whose reply is empty; otherwise as `call`."""
        await self.call(address, method, request, pb.Empty, deadline_s=deadline_s)

    async def gone(self, address: Address, patience_s: float) -> None:
        """Block until the shim has closed the connection, or `patience_s` seconds have passed."""
        client = self._clients.get(address.path)
        if client is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await client.lost.wait()

    def close(self) -> None:
        """Close every connection; the shims keep running."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    async def _client(self, path: str) -> TtrpcClient:
        async with self._connecting:
            for address, client in tuple(self._clients.items()):
                if client.is_lost:
                    del self._clients[address]
            if path not in self._clients:
                self._clients[path] = await TtrpcClient.connect(path, deadline_s=CONNECT_DEADLINE_S)
            return self._clients[path]


def says_gone(text: str) -> bool:
    """Return whether a shim's error says that a task's process or files do not exist."""
    return any(word in text.lower() for word in _GONE)
