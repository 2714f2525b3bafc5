"""Status of a cluster's processes, from its supervisor's state file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moorage.cluster.layout import Layout
from moorage.cluster.supervision.supervisor import read_state, running_pid
from moorage.linux.process_memory import resident_bytes


@dataclass(frozen=True, slots=True)
class PartStatus:
    """Status of a process.

    `memory_bytes` is its resident set, `last_end` how the part's previous process ended.
    """

    part: str
    state: str
    pid: int | None
    restarts: int
    ready_after_s: float | None
    memory_bytes: int | None
    last_end: str = ""


def part_statuses(layout: Layout) -> tuple[PartStatus, ...]:
    """Return the status of the cluster's processes, none while the cluster is down."""
    pid = running_pid(layout)
    state = read_state(layout.state)
    if pid is None or state is None:
        return ()
    parts: Any = state["parts"]
    rows = [PartStatus("supervisor", "ready", pid, 0, None, resident_bytes(pid))]
    for name, part in parts.items():
        rows.append(
            PartStatus(
                name,
                part["state"],
                part["pid"],
                part["restarts"],
                part["ready_after_s"],
                resident_bytes(part["pid"]) if part["pid"] else None,
                part.get("last_end", ""),
            )
        )
    return tuple(rows)
