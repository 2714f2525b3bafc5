"""Pod conditions owned by the node agent, with reasons and messages.

Pure. Other controllers' conditions are kept unchanged; a condition's transition time changes only
with its status. Source: kubelet `status/generate.go`, core/v1 PodCondition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from moorage.api.pods import ContainerStatus, PodCondition, PodSpec
from moorage.node.pod_facts.containers import FAILED, SUCCEEDED, TERMINAL, sidecars
from moorage.node.status.inputs import StatusInputs
from moorage.runtimeclass.overhead import is_sidecar
from moorage.runtimeclass.resizing import IN_PROGRESS, PENDING
from moorage.runtimeclass.start_phases import CONDITION as START_PHASES

READY = "Ready"
CONTAINERS_READY = "ContainersReady"
INITIALIZED = "Initialized"
SCHEDULED = "PodScheduled"
READY_TO_START = "PodReadyToStartContainers"
DISRUPTION_TARGET = "DisruptionTarget"

OWNED = frozenset({
    READY, CONTAINERS_READY, INITIALIZED, SCHEDULED, READY_TO_START, PENDING, IN_PROGRESS,
    START_PHASES,
})  # fmt: skip

_BY_NODE = "TerminationByKubelet"
_COMPLETED = "PodCompleted"
_FAILED = "PodFailed"


def conditions_of(
    inputs: StatusInputs, statuses: Sequence[ContainerStatus], phase: str
) -> tuple[PodCondition, ...]:
    """Return all conditions of the pod. `statuses` are those of init and main containers."""
    owned = OWNED | {condition.type for condition in _disruption(inputs)}
    kept = [condition for condition in inputs.pod.status.conditions if condition.type not in owned]
    containers_ready = _containers_ready(inputs.pod.spec, statuses, phase)
    conditions = (
        _ready_to_start(inputs),
        _initialized(inputs.pod.spec, statuses, phase),
        _ready(inputs, kept, containers_ready),
        containers_ready,
        PodCondition(type=SCHEDULED, status="True"),
        *_disruption(inputs),
    )
    resize = () if phase in TERMINAL else inputs.resize.present
    return (*kept, *(_dated(condition, inputs) for condition in conditions), *resize)


def is_own(condition: PodCondition) -> bool:
    """Return whether this agent writes the condition.

    DisruptionTarget is shared with controllers: only one with the agent's reason is its own.
    Source: kubelet `PodConditionSharedByKubelet`.
    """
    is_shared = condition.type == DISRUPTION_TARGET and condition.reason == _BY_NODE
    return is_shared or condition.type in OWNED


def _disruption(inputs: StatusInputs) -> tuple[PodCondition, ...]:
    """Return the condition of a pod that ends for the node's sake. Source: KEP-3329."""
    termination = inputs.termination
    if termination is None or not termination.is_disruption:
        return ()
    return (
        PodCondition(
            type=DISRUPTION_TARGET,
            status="True",
            reason=_BY_NODE,
            message=termination.message,
        ),
    )


def _dated(condition: PodCondition, inputs: StatusInputs) -> PodCondition:
    """Set the condition's observed generation and its transition time."""
    earlier = [*inputs.before.conditions, *inputs.pod.status.conditions]
    since = inputs.stamp
    for old in earlier:
        if old.type == condition.type:
            if old.status == condition.status and old.last_transition_time is not None:
                since = old.last_transition_time
            break
    return msgspec.structs.replace(
        condition,
        observed_generation=inputs.pod.metadata.generation,
        last_transition_time=since,
    )


def _ready_to_start(inputs: StatusInputs) -> PodCondition:
    if inputs.is_ready_to_start:
        return PodCondition(type=READY_TO_START, status="True")
    obstacle = inputs.obstacle
    if obstacle is None:
        return PodCondition(type=READY_TO_START, status="False")
    return PodCondition(
        type=READY_TO_START, status="False", reason=obstacle.reason, message=obstacle.message
    )


def _initialized(spec: PodSpec, statuses: Sequence[ContainerStatus], phase: str) -> PodCondition:
    by_name = {status.name: status for status in statuses}
    unknown = [
        container.name for container in spec.init_containers if container.name not in by_name
    ]
    incomplete = [
        container.name
        for container in spec.init_containers
        if container.name in by_name
        and not (
            by_name[container.name].started
            if is_sidecar(container)
            else by_name[container.name].ready
        )
    ]
    if phase == SUCCEEDED and not unknown:
        return PodCondition(type=INITIALIZED, status="True", reason=_COMPLETED)
    has_begun = any(
        container.name in by_name
        and (by_name[container.name].state.running or by_name[container.name].state.terminated)
        for container in spec.containers
    )
    complaints = _complaints(("unknown", unknown), ("incomplete", incomplete))
    if has_begun or not complaints:
        return PodCondition(type=INITIALIZED, status="True")
    return PodCondition(
        type=INITIALIZED, status="False", reason="ContainersNotInitialized", message=complaints
    )


def _containers_ready(
    spec: PodSpec, statuses: Sequence[ContainerStatus], phase: str
) -> PodCondition:
    by_name = {status.name: status for status in statuses}
    names = [container.name for container in (*sidecars(spec), *spec.containers)]
    unknown = [name for name in names if name not in by_name]
    unready = [name for name in names if name in by_name and not by_name[name].ready]
    if phase == FAILED or (phase == SUCCEEDED and not unknown):
        reason = _FAILED if phase == FAILED else _COMPLETED
        return PodCondition(type=CONTAINERS_READY, status="False", reason=reason)
    complaints = _complaints(("unknown", unknown), ("unready", unready))
    if complaints:
        return PodCondition(
            type=CONTAINERS_READY,
            status="False",
            reason="ContainersNotReady",
            message=complaints,
        )
    return PodCondition(type=CONTAINERS_READY, status="True")


def _ready(
    inputs: StatusInputs, others: Iterable[PodCondition], containers_ready: PodCondition
) -> PodCondition:
    """Return Ready: true when the containers are ready and every readiness gate is true."""
    if containers_ready.status != "True":
        return msgspec.structs.replace(containers_ready, type=READY)
    by_type = {other.type: other for other in others}
    complaints = []
    for gate in inputs.pod.spec.readiness_gates:
        condition = by_type.get(gate.condition_type)
        if condition is None:
            complaints.append(
                f"corresponding condition of pod readiness gate "
                f'"{gate.condition_type}" does not exist.'
            )
        elif condition.status != "True":
            complaints.append(
                f'the status of pod readiness gate "{gate.condition_type}" is not "True", '
                f"but {condition.status}"
            )
    if complaints:
        return PodCondition(
            type=READY,
            status="False",
            reason="ReadinessGatesNotReady",
            message=", ".join(complaints),
        )
    return PodCondition(type=READY, status="True")


def _complaints(*complaints: tuple[str, Sequence[str]]) -> str:
    return ", ".join(
        f"containers with {what} status: [{' '.join(names)}]" for what, names in complaints if names
    )
