"""Streaming server: one-time URLs for exec, attach and port-forward.

    Exec(request) ─▶ exec_url ─▶ http://127.0.0.1:PORT/exec/TOKEN ◀── the node agent, for a client

The socket listens from the start, so that its port is known; the HTTP library, which takes more
memory than the rest of the server, is imported at the first URL. Source: CRI streaming calls.
"""

from __future__ import annotations

import asyncio
import importlib
import socket
from typing import Self

from moorage.api.clock import Clock, SystemClock
from moorage.engine.errors import FailedError
from moorage.engine.streams.requests import StreamRequest, Target, Tokens, check, path_of
from moorage.wire.cri import pb
from moorage.wire.streaming.connection import Deadlines

_BACKLOG = 128


class StreamServer:
    """The streaming server. `async with` listens; leaving ends every stream.

    Safe for concurrent use. Port 0 selects a free one.
    """

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
        self._tokens: Tokens[StreamRequest] = Tokens(self._clock)
        self._is_wanted = asyncio.Event()
        self._listener: socket.socket
        self._serving: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        """Listen on the address. Raises OSError when it cannot be bound."""
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        self._listener = socket.create_server(
            (self._address, self._port), family=family, backlog=_BACKLOG
        )
        self._serving = asyncio.create_task(self._serve(), name="streams")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop serving and close the socket. Raises the error with which the serving failed."""
        self._serving.cancel()
        try:
            await asyncio.wait([self._serving])
            if not self._serving.cancelled():
                self._serving.result()
        finally:
            self._listener.close()

    def exec_url(self, request: pb.ExecRequest) -> str:
        """Return a URL for running the command once, valid for one minute.

        Raises InvalidError for an invalid request, ExhaustedError when too many URLs are unused,
        and FailedError when the server has stopped.
        """
        return self._url(request)

    def attach_url(self, request: pb.AttachRequest) -> str:
        """Return a URL for attaching once. Raises like `exec_url`."""
        return self._url(request)

    def port_forward_url(self, request: pb.PortForwardRequest) -> str:
        """Return a URL for one port-forward connection. Raises like `exec_url`."""
        return self._url(request)

    def _url(self, request: StreamRequest) -> str:
        check(request)
        if self._serving.done():
            raise FailedError(f"the streaming server has stopped: {self._serving.exception()}")
        token = self._tokens.issue(request)
        self._is_wanted.set()
        host = f"[{self._address}]" if ":" in self._address else self._address
        return f"http://{host}:{self._listener.getsockname()[1]}/{path_of(request)}/{token}"

    async def _serve(self) -> None:
        await self._is_wanted.wait()
        # The import takes 0.2 s; clients wait in the backlog.
        await asyncio.to_thread(importlib.import_module, "moorage.engine.streams.endpoint")
        from moorage.engine.streams.endpoint import Endpoint

        endpoint = Endpoint(self._target, self._tokens, self._clock, self._deadlines)
        async with endpoint.serving(self._listener):
            await asyncio.get_running_loop().create_future()
