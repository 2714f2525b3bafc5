"""ReopenContainerLog: reopen a running container's log file after its rotation.

Source: CRI `ReopenContainerLog`.
"""

from __future__ import annotations

from moorage.engine.context import EngineContext


async def reopen_container_log(context: EngineContext, container_id: str) -> None:
    """Reopen the log. Raises NotFoundError, PreconditionError unless it runs, AdapterError."""
    container = context.inventory.find_running(container_id)
    await context.adapter(container.sandbox).reopen_log(container.task(context.paths))
