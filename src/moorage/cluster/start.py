"""Start of a cluster's supervisor as a process of its own."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from moorage.cluster.claims import Claims
from moorage.cluster.layout import Layout
from moorage.cluster.supervisor import NOTIFY_VARIABLE, READY_MESSAGE
from moorage.linux.private import make_private

_TAIL_LINES = 5


class StartError(Exception):
    """The cluster did not come up; the text has the end of what its supervisor said."""


def start_detached(
    layout: Layout,
    within_s: float,
    uninterrupted: AbstractContextManager[object] | None = None,
    claims: Claims | None = None,
) -> None:
    """Start the supervisor as a process of its own and wait until the cluster is ready.

    Raises StartError when it ends before, or is not ready in time; it goes on trying then. One that
    is interrupted meanwhile (Ctrl-C) is stopped again; `uninterrupted` is a block that puts that
    off while the process is being made and nobody knows it yet. The process holds the `claims` too.
    """
    make_private(layout.logs)
    log_path = layout.log("supervisor")
    read_end, write_end = os.pipe()
    process: subprocess.Popen[bytes] | None = None
    try:
        with uninterrupted or nullcontext(), log_path.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "moorage.cluster.supervise", str(layout.root), ""],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, NOTIFY_VARIABLE: str(write_end)},
                pass_fds=(write_end, *(claims.descriptors if claims else ())),
                start_new_session=True,
            )
            os.close(write_end)
        ready, _, _ = select.select([read_end], [], [], within_s)
        said = os.read(read_end, len(READY_MESSAGE)) if ready else b""
    except BaseException:
        # It has a session of its own, so whoever interrupts us does not reach it.
        if process is not None:
            process.terminate()
            process.wait()
        raise
    finally:
        os.close(read_end)
    if said == READY_MESSAGE:
        return
    how = "ended" if ready else f"is not ready after {within_s:g} s"
    if ready:
        process.wait()
    raise StartError(f"the cluster {how}; {log_path} ends: {_tail(log_path)}")


def _tail(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return " | ".join(lines[-_TAIL_LINES:]) or "(empty)"
