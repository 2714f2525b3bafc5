"""Start of a cluster's supervisor as a process of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from moorage.cluster.completion import complete
from moorage.cluster.errors import StartError
from moorage.cluster.launching import launch
from moorage.cluster.layout import Layout
from moorage.cluster.reservations import Reservations
from moorage.cluster.supervision.supervisor import NOTIFY_VARIABLE, READY_MESSAGE
from moorage.linux.child import until_readable
from moorage.linux.log_file import rotate_if_full
from moorage.linux.trust import make_private

_TAIL_LINES = 5


async def start_supervisor(
    layout: Layout, within_s: float, reservations: Reservations | None = None
) -> subprocess.Popen[bytes]:
    """Start the supervisor in a session of its own; return its process when the cluster is ready.

    The process inherits `reservations`. Cancellation stops it and waits for its end.

    Raises StartError if it ends before the cluster is ready, or if that takes longer than
    `within_s`; in the second case it keeps running.
    """
    make_private(layout.logs)
    log_path = layout.log("supervisor")
    read_end, write_end = os.pipe()
    try:
        try:
            process = _spawn(layout, log_path, write_end, reservations)
        finally:
            os.close(write_end)
        try:
            async with asyncio.timeout(within_s):
                await until_readable(read_end)
        except TimeoutError:
            raise StartError(
                f"the cluster is not ready after {within_s:g} s; {log_path} ends: "
                f"{_tail(log_path)}",
                has_ended=False,
            ) from None
        except BaseException:
            # Signals of this process's session do not reach the supervisor, which has its own.
            process.terminate()
            await complete(asyncio.to_thread(process.wait))
            raise
        message = os.read(read_end, len(READY_MESSAGE))
    finally:
        os.close(read_end)
    if message != READY_MESSAGE:
        await complete(asyncio.to_thread(process.wait))
        raise StartError(f"the cluster ended; {log_path} ends: {_tail(log_path)}")
    return process


def _spawn(
    layout: Layout, log_path: Path, notify: int, reservations: Reservations | None
) -> subprocess.Popen[bytes]:
    rotate_if_full(log_path)
    with log_path.open("ab") as log:
        return launch(
            [sys.executable, "-m", "moorage.cluster.supervision.supervise", str(layout.root), ""],
            output=log,
            errors=log,
            environment={**os.environ, NOTIFY_VARIABLE: str(notify)},
            passing=(notify, *(reservations.descriptors if reservations else ())),
        )


def _tail(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return " | ".join(lines[-_TAIL_LINES:]) or "(empty)"
