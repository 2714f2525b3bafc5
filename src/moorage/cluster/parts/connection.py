"""Connections of the other parts to the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from moorage.api.errors import StatusError
from moorage.cluster.access.credentials import Credentials, Pair
from moorage.cluster.settings import Settings
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.rest import Client, UnreachableError

_FIRST_ANSWER_S = 60.0
_RETRY_S = 0.02


@asynccontextmanager
async def connected(
    settings: Settings,
    credentials: Credentials,
    identity: Pair,
    user_agent: str,
    *,
    first_answer_s: float = _FIRST_ANSWER_S,
    client_of: Callable[..., Client] = Client,
) -> AsyncIterator[Client]:
    """Yield a client of the cluster's API server once the server is ready.

    Parts start together, so the first connections are usually refused; nothing announces a port.
    Raises UnreachableError when the server is not ready after `first_answer_s`.
    """
    config = ClientConfig(
        server=settings.server,
        ca=credentials.authority.certificate.read_bytes(),
        certificate=identity.certificate.read_bytes(),
        key=identity.key.read_bytes(),
    )
    async with client_of(config, user_agent=user_agent) as client:
        try:
            async with asyncio.timeout(first_answer_s):
                await _until_ready(client)
        except TimeoutError as error:
            raise UnreachableError(f"{settings.server} is not ready") from error
        yield client


async def _until_ready(client: Client) -> None:
    while True:
        try:
            await client.request("GET", "/readyz")
        except (UnreachableError, StatusError):
            await asyncio.sleep(_RETRY_S)
        else:
            return
