"""An API server of one collection of nodes, small enough to misbehave on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from moorage.wire.client.config import ClientConfig
from moorage.wire.client.rest import Client
from tests.wire.streaming.servers import serving

PATH = "/api/v1/nodes"


class FakeApi:
    """Nodes with revisions, a log of changes, and connections that the test can cut.

    `lists` counts the lists begun; `watched` holds the revision each watch started from.
    `page_size` cuts lists into pages. `failures` are answers given instead of the next ones.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, Any]] = {}
        self._log: list[tuple[int, str, dict[str, Any]]] = []
        self._compacted = 0
        self._changed = asyncio.Event()
        self._connections: list[web.Request] = []
        self._ends = 0
        self.revision = 1
        self.page_size = 500
        self.lists = 0
        self.watched: list[int] = []
        self.failures: list[Callable[[], web.Response]] = []
        self.requests: list[web.Request] = []
        self.ends_watches_at_once = False

    def put(self, name: str, **labels: str) -> None:
        self.revision += 1
        kind = "MODIFIED" if name in self._nodes else "ADDED"
        metadata = {"name": name, "resourceVersion": str(self.revision), "labels": labels}
        self._nodes[name] = {"metadata": metadata}
        self._notify(kind, self._nodes[name])

    def remove(self, name: str) -> None:
        self.revision += 1
        node = self._nodes.pop(name)
        metadata = {**node["metadata"], "resourceVersion": str(self.revision)}
        self._notify("DELETED", {**node, "metadata": metadata})

    def bookmark(self) -> None:
        """Send watchers the revision, without a change."""
        self.revision += 1
        self._notify("BOOKMARK", {"metadata": {"resourceVersion": str(self.revision)}})

    def forget(self, name: str) -> None:
        """Remove a node without a word, as if the change had been compacted."""
        self.revision += 1
        del self._nodes[name]

    def compact(self) -> None:
        """Nothing up to now can be watched any more."""
        self._compacted = self.revision
        self._log.clear()

    def cut(self) -> None:
        """Break every watch in the middle."""
        for request in list(self._connections):
            if request.transport is not None:
                request.transport.abort()

    def end(self) -> None:
        """End every watch in order."""
        self._ends += 1
        self._changed.set()

    def _notify(self, kind: str, obj: dict[str, Any]) -> None:
        self._log.append((self.revision, kind, obj))
        self._changed.set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if self.failures:
            return self.failures.pop(0)()
        if request.query.get("watch"):
            return await self._watch(request)
        return self._list(request)

    def _list(self, request: web.Request) -> web.Response:
        start = int(request.query.get("continue", "0"))
        if not start:
            self.lists += 1
        names = sorted(self._nodes)
        end = start + min(self.page_size, int(request.query.get("limit", "0")) or self.page_size)
        page = names[start:end]
        metadata = {"resourceVersion": str(self.revision)}
        if end < len(names):
            metadata["continue"] = str(end)
        return answer({"metadata": metadata, "items": [self._nodes[name] for name in page]})()

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        after = int(request.query["resourceVersion"])
        self.watched.append(after)
        response = web.StreamResponse()
        await response.prepare(request)
        if after < self._compacted:
            await response.write(line("ERROR", expired()))
            return response
        if self.ends_watches_at_once:
            return response
        self._connections.append(request)
        ends = self._ends
        try:
            while True:
                self._changed.clear()
                is_over = self._ends != ends
                for revision, kind, obj in list(self._log):
                    if revision > after:
                        after = revision
                        await response.write(line(kind, obj))
                if is_over:
                    return response
                await self._changed.wait()
        finally:
            self._connections.remove(request)


def line(kind: str, obj: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"


def expired() -> dict[str, Any]:
    return status(410, "Expired", "too old resource version")


def status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
            "reason": reason, "message": message}  # fmt: skip


def answer(document: Any, code: int = 200, **headers: str) -> Callable[[], web.Response]:
    """Makes an answer each time it is called: a response can be sent once."""
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    body = msgspec.json.encode(document)
    return lambda: web.Response(body=body, status=code, headers=header_fields)


def refusal(
    code: int, reason: str, message: str = "no", **headers: str
) -> Callable[[], web.Response]:
    return answer(status(code, reason, message), code, **headers)


@asynccontextmanager
async def running(**config: Any) -> AsyncIterator[tuple[FakeApi, Client]]:
    """The server and a client of it."""
    api = FakeApi()
    async with serving(api.handle) as url:
        server = ClientConfig(server=url.rstrip("/"), **config)
        async with Client(server, user_agent="test") as client:
            yield api, client
