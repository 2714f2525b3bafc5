"""Container tasks: calls to the runtime adapter that several RPCs share."""

from __future__ import annotations

import signal

from moorage.engine.context import EngineContext
from moorage.engine.errors import FailedError
from moorage.engine.handlers.adapters import AdapterError, TaskNotFoundError
from moorage.engine.inventory import Container


async def delete_task(context: EngineContext, container: Container) -> None:
    """Delete the container's task, killing it first; absent is no error. Raises FailedError."""
    try:
        await context.adapter(container.sandbox).delete(container.task(context.paths))
    except AdapterError as error:
        raise FailedError(f"container {container.id!r} cannot be removed: {error}") from error


async def signal_task(context: EngineContext, container: Container, number: int) -> None:
    """Signal the container's first process; absent is no error. Raises FailedError."""
    adapter = context.adapter(container.sandbox)
    try:
        await adapter.kill(container.task(context.paths), signal.Signals(number))
    except TaskNotFoundError:
        return
    except AdapterError as error:
        raise FailedError(f"container {container.id!r} cannot be signalled: {error}") from error
