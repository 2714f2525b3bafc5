"""Status inputs: everything a pod's status is computed from, as one value.

The pod's worker collects it, the pure functions of this package read it. Source: the inputs of
kubelet `generateAPIPodStatus`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from moorage.api.clock import format_time
from moorage.api.pods import Pod, PodStatus
from moorage.node.pod_facts.labels import Given
from moorage.node.runtime.views import PodView
from moorage.node.status.resizing import ResizeConditions


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container does not run: a one-word reason and a message."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class TerminationReason:
    """Why the whole pod has failed: refused, evicted or past its deadline.

    `is_disruption` adds the condition DisruptionTarget: the cause is the node's, not the pod's.
    """

    reason: str
    message: str
    is_disruption: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Probe verdicts by container ID; an absent ID has no verdict yet."""

    readiness: Mapping[str, bool] = field(default_factory=dict)
    startup: Mapping[str, bool] = field(default_factory=dict)
    liveness: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusInputs:
    """Observed state of one pod at one moment.

    `before` is the last computed status, or the API's when there is none. `waiting` gives the
    reason that a container does not run, by name. `is_ready_to_start` means that sandbox, network
    and volumes are ready; `obstacle` is what blocks them otherwise. `is_final` means that no
    container of the pod will run again. `given` is what running containers have, by name;
    `is_restarting` means that a container is being restarted for a resize.
    """

    pod: Pod
    before: PodStatus
    view: PodView
    engine: str
    now: datetime
    host_ips: tuple[str, ...]
    qos_class: str
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    verdicts: Verdicts = Verdicts()
    is_ready_to_start: bool = False
    obstacle: Waiting | None = None
    is_final: bool = False
    termination: TerminationReason | None = None
    has_recursive_read_only: bool = False
    given: Mapping[str, Given] = field(default_factory=dict)
    resize: ResizeConditions = field(default_factory=ResizeConditions)
    is_restarting: bool = False

    @property
    def stamp(self) -> str:
        return format_time(self.now)

    @property
    def is_deleted(self) -> bool:
        return self.pod.metadata.deletion_timestamp is not None
