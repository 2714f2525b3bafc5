"""Status of a cluster's processes, from what its supervisor last wrote."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.cluster.layout import Layout
from moorage.cluster.supervisor import read_state, running_pid


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
