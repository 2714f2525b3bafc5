"""Slow-start batches of similar requests.

Batches of 1, 2, 4… requests: if all would fail for one reason (a quota, an admission rule), only a
few are sent. Source: `slowStartBatch` of the workload controllers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from moorage.api.errors import StatusError
from moorage.wire.client.rest import UnreachableError

# Each request under way holds a TLS connection on both sides; more of them are not faster.
_SIDE_BY_SIDE = 16


async def slow_start(
    count: int, call: Callable[[], Awaitable[None]]
) -> tuple[int, StatusError | UnreachableError | None]:
    """Call `count` times in growing batches until one fails.

    Returns how many were called and the first failure; calls never made are the difference.
    """
    called = 0
    size = 1
    while called < count:
        size = min(size, count - called)
        failure = await at_once([call] * size)
        called += size
        if failure is not None:
            return called, failure
        size *= 2
    return called, None


async def at_once(
    calls: list[Callable[[], Awaitable[None]]],
) -> StatusError | UnreachableError | None:
    """Run all calls, with bounded concurrency.

    Returns the first failed request's error, None without one. Any other exception is raised.
    """
    turns = asyncio.Semaphore(_SIDE_BY_SIDE)
    results = await asyncio.gather(*(_outcome(call, turns) for call in calls))
    return next((result for result in results if result is not None), None)


async def _outcome(
    call: Callable[[], Awaitable[None]], turns: asyncio.Semaphore
) -> StatusError | UnreachableError | None:
    async with turns:
        try:
            await call()
        except (StatusError, UnreachableError) as failure:
            return failure
    return None
