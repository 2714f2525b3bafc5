"""CheckpointContainer: write a running container's checkpoint; the container keeps running.

Source: CRI `CheckpointContainer`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from moorage.engine.context import EngineContext


async def checkpoint_container(context: EngineContext, container_id: str, directory: Path) -> None:
    """Write a checkpoint into a directory, created if absent.

    Raises NotFoundError, PreconditionError unless the container runs, OSError, AdapterError.
    """
    container = context.inventory.find_running(container_id)
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    await context.adapter(container.sandbox).checkpoint(
        container.task(context.paths), directory, keeps_running=True
    )
