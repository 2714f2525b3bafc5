"""Bringing a cluster up, taking it down, and saying how it is.

up (foreground)   this process is the supervisor
up --detach       a process of its own is, and this one returns when the cluster is ready
down              the supervisor ends, pods are stopped, the machine is as it was
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.cluster.claims import Claims
from moorage.cluster.engine import (
    NoEngineError,
    cgroup_root,
    end_pods,
    engine_in_use,
    engine_paths,
    note_engine,
    plan_engine,
    pod_network,
    prepare_host,
    sweep,
    tear_down,
)
from moorage.cluster.engine.sweep import remove_cgroups, remove_mounts
from moorage.cluster.host import gather
from moorage.cluster.layout import Layout
from moorage.cluster.network import unprotect
from moorage.cluster.settings import Settings
from moorage.cluster.supervisor import (
    NOTIFY_VARIABLE,
    READY_MESSAGE,
    read_state,
    running_pid,
)
from moorage.linux.cgroups import current_cgroups
from moorage.linux.private import make_private

_STOP_S = 90.0
_TAIL_LINES = 5


class StartError(Exception):
    """The cluster did not come up; the text has the end of what its supervisor said."""


class StopError(Exception):
    """The supervisor does not end."""


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


def stop_parts(layout: Layout) -> bool:
    """End the running supervisor and its parts; pods go on. False when none ran.

    Raises StopError when it does not end.
    """
    pid = running_pid(layout)
    if pid is None:
        return False
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        ended, _, _ = select.select([descriptor], [], [], _STOP_S)
    finally:
        os.close(descriptor)
    if not ended:
        raise StopError(f"the supervisor (process {pid}) does not end after {_STOP_S:g} s")
    return True


async def clear_machine(layout: Layout, settings: Settings, *, abandons_pods: bool = False) -> None:
    """Stop every pod of the cluster and take what it has on the machine away; data stays.

    Pods are where they were left, whatever the settings say since. `abandons_pods` leaves those on
    an engine of others to it. Raises LeftoverError when something stays.
    """
    used = engine_in_use(layout, settings)
    if used and not abandons_pods:
        await end_pods(used, layout, settings)
    if not settings.has_node or settings.cri:
        network = pod_network(settings, engine_paths(layout, settings))
        await unprotect(network, await gather(layout.root))
    is_own = settings.has_node and not settings.cri
    if is_own or used == "" or engine_paths(layout, settings).run.is_dir():
        await _clear_own_engine(layout, settings)
    remove_mounts(layout.node)
    remove_cgroups([cgroup_root(settings)], current_cgroups())
    note_engine(layout, None)


async def _clear_own_engine(layout: Layout, settings: Settings) -> None:
    host = await prepare_host(layout.root)
    paths = engine_paths(layout, settings)
    network = pod_network(settings, paths)
    try:
        plan = plan_engine(layout, settings, host)
    except NoEngineError:
        # What an engine needs was taken off the machine while the cluster was down.
        await sweep(paths, host, network, frozenset({cgroup_root(settings)}))
    else:
        await tear_down(plan, cgroup_root=cgroup_root(settings))


@dataclass(frozen=True, slots=True)
class PartStatus:
    """How a process is; `memory_bytes` is its resident set, `last_end` how the one before ended."""

    part: str
    state: str
    pid: int | None
    restarts: int
    ready_after_s: float | None
    memory_bytes: int | None
    last_end: str = ""


def part_statuses(layout: Layout) -> tuple[PartStatus, ...]:
    """The cluster's processes, none when it is down."""
    pid = running_pid(layout)
    state = read_state(layout.state)
    if pid is None or state is None:
        return ()
    parts: Any = state["parts"]
    rows = [PartStatus("supervisor", "ready", pid, 0, None, memory_of(pid))]
    for name, part in parts.items():
        rows.append(
            PartStatus(
                name,
                part["state"],
                part["pid"],
                part["restarts"],
                part["ready_after_s"],
                memory_of(part["pid"]) if part["pid"] else None,
                part.get("last_end", ""),
            )
        )
    return tuple(rows)


def memory_of(pid: int) -> int | None:
    """The resident set of a process in bytes, None when it has gone. Source: proc(5)."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
