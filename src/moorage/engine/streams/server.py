"""The engine's streaming server: addresses for exec, attach and port-forward, and what is there.

    Exec(request) ─▶ exec_url ─▶ http://127.0.0.1:PORT/exec/TOKEN ◀── the node agent, for a client

The socket listens from the start, so that its port is known; the HTTP library, which weighs more
than the rest of this, is loaded when the first address is asked for. Source: CRI streaming calls.
"""

from __future__ import annotations

import asyncio
import importlib
import socket
from typing import Self

from moorage.api.clock import Clock, SystemClock
from moorage.cri import pb
from moorage.engine.errors import FailedError
from moorage.engine.streams.requests import Asked, check, path_of
from moorage.engine.streams.target import Target
from moorage.engine.streams.tokens import Tokens
from moorage.streaming.deadlines import Deadlines

_BACKLOG = 128


class StreamServer:
    """`async with` listens; leaving ends every stream. Safe for use by many tasks at once."""

    def __init__(
        self,
        target: Target,
        address: str = "127.0.0.1",
        clock: Clock | None = None,
        deadlines: Deadlines | None = None,
        port: int = 0,
    ) -> None:
        self._port = port
        self._target = target
        self._address = address
        self._clock = clock or SystemClock()
        self._deadlines = deadlines or Deadlines()
        self._tokens: Tokens[Asked] = Tokens(self._clock)
        self._is_wanted = asyncio.Event()
        self._listener: socket.socket
        self._serving: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        """Raises OSError when the address cannot be listened on."""
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        self._listener = socket.create_server(
            (self._address, self._port), family=family, backlog=_BACKLOG
        )
        self._serving = asyncio.create_task(self._serve(), name="streams")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Raises what the serving failed with, if it did."""
        self._serving.cancel()
        try:
            await asyncio.wait([self._serving])
            if not self._serving.cancelled():
                self._serving.result()
        finally:
            self._listener.close()

    def exec_url(self, request: pb.ExecRequest) -> str:
        """Where a client can run the command, once. Raises InvalidError, ExhaustedError.

        FailedError when the serving itself has failed.
        """
        return self._url(request)

    def attach_url(self, request: pb.AttachRequest) -> str:
        """Where a client can attach, once. Raises as `exec_url` does."""
        return self._url(request)

    def port_forward_url(self, request: pb.PortForwardRequest) -> str:
        """Where a client can reach ports, with one connection. Raises as `exec_url` does."""
        return self._url(request)

    def _url(self, request: Asked) -> str:
        check(request)
        if self._serving.done():
            raise FailedError(f"streams are not served any more: {self._serving.exception()}")
        token = self._tokens.issue(request)
        self._is_wanted.set()
        host = f"[{self._address}]" if ":" in self._address else self._address
        return f"http://{host}:{self._listener.getsockname()[1]}/{path_of(request)}/{token}"

    async def _serve(self) -> None:
        await self._is_wanted.wait()
        # Loading takes a fifth of a second; clients that come meanwhile wait in the backlog.
        await asyncio.to_thread(importlib.import_module, "moorage.engine.streams.endpoint")
        from moorage.engine.streams.endpoint import Endpoint

        endpoint = Endpoint(self._target, self._tokens, self._clock, self._deadlines)
        async with endpoint.serving(self._listener):
            await asyncio.get_running_loop().create_future()
