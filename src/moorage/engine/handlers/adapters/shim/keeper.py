"""Task data kept after an exit: output in its pipes, and whether it was killed for memory.

A pipe's content is lost once no process has it open. So that a container's last output survives an
engine upgrade, a process that only sleeps also holds the reading ends open.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from moorage.engine.handlers.adapters.adapter import STDERR, STDOUT
from moorage.linux.cgroups import Cgroups, cgroups_of
from moorage.linux.mounts import current_mounts
from moorage.linux.process import Identity, Process

_KEEPER = ("sleep", "infinity")


def start_keeper(paths: Mapping[int, Path], search_path: str) -> Identity:
    """Start the process that keeps the output pipes open for reading. Raises OSError."""
    pipes = [
        os.open(paths[number], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        for number in (STDOUT, STDERR)
        if number in paths
    ]
    try:
        child = subprocess.Popen(
            _KEEPER,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=pipes,
            env={"PATH": search_path},
            start_new_session=True,
        )
    finally:
        for pipe in pipes:
            os.close(pipe)
    keeper = Process(child.pid, child)
    try:
        return keeper.identity
    finally:
        keeper.close()


async def end_process(identity: Identity | None) -> None:
    """Kill a process with SIGKILL, wait for its end, and reap it if it is our child."""
    process = None if identity is None else Process.find(identity)
    if process is None:
        return
    try:
        process.send(signal.SIGKILL)
        await process.ended()
    finally:
        process.close()
    _reap(process.pid)


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        # Started by an earlier engine; the process that adopted it reaps it.
        return


def memory_file(pid: int) -> str:
    """Return the file that counts OOM kills in a process's cgroup; empty when there is none.

    Source: cgroup-v2 `memory.events`; `memory.oom_control` of version 1 since Linux 4.13.
    """
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return ""
    return memory_file_of(text, cgroups_of(current_mounts(), ""))


def memory_file_of(text: str, cgroups: Cgroups) -> str:
    """Return the file that counts OOM kills, given the text of `/proc/PID/cgroup`."""
    lines = text.splitlines()
    for line in lines:
        _number, controllers, place = line.split(":", 2)
        if "memory" in controllers.split(",") and "memory" in cgroups.v1:
            return str(cgroups.v1["memory"] / place.lstrip("/") / "memory.oom_control")
    for line in lines:
        if line.startswith("0::") and cgroups.unified is not None:
            return str(cgroups.unified / line[3:].lstrip("/") / "memory.events")
    return ""


def was_memory_cut(file: str) -> bool:
    """Return whether the kernel has OOM-killed in that cgroup; False if it is unreadable."""
    try:
        text = Path(file).read_text() if file else ""
    except OSError:
        return False
    return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in text.splitlines())
