"""Pod columns: how many containers are ready, and the pod's status in one word.

The status is the phase unless a more specific reason is known: a scheduling gate, the init
container that holds the pod up, the reason of the first container that waits or has ended, and at
last its deletion.
Source: the wire of kube-apiserver 1.36 and its printers' rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from moorage.apiserver.registry.columns.cells import AGE, CORE, NAME, NONE, age, age_of, name_of
from moorage.apiserver.registry.kind import Column, Obj, Printer

_COMPLETED = "Completed"
_INIT = "Init:"
_NODE_UNREACHABLE = "NodeLost"
_STARTING = "PodInitializing"
_GATED = "SchedulingGated"
_TERMINAL_MESSAGES = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


class _Restarts(msgspec.Struct):
    """Restarts of containers, and when the last one that ended before its restart had ended."""

    count: int = 0
    last: str = ""

    def add(self, status: Obj) -> None:
        self.count += status.get("restartCount", 0)
        ended = status.get("lastState", {}).get("terminated", {}).get("finishedAt") or ""
        # Canonical timestamps are UTC with whole seconds: their text sorts as time does.
        self.last = max(self.last, ended)

    def text(self, now: float) -> str:
        if self.count and self.last:
            return f"{self.count} ({age(self.last, now)} ago)"
        return str(self.count)


class _Progress(msgspec.Struct):
    """What a pod's containers say. `reason` is empty when they add nothing to the phase."""

    reason: str = ""
    ready: int = 0
    restarts: _Restarts = msgspec.field(default_factory=_Restarts)


def _pod_cells(pod: Obj, now: float) -> list[Any]:
    spec, status = pod.get("spec", {}), pod.get("status", {})
    conditions = {
        condition.get("type"): condition for condition in reversed(status.get("conditions") or ())
    }
    sidecars = {
        container.get("name")
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    progress = _progress(spec, status, conditions, sidecars)
    total = len(spec.get("containers") or ()) + len(sidecars)
    reason = _ending_reason(pod) or progress.reason or _phase_reason(status)
    ips = status.get("podIPs") or [{}]
    return [
        name_of(pod),
        f"{progress.ready}/{total}",
        reason,
        progress.restarts.text(now),
        age_of(pod, now),
        ips[0].get("ip") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(spec, conditions),
    ]


def _phase_reason(status: Obj) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == _GATED:
            return _GATED
    return str(status.get("reason") or status.get("phase", ""))


def _ending_reason(pod: Obj) -> str:
    if not pod["metadata"].get("deletionTimestamp"):
        return ""
    status = pod.get("status", {})
    if status.get("reason") == _NODE_UNREACHABLE:
        return "Unknown"
    return "" if status.get("phase") in _TERMINAL_MESSAGES else "Terminating"


def _progress(
    spec: Obj, status: Obj, conditions: Mapping[str | None, Obj], sidecars: set[str | None]
) -> _Progress:
    progress, sidecar_restarts = _init_progress(spec, status, sidecars)
    if progress.reason and not _is_true(conditions, "Initialized"):
        return progress
    progress.restarts = sidecar_restarts
    _add_main_progress(progress, status, conditions)
    return progress


def _init_progress(
    spec: Obj, status: Obj, sidecars: set[str | None]
) -> tuple[_Progress, _Restarts]:
    """How far initialisation is: `reason` is of the first init container that is not through."""
    progress, sidecar_restarts = _Progress(), _Restarts()
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        progress.restarts.add(container)
        is_sidecar = container.get("name") in sidecars
        if is_sidecar:
            sidecar_restarts.add(container)
        state = container.get("state", {})
        ended, waiting = state.get("terminated"), state.get("waiting", {}).get("reason")
        if ended is not None and not ended.get("exitCode", 0):
            continue
        if is_sidecar and container.get("started"):
            progress.ready += bool(container.get("ready"))
            continue
        if ended is not None:
            progress.reason = _INIT + _ended_reason(ended)
        elif waiting and waiting != _STARTING:
            progress.reason = _INIT + waiting
        else:
            progress.reason = f"{_INIT}{index}/{len(spec.get('initContainers') or ())}"
        break
    return progress, sidecar_restarts


def _add_main_progress(
    progress: _Progress, status: Obj, conditions: Mapping[str | None, Obj]
) -> None:
    """Add what the main containers say; of several the first one's word counts."""
    has_running, failure, reason = False, "", progress.reason
    for container in reversed(status.get("containerStatuses") or ()):
        progress.restarts.add(container)
        state = container.get("state", {})
        ended, waiting = state.get("terminated"), state.get("waiting", {}).get("reason")
        if waiting:
            reason = waiting
        elif ended is not None:
            reason = _ended_reason(ended)
            failure = reason if ended.get("exitCode", 0) else failure
        elif container.get("ready") and state.get("running") is not None:
            has_running = True
            progress.ready += 1
    # A pod of which something still runs, or something failed, is not completed.
    if reason == _COMPLETED:
        if has_running and _is_true(conditions, "Ready"):
            reason = "Running"
        elif failure:
            reason = failure
        elif has_running:
            reason = "NotReady"
    progress.reason = reason


def _ended_reason(ended: Obj) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _is_true(conditions: Mapping[str | None, Obj], type_: str | None) -> bool:
    return conditions.get(type_, {}).get("status") == "True"


def _gates(spec: Obj, conditions: Mapping[str | None, Obj]) -> str:
    gates = spec.get("readinessGates") or ()
    if not gates:
        return NONE
    return f"{sum(_is_true(conditions, gate.get('conditionType')) for gate in gates)}/{len(gates)}"


def _row_conditions(pod: Obj) -> list[Obj]:
    phase = pod.get("status", {}).get("phase", "")
    message = _TERMINAL_MESSAGES.get(phase)
    if message is None:
        return []
    return [{"type": _COMPLETED, "status": "True", "reason": phase, "message": message}]


PRINTER = Printer(
    columns=(
        NAME,
        Column(
            "Ready",
            description="The aggregate readiness state of this pod for accepting traffic.",
        ),
        Column("Status", description="The aggregate status of the containers in this pod."),
        Column(
            "Restarts",
            description=(
                "The number of times the containers in this pod have been restarted and when the "
                "last container in this pod has restarted."
            ),
        ),
        AGE,
        Column("IP", documented_by=f"{CORE}.PodStatus.podIP", priority=1),
        Column("Node", documented_by=f"{CORE}.PodSpec.nodeName", priority=1),
        Column("Nominated Node", documented_by=f"{CORE}.PodStatus.nominatedNodeName", priority=1),
        Column("Readiness Gates", documented_by=f"{CORE}.PodSpec.readinessGates", priority=1),
    ),
    cells=_pod_cells,
    conditions=_row_conditions,
)
