"""Teardown of a cluster: its supervisor, then what `clearing` removes from the host."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable

from moorage.cluster.completion import complete
from moorage.cluster.engine.paths import engine_paths
from moorage.cluster.errors import LeftoverError, StopError
from moorage.cluster.launching import launch
from moorage.cluster.layout import Layout
from moorage.cluster.settings import Settings
from moorage.cluster.supervision.supervisor import running_pid
from moorage.linux.process import Process

STOP_S = 90.0
Clear = Callable[..., Awaitable[None]]
_CLEARING = "moorage.cluster.clearing"


async def stop_supervisor(
    layout: Layout,
    within_s: float = STOP_S,
    find_pid: Callable[[Layout], int | None] = running_pid,
) -> bool:
    """Stop the running supervisor and its parts; pods keep running. Return False if none ran.

    Raises StopError if it has not ended in time.
    """
    pid = find_pid(layout)
    if pid is None:
        return False
    try:
        process = Process(pid)
    except ProcessLookupError:
        return True
    try:
        process.send(signal.SIGTERM)
        async with asyncio.timeout(within_s):
            await process.ended()
    except TimeoutError:
        raise StopError(
            f"the supervisor (process {pid}) has not ended after {within_s:g} s"
        ) from None
    finally:
        process.close()
    return True


async def clear_host_apart(
    layout: Layout,
    settings: Settings,
    *,
    abandons_pods: bool = False,
    clear: Clear | None = None,
) -> None:
    """Do what `clear_host` does, in a process of its own if pods may have to be stopped.

    Cancellation interrupts that process and waits for its end. Raises LeftoverError if something
    stays; without such a process, what `clear_host` raises.
    """
    if not engine_paths(layout, settings).run.is_dir():
        from moorage.cluster.clearing import clear_host

        await (clear or clear_host)(layout, settings, abandons_pods=abandons_pods)
        return
    process = launch(
        [
            sys.executable, "-m", _CLEARING, str(layout.root),
            *(("--abandon-pods",) if abandons_pods else ()),
        ],
        output=subprocess.PIPE,
    )  # fmt: skip
    ending = asyncio.ensure_future(asyncio.to_thread(process.communicate))
    try:
        output, _ = await asyncio.shield(ending)
    except asyncio.CancelledError:
        process.send_signal(signal.SIGINT)
        await complete(asyncio.wait((ending,)))
        raise
    if process.returncode:
        text = output.decode(errors="replace").strip()
        raise LeftoverError(text or f"pods were not ended: exit status {process.returncode}")
