"""StopContainer: send the stop signal, then SIGKILL after the grace period.

The exit itself is recorded by the exit watch (`containers/exit.py`). Source: CRI `StopContainer`.
"""

from __future__ import annotations

import asyncio
import signal

from moorage.engine.containers.signals import signal_number
from moorage.engine.containers.task import signal_task
from moorage.engine.context import EngineContext
from moorage.engine.errors import TimeLimitError
from moorage.engine.inventory import Container
from moorage.engine.records import Stage

KILL_DEADLINE_S = 30.0


async def stop_container(context: EngineContext, container: Container, grace_s: int) -> None:
    """Stop a container: its stop signal, then SIGKILL after `grace_s`; at once with 0.

    Returns when its exit is recorded; a container that does not run is no error. Raises
    TimeLimitError when it has not exited 30 s after SIGKILL, FailedError.
    """
    if container.record.stage is Stage.STARTING:
        # StartContainer holds the lock until the start has succeeded or failed.
        async with container.lock:
            pass
    if not container.is_running:
        return
    if grace_s > 0:
        number = signal_number(container.record.stop_signal) or signal.SIGTERM
        if not container.is_stopping:
            # A second call waits for the same exit; it must not send the signal again.
            container.is_stopping = True
            await signal_task(context, container, number)
        if await _exits_within(container, grace_s):
            return
    await signal_task(context, container, signal.SIGKILL)
    if not await _exits_within(container, KILL_DEADLINE_S):
        raise TimeLimitError(
            f"container {container.id} is still running {KILL_DEADLINE_S:g} s after SIGKILL"
        )


async def _exits_within(container: Container, limit_s: float) -> bool:
    try:
        async with asyncio.timeout(limit_s):
            await container.exited.wait()
    except TimeoutError:
        return False
    return True
