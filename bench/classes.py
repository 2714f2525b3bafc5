"""RuntimeClasses that benchmarks name in their pods."""

from __future__ import annotations

from contextlib import suppress

from moorage.api.errors import AlreadyExistsError
from moorage.wire.client.resources import RUNTIME_CLASSES
from moorage.wire.client.rest import Client


async def ensure_class(client: Client, handler: str) -> None:
    """Create the class with a handler's name, unless the cluster has made it at its start."""
    with suppress(AlreadyExistsError):
        await client.create(RUNTIME_CLASSES, {"metadata": {"name": handler}, "handler": handler})
