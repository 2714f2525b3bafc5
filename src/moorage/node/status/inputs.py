"""Everything a pod's status is worked out from, as one value.

The worker of a pod gathers it, the pure functions of this package read it. Source: the inputs of
kubelet `generateAPIPodStatus`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from moorage.api.clock import format_time
from moorage.api.pods import Pod, PodStatus
from moorage.node.runtime.views import PodView


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container does not run: a reason in one word and a sentence."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class TerminationReason:
    """Why the whole pod has failed: refused, evicted or out of time."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """What probes decided, by container id; absent means no verdict yet."""

    readiness: Mapping[str, bool] = field(default_factory=dict)
    startup: Mapping[str, bool] = field(default_factory=dict)
    liveness: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusInputs:
    """One pod as everyone sees it, at one moment.

    `before` is the status last worked out, or the API's when there is none. `waiting` says by
    container why it does not run. `is_ready_to_start` means sandbox, network and volumes are
    there; `obstacle` says what stands in the way otherwise. `is_final` means that nothing of the
    pod will run again.
    """

    pod: Pod
    before: PodStatus
    view: PodView
    engine: str
    now: datetime
    host_ips: tuple[str, ...]
    quality: str
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    verdicts: Verdicts = Verdicts()
    is_ready_to_start: bool = False
    obstacle: Waiting | None = None
    is_final: bool = False
    termination: TerminationReason | None = None
    has_recursive_read_only: bool = False

    @property
    def stamp(self) -> str:
        return format_time(self.now)

    @property
    def is_deleted(self) -> bool:
        return self.pod.metadata.deletion_timestamp is not None
