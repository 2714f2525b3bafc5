"""Workloads as a rollout sees them: class, marks of a move, progress and pods.

Values that an observer fills from the API's objects, whichever their kind.
"""

from __future__ import annotations

from datetime import datetime

import msgspec


class Mark(msgspec.Struct, frozen=True):
    """What a rollout's annotations on a workload say of its last move.

    Anyone who may write the workload may have written them.
    """

    rollout: str
    rollout_uid: str
    moved_from: str
    moved_at: datetime
    wave: int


class PodFacts(msgspec.Struct, frozen=True):
    """A pod of the target class; `ready_since` is None while it is not ready.

    `restarts` counts those of its containers, and one more for a pod that failed.
    """

    name: str
    created: datetime
    scheduled: datetime | None = None
    ready_since: datetime | None = None
    restarts: int = 0


class Workload(msgspec.Struct, frozen=True):
    """One workload; `size` is how many pods it wants.

    is_settled: its controller has seen the template, and all pods that it will replace are new
    and available.
    hold: why pods of the old template remain until someone acts, empty if none do.
    fault: what its controller reports as failed, empty if nothing.
    note: what its controller reports that may be why it does not settle.
    refusal: why the API server refused the move, empty if it did not.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    class_name: str
    mark: Mark | None = None
    size: int = 1
    is_settled: bool = False
    is_on_schedule: bool = False
    hold: str = ""
    fault: str = ""
    note: str = ""
    refusal: str = ""
    pods: tuple[PodFacts, ...] = ()

    @property
    def title(self) -> str:
        """Return `Kind namespace/name`."""
        return f"{self.kind} {self.namespace}/{self.name}"


class Unmovable(msgspec.Struct, frozen=True):
    """An object with pods of the class that no patch can move, and why."""

    kind: str
    namespace: str
    name: str
    why: str
