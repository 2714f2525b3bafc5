"""Termination message of a container: its message file, or the end of its log.

Source: core/v1 `terminationMessagePath`, `terminationMessagePolicy`; limits of the kubelet (4 KiB
from the file, 80 lines and 2 KiB from the log).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from moorage.linux.regular_file import read_tail
from moorage.node.logs.reading import LogReadError, last_of_log
from moorage.node.pod_facts.labels import parse_container_record
from moorage.wire.cri import pb

FALLBACK_TO_LOGS = "FallbackToLogsOnError"

_FILE_LIMIT_BYTES = 4096
_LOG_LINES = 80
_LOG_LIMIT_BYTES = 2048


async def termination_message(status: pb.ContainerStatus) -> str:
    """Return the message of a terminated container, preceded by the engine's own message."""
    if status.state != pb.CONTAINER_EXITED:
        return status.message
    memory = parse_container_record(status.annotations)
    left = await _from_file(status, memory.message_path)
    wants_log = memory.message_policy == FALLBACK_TO_LOGS and status.exit_code != 0
    if not left and wants_log and status.log_path:
        left = await _from_log(Path(status.log_path))
    return ": ".join(part for part in (status.message, left) if part)


async def _from_file(status: pb.ContainerStatus, path: str) -> str:
    if not path:
        return ""
    wanted = path if path.startswith("/") else f"/{path}"
    for mount in status.mounts:
        if mount.container_path == wanted:
            return await asyncio.to_thread(_last_bytes, Path(mount.host_path))
    return ""


def _last_bytes(path: Path) -> str:
    try:
        # The container controls this file, and may have mounted anything at its path.
        return read_tail(path, _FILE_LIMIT_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"Error on reading termination log {path}: {error.strerror}"


async def _from_log(path: Path) -> str:
    try:
        return await last_of_log(path, _LOG_LINES, _LOG_LIMIT_BYTES)
    except LogReadError as error:
        return f"Error on reading termination message from logs: {error}"
