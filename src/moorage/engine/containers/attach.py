"""Attach: the streams of a running container's first process.

Source: CRI `Attach`.
"""

from __future__ import annotations

from moorage.engine.context import EngineContext
from moorage.engine.handlers.adapters import Streams


async def attach(context: EngineContext, container_id: str) -> Streams:
    """Return the container's streams. Raises NotFoundError, PreconditionError, AdapterError."""
    container = context.inventory.find_running(container_id)
    return await context.adapter(container.sandbox).attach(container.task(context.paths))
