"""RuntimeRollouts: the move of workloads from one RuntimeClass to another, by waves.

Cluster-scoped. Which workloads were moved is in the status, by uid, since who owns a workload can
write its annotations; those say it to people.
"""

from __future__ import annotations

from msgspec import field

from moorage.api.meta import Condition, Object, ObjectMeta, Raw
from moorage.api.runtime_group import GROUP

ROLLOUT_ANNOTATION = f"{GROUP}/rollout"
"""Annotation of a workload: name of the rollout that moved it last."""

ROLLOUT_UID_ANNOTATION = f"{GROUP}/rollout-uid"
"""Annotation of a workload: uid of the rollout that moved it last."""

MOVED_FROM_ANNOTATION = f"{GROUP}/moved-from"
"""Annotation of a workload: the class that its template had before."""

MOVED_AT_ANNOTATION = f"{GROUP}/moved-at"
"""Annotation of a workload: when it was moved, as RFC 3339."""

WAVE_ANNOTATION = f"{GROUP}/wave"
"""Annotation of a workload: number of the wave that it was moved in, from 1."""

ACCEPTED = "Accepted"
"""Condition: whether workloads may be moved now; if not, its message names the obstacle."""
HEALTHY = "Healthy"
"""Condition: whether all gates hold; False until a person resumes the rollout."""
COMPLETED = "Completed"
"""Condition: whether there is nothing left to do."""

PENDING = "Pending"
BLOCKED = "Blocked"
PROGRESSING = "Progressing"
PAUSED = "Paused"
STOPPED = "Stopped"
ROLLING_BACK = "RollingBack"
ROLLED_BACK = "RolledBack"
DONE = "Completed"

PAUSE = "Pause"
ROLLBACK = "Rollback"

MOST_LISTED = 256
"""Workloads that a status lists at most."""

MOST_MOVED = 8000
"""Workloads that a rollout moves at most. Each takes up to 120 bytes of the status."""


class RolloutGates(Object, frozen=True):
    """Bounds, checked before each further move; None does not check.

    max_restarts: restarts and failures of one pod.
    ready_within_seconds: for the next pod of a workload to become ready.
    max_start_latency_seconds: of one pod, from scheduled to ready.
    max_failure_percent: share of the moved workloads that may violate another bound.
    """

    max_restarts: int | None = 3
    ready_within_seconds: int | None = 600
    max_start_latency_seconds: int | None = None
    max_failure_percent: int = 0


class RuntimeRolloutSpec(Object, frozen=True):
    """`canary` and `wave_size` count workloads, or are a percentage of them.

    resumed_at: gates that failed at this time or before no longer stop the rollout.
    """

    from_: str = field(default="", name="from")
    to: str = ""
    namespace_selector: Raw | None = None
    workload_selector: Raw | None = None
    canary: int | str = 1
    wave_size: int | str = "25%"
    paused: bool = False
    rollback: bool = False
    gates: RolloutGates = RolloutGates()
    on_failure: str = PAUSE
    resumed_at: str | None = None


class RolloutCounts(Object, frozen=True):
    """Workloads by state. `total` counts all that can be moved; `unmovable` is not part of it."""

    total: int = 0
    pending: int = 0
    moving: int = 0
    moved: int = 0
    held: int = 0
    failed: int = 0
    reverted: int = 0
    unmovable: int = 0


class RolloutWorkload(Object, frozen=True):
    """A workload that was moved or needs attention, and why; `since` is when its state began."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    state: str = ""
    message: str = ""
    wave: int = 0
    since: str | None = None


class RolloutMoves(Object, frozen=True):
    """Uids of workloads that were moved at one time, or were about to be, in one wave."""

    wave: int = 0
    time: str = ""
    uids: tuple[str, ...] = ()


class RolloutStop(Object, frozen=True):
    """Why gates stopped the rollout, when, and whether it is rolled back because of that."""

    reason: str = ""
    message: str = ""
    time: str = ""
    rolls_back: bool = False


class RuntimeRolloutStatus(Object, frozen=True):
    """Status of a rollout.

    workloads: those that need attention first, then the latest; bounded by MOST_LISTED.
    moves: written before the workloads are; bounded by MOST_MOVED uids.
    """

    observed_generation: int = 0
    phase: str = ""
    wave: int = 0
    wave_size: int = 0
    counts: RolloutCounts = RolloutCounts()
    workloads: tuple[RolloutWorkload, ...] = ()
    moves: tuple[RolloutMoves, ...] = ()
    stop: RolloutStop | None = None
    started_at: str | None = None
    completed_at: str | None = None
    conditions: tuple[Condition, ...] = ()


class RuntimeRollout(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: RuntimeRolloutSpec = RuntimeRolloutSpec()
    status: RuntimeRolloutStatus = RuntimeRolloutStatus()
