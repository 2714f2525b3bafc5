"""An API server in this process, and people who may call it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import msgspec

from moorage.api.clock import Clock
from moorage.apiserver.authentication.authenticator import StaticToken
from moorage.apiserver.server.lifecycle import ApiServer
from moorage.cluster.access.credentials import Pair
from moorage.cluster.access.identities import Authority
from moorage.wire.serving import Limits
from tests.apiserver.options import loopback_options
from tests.authorities import prepared_authority
from tests.ports import free_port

TOKENS = (
    StaticToken("admin-token", "admin", ("system:masters",)),
    StaticToken("alice-token", "alice", ("dev",)),
    StaticToken("agent-token", "system:node:n1", ("system:nodes",)),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `json` is the decoded body."""

    status: int
    headers: Any
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Running:
    """A server, and requests to it."""

    def __init__(self, url: str, authority: Authority, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.authority = authority
        self.http = http

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = "admin-token",
        **headers: str,
    ) -> Answer:
        """Send one request; header names with `_` for `-`. The body's type defaults to JSON."""
        request_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            request_headers.setdefault("Authorization", f"Bearer {token}")
        data = body
        if body is not None and not isinstance(body, bytes):
            data = msgspec.json.encode(body)
            request_headers.setdefault("Content-Type", "application/json")
        async with self.http.request(
            method, self.url + path, data=data, headers=request_headers, allow_redirects=False
        ) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    @asynccontextmanager
    async def opened(self, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a GET as the administrator; the body of the answer is read by the caller."""
        headers = {"Authorization": "Bearer admin-token"}
        async with self.http.get(self.url + path, headers=headers) as answer:
            yield answer

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def tls(self, pair: Pair | None = None) -> ssl.SSLContext:
        """How a client with that certificate connects."""
        context = ssl.create_default_context(cafile=str(self.authority.pair.certificate))
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        return context


def _make_directory(directory: Path) -> None:
    """Make the server's directory if it is not there."""
    directory.mkdir(parents=True, exist_ok=True)


async def _copy_first_objects(directory: Path) -> None:
    """Copy the database of a server that has started once, made when it is first needed."""
    database = directory / "state.db"
    if database.exists():
        return
    if not _first_objects:
        with TemporaryDirectory() as other:
            server_options, api_options = loopback_options(
                Path(other), prepared_authority(Path(other) / "pki"), free_port()
            )
            async with ApiServer(server_options, api_options):
                pass
            _first_objects.append(server_options.database.read_bytes())
    database.write_bytes(_first_objects[0])


_first_objects: list[bytes] = []


@asynccontextmanager
async def serving(
    directory: Path,
    *,
    limits: Limits | None = None,
    runs: bool = False,
    has_own_store: bool = False,
    clock: Clock | None = None,
    **options: Any,
) -> AsyncIterator[Running]:
    """A server on loopback; `options` are ApiOptions. `runs`: its background work runs too.

    It starts with the objects that every server has, which takes half as long as to make them; with
    `has_own_store` it makes them, and its store's identity is unlike that of others.
    """
    _make_directory(directory)
    if not has_own_store:
        await _copy_first_objects(directory)
    authority = prepared_authority(directory / "pki")
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    api_fields = {"static_tokens": TOKENS, **options}
    server_options, api_options = loopback_options(directory, authority, port, limits, **api_fields)
    context = ssl.create_default_context(cafile=str(authority.pair.certificate))
    async with (
        ApiServer(server_options, api_options, clock) as server,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as http,
    ):
        background = asyncio.ensure_future(server.run()) if runs else None
        try:
            yield Running(url, authority, http)
        finally:
            if background is not None:
                background.cancel()
                await asyncio.wait((background,))
                assert background.cancelled(), background.exception()
