"""Waiting for objects: until a collection, as an informer sees it, meets a condition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from moorage.api.meta import Object
from moorage.wire.client.informer import Informer

T = TypeVar("T", bound=Object)


async def wait_until(informer: Informer[T], condition: Callable[[Informer[T]], bool]) -> None:
    """Run a new informer until its copy meets the condition, which is asked after each change.

    It is asked first once the collection has been listed. Without a deadline of its own: use
    `asyncio.timeout`. The copy stays as it was last seen.
    """
    changed = asyncio.Event()
    informer.add_handler(lambda _before, _after: changed.set())
    following = asyncio.ensure_future(informer.run())
    try:
        await informer.wait_synced()
        while not condition(informer):
            changed.clear()
            await changed.wait()
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
