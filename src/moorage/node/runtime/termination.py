"""Termination message of a container: its message file, or the end of its log.

Source: core/v1 `terminationMessagePath`, `terminationMessagePolicy`; limits of the kubelet (4 KiB
from the file, 80 lines and 2 KiB from the log).
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from pathlib import Path

from moorage.cri import pb
from moorage.node.logs.reading import LogReadError, last_of_log
from moorage.node.pod_facts.labels import parse_container_record

FALLBACK_TO_LOGS = "FallbackToLogsOnError"

_FILE_LIMIT_BYTES = 4096
_LOG_LINES = 80
_LOG_LIMIT_BYTES = 2048
_REFUSED = {stat.S_IFDIR: errno.EISDIR, stat.S_IFLNK: errno.ELOOP}


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
        # The container controls this file: a link must not redirect the read, nor a pipe block it.
        place = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return _unreadable(path, error.errno)
    try:
        status = os.fstat(place)
        if not stat.S_ISREG(status.st_mode):
            # What the pod mounts at that path: opening a device of the host may have effects.
            return _unreadable(path, _REFUSED.get(stat.S_IFMT(status.st_mode), errno.EINVAL))
        with open(f"/proc/self/fd/{place}", "rb") as file:
            file.seek(max(0, status.st_size - _FILE_LIMIT_BYTES))
            return file.read(_FILE_LIMIT_BYTES).decode(errors="replace")
    except OSError as error:
        return _unreadable(path, error.errno)
    finally:
        os.close(place)


def _unreadable(path: Path, number: int | None) -> str:
    return f"Error on reading termination log {path}: {os.strerror(number or errno.EIO)}"


async def _from_log(path: Path) -> str:
    try:
        return await last_of_log(path, _LOG_LINES, _LOG_LIMIT_BYTES)
    except LogReadError as error:
        return f"Error on reading termination message from logs: {error}"
