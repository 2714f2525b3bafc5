"""Kinds that a server may lack: their controllers wait until it serves them.

Servers of other versions, or with other feature gates, lack kinds of the API's newest versions.
Custom resources are there once their definition is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from moorage.api.clock import Clock
from moorage.api.errors import NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.wire.client.backoff import Backoff
from moorage.wire.client.discovery import read_version
from moorage.wire.client.resources import Resource
from moorage.wire.client.rest import Client, UnreachableError

_FIRST_S, _AGAIN_S = 0.2, 60.0
_RETRY_S = 1.0

log = Log(__name__)


async def run_when_served(
    client: Client, resource: Resource[Any], clock: Clock, run: Callable[[], Awaitable[None]]
) -> None:
    """Run a controller once the server serves the resource.

    Until then it asks often at first, since definitions are installed at the start of a cluster,
    and each minute later.
    """
    is_known, backoff = False, Backoff(_FIRST_S, _AGAIN_S)
    while not await _is_served(client, resource, clock):
        if not is_known:
            log.info("server lacks a kind", resource=resource.plural, version=resource.api_version)
            is_known = True
        await clock.sleep(backoff.next_s())
    await run()


async def _is_served(client: Client, resource: Resource[Any], clock: Clock) -> bool:
    while True:
        try:
            served = await read_version(client, resource.api_version)
        except NotFoundError:
            return False
        except (StatusError, UnreachableError) as error:
            log.debug("served kinds cannot be read", error=error)
            await clock.sleep(_RETRY_S)
        else:
            return any(entry.resource.plural == resource.plural for entry in served)
