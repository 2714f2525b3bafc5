"""Heartbeats of a part, which show its supervisor that its event loop runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from typing import Any

from moorage.cluster.supervision.supervisor import NOTIFY_VARIABLE

_BEAT_S = 2.0
_BEAT = b"."


async def with_heartbeats(
    work: Coroutine[Any, Any, None],
    beat_s: float = _BEAT_S,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Run the work, and send heartbeats to the supervisor meanwhile."""
    beats = asyncio.ensure_future(send_heartbeats(beat_s, environment))
    # Lets it copy the pipe's descriptor before the work can report readiness.
    await asyncio.sleep(0)
    try:
        await work
    finally:
        beats.cancel()


async def send_heartbeats(
    beat_s: float = _BEAT_S, environment: Mapping[str, str] = os.environ
) -> None:
    """Write a beat to the supervisor's pipe every `beat_s` until cancelled, once the part is ready.

    Call it before `notify_ready`, which closes the descriptor that this function copies; the first
    message on the pipe is that of `notify_ready`. Returns without a supervisor, or when it exits.
    """
    descriptor = environment.get(NOTIFY_VARIABLE)
    if descriptor is None:
        return
    own = os.dup(int(descriptor))
    os.set_blocking(own, False)
    try:
        while True:
            if NOTIFY_VARIABLE not in environment and not _is_written(own):
                return
            await asyncio.sleep(beat_s)
    finally:
        os.close(own)


def _is_written(descriptor: int) -> bool:
    """Write a beat. Return False if the supervisor has exited, which ends this process too."""
    try:
        os.write(descriptor, _BEAT)
    except BlockingIOError:
        # The pipe is full: the supervisor is stopped, and has enough beats to read.
        return True
    except BrokenPipeError:
        return False
    return True
