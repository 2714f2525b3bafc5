"""Container statuses: state, last state, started and ready.

Pure. The engine's records take precedence; where they are gone, the reported status is kept, so
that restart counts never decrease and no exited container is lost. Source: kubelet
`convertToAPIContainerStatuses`, core/v1 ContainerStatus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from moorage.api.clock import format_time
from moorage.api.containers import VolumeMount
from moorage.api.pods import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    ContainerUser,
    LinuxContainerUser,
    VolumeMountStatus,
)
from moorage.node.pod_facts.containers import Kind, should_restart
from moorage.node.pod_facts.labels import AnyContainer
from moorage.node.pod_facts.resources import current_resources
from moorage.node.runtime.views import ContainerView, State
from moorage.node.status.inputs import StatusInputs
from moorage.runtimeclass.overhead import is_sidecar

CREATING = "ContainerCreating"
INITIALIZING = "PodInitializing"
STATUS_UNKNOWN = "ContainerStatusUnknown"

_MESSAGES_LIMIT_BYTES = 12 * 1024
_LOST_CODE = 137
_LOST_ON_DELETE = (
    "The container could not be located when the pod was deleted.  The container used to be Running"
)
_LOST_ON_END = "The container could not be located when the pod was terminated"
_INIT_ASSUMED = (
    "Unable to get init container status from container runtime and pod has been initialized, "
    "treat it as exited normally"
)

LOST = ContainerState(
    terminated=ContainerStateTerminated(
        exit_code=_LOST_CODE, reason=STATUS_UNKNOWN, message=_LOST_ON_END
    )
)


def container_statuses(inputs: StatusInputs, kind: Kind) -> tuple[ContainerStatus, ...]:
    """Return the statuses of one kind of containers: init in order, the others by name."""
    spec, before = inputs.pod.spec, inputs.before
    containers: Iterable[AnyContainer]
    match kind:
        case Kind.INIT:
            containers, earlier = spec.init_containers, before.init_container_statuses
        case Kind.MAIN:
            containers, earlier = spec.containers, before.container_statuses
        case Kind.EPHEMERAL:
            containers, earlier = spec.ephemeral_containers, before.ephemeral_container_statuses
    by_name = {status.name: status for status in earlier}
    statuses = [_status(inputs, kind, container, by_name) for container in containers]
    if kind is not Kind.INIT:
        statuses.sort(key=lambda status: status.name)
    return tuple(statuses)


def _status(
    inputs: StatusInputs,
    kind: Kind,
    container: AnyContainer,
    earlier: Mapping[str, ContainerStatus],
) -> ContainerStatus:
    old = earlier.get(container.name)
    history = inputs.view.history(container.name)
    if history:
        status = _from_engine(inputs, container, history, old)
    else:
        status = _from_memory(inputs, container, old)
    status = _with_waiting_reason(inputs, kind, container, history, status)
    if kind is Kind.EPHEMERAL:
        return status
    return _with_probe_results(inputs, kind, container, status, old)


def _from_engine(
    inputs: StatusInputs,
    container: AnyContainer,
    history: tuple[ContainerView, ...],
    old: ContainerStatus | None,
) -> ContainerStatus:
    newest = history[0]
    container_id = f"{inputs.engine}://{newest.id}"
    if len(history) > 1:
        last = _with_message(_state(inputs, history[1]), old)
    elif old is None:
        last = ContainerState()
    elif old.container_id != container_id and old.state.terminated is not None:
        last = old.state
    else:
        last = old.last_state
    given = inputs.given.get(container.name) if newest.state is State.RUNNING else None
    count = newest.restart_count if old is None else max(newest.restart_count, old.restart_count)
    return ContainerStatus(
        name=container.name,
        image=newest.image,
        image_id=newest.image_ref,
        container_id=container_id,
        restart_count=count,
        state=_with_message(_state(inputs, newest, old), old),
        last_state=last,
        volume_mounts=_mounts(inputs, container),
        resources=current_resources(container, given),
        allocated_resources=container.resources.requests,
        user=_user(newest),
        stop_signal=newest.stop_signal or None,
    )


def _from_memory(
    inputs: StatusInputs, container: AnyContainer, old: ContainerStatus | None
) -> ContainerStatus:
    """Return the status of a container that the engine lacks: not yet created, or removed."""
    if old is not None and old.state.terminated is not None:
        return old
    status = ContainerStatus(
        name=container.name,
        image=container.image,
        state=_not_started(inputs),
        volume_mounts=_mounts(inputs, container),
    )
    if old is None:
        return status
    status = msgspec.structs.replace(
        status, restart_count=old.restart_count, last_state=old.last_state
    )
    if old.state.running is None or old.last_state.terminated is not None:
        return status
    lost = ContainerStateTerminated(
        exit_code=_LOST_CODE, reason=STATUS_UNKNOWN, message=_LOST_ON_DELETE
    )
    return msgspec.structs.replace(
        status,
        last_state=ContainerState(terminated=lost),
        restart_count=old.restart_count + (0 if inputs.is_deleted else 1),
    )


def _with_waiting_reason(
    inputs: StatusInputs,
    kind: Kind,
    container: AnyContainer,
    history: tuple[ContainerView, ...],
    status: ContainerStatus,
) -> ContainerStatus:
    """Set the waiting reason of a container that cannot start, where the cause is known."""
    newest = history[0] if history else None
    if kind is Kind.INIT:
        if newest is not None and newest.state is State.EXITED and newest.exit_code == 0:
            return status
        if newest is None and status.state.waiting and _is_init_behind(inputs, container):
            return msgspec.structs.replace(status, state=_ASSUMED_DONE)
    if not _runs_again(inputs, container, newest):
        return status
    waiting = inputs.waiting.get(container.name)
    if waiting is None:
        return _with_obstacle(inputs, status) if newest is None else status
    last = status.state if status.state.terminated is not None else status.last_state
    state = ContainerState(
        waiting=ContainerStateWaiting(reason=waiting.reason, message=waiting.message)
    )
    return msgspec.structs.replace(status, state=state, last_state=last)


_ASSUMED_DONE = ContainerState(
    terminated=ContainerStateTerminated(exit_code=0, reason="Completed", message=_INIT_ASSUMED)
)


def _with_obstacle(inputs: StatusInputs, status: ContainerStatus) -> ContainerStatus:
    """Set the message to the obstacle; the waiting reason is unchanged."""
    if inputs.obstacle is None or status.state.waiting is None:
        return status
    waiting = msgspec.structs.replace(status.state.waiting, message=inputs.obstacle.message)
    return msgspec.structs.replace(status, state=ContainerState(waiting=waiting))


def _is_init_behind(inputs: StatusInputs, container: AnyContainer) -> bool:
    """Return whether a main container was created, so this init container must have completed."""
    if container.restart_policy == "Always":
        return False
    names = {container.name for container in inputs.pod.spec.containers}
    return any(
        container.name in names and container.state is not State.UNKNOWN
        for container in inputs.view.containers
    )


def _runs_again(
    inputs: StatusInputs, container: AnyContainer, newest: ContainerView | None
) -> bool:
    if inputs.is_deleted:
        return False
    if newest is None or newest.state in (State.UNKNOWN, State.CREATED):
        return True
    if newest.state is State.RUNNING:
        return False
    return should_restart(container, inputs.pod.spec, newest.exit_code)


def _with_probe_results(
    inputs: StatusInputs,
    kind: Kind,
    container: AnyContainer,
    status: ContainerStatus,
    old: ContainerStatus | None,
) -> ContainerStatus:
    """Set `started` and `ready`."""
    same = old if old is not None and old.container_id == status.container_id else None
    engine_id = status.container_id.rpartition("//")[2]
    is_running = status.state.running is not None
    is_started = is_running and _is_started(inputs, container, engine_id, same)
    if kind is Kind.INIT and not is_sidecar(container):  # type: ignore[arg-type]
        ended = status.state.terminated
        is_ready = ended is not None and ended.exit_code == 0
    else:
        is_ready = is_started and _is_ready(inputs, container, engine_id, same)
    return msgspec.structs.replace(status, started=is_started, ready=is_ready)


def _is_started(
    inputs: StatusInputs, container: AnyContainer, engine_id: str, same: ContainerStatus | None
) -> bool:
    verdict = inputs.verdicts.startup.get(engine_id)
    if verdict is not None:
        return verdict
    # A container that was reported as started stays started when the agent restarts.
    return container.startup_probe is None or bool(same is not None and same.started)


def _is_ready(
    inputs: StatusInputs, container: AnyContainer, engine_id: str, same: ContainerStatus | None
) -> bool:
    verdict = inputs.verdicts.readiness.get(engine_id)
    if verdict is not None:
        return verdict
    return container.readiness_probe is None or bool(same is not None and same.ready)


def _state(
    inputs: StatusInputs, view: ContainerView, old: ContainerStatus | None = None
) -> ContainerState:
    match view.state:
        case State.RUNNING:
            return ContainerState(running=ContainerStateRunning(started_at=_time(view.started_ns)))
        case State.EXITED:
            return ContainerState(terminated=_terminated(inputs, view))
    if view.state is State.UNKNOWN and old is not None and old.state.running is not None:
        return LOST
    # One that is created and not started yet waits as before: upstream gives no reason here, and
    # few ever see it, as nothing announces the creation there.
    return _not_started(inputs)


def _with_message(state: ContainerState, old: ContainerStatus | None) -> ContainerState:
    """Return a state with the message that was reported, if there is none now.

    An agent that starts after a pod has ended does not find its files.
    """
    ended = state.terminated
    if ended is None or ended.message or old is None:
        return state
    for before in (old.state.terminated, old.last_state.terminated):
        if before is not None and before.container_id == ended.container_id:
            return ContainerState(terminated=msgspec.structs.replace(ended, message=before.message))
    return state


def _not_started(inputs: StatusInputs) -> ContainerState:
    reason = INITIALIZING if inputs.pod.spec.init_containers else CREATING
    return ContainerState(waiting=ContainerStateWaiting(reason=reason))


def _terminated(inputs: StatusInputs, view: ContainerView) -> ContainerStateTerminated:
    spec = inputs.pod.spec
    count = len(spec.containers) + len(spec.init_containers) + len(spec.ephemeral_containers)
    limit = _MESSAGES_LIMIT_BYTES // max(count, 1)
    return ContainerStateTerminated(
        exit_code=view.exit_code,
        reason=view.reason,
        message=view.message.encode()[:limit].decode(errors="ignore"),
        started_at=_time(view.started_ns),
        finished_at=_time(view.finished_ns),
        container_id=f"{inputs.engine}://{view.id}",
    )


def _time(nanoseconds: int) -> str:
    return format_time(datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC))


def _user(view: ContainerView) -> ContainerUser | None:
    if view.user is None:
        return None
    linux = LinuxContainerUser(
        uid=view.user.uid, gid=view.user.gid, supplemental_groups=view.user.groups
    )
    return ContainerUser(linux=linux)


def _mounts(inputs: StatusInputs, container: AnyContainer) -> tuple[VolumeMountStatus, ...]:
    return tuple(_mount(mount, inputs.has_recursive_read_only) for mount in container.volume_mounts)


def _mount(mount: VolumeMount, has_recursive: bool) -> VolumeMountStatus:
    mode = None
    if mount.read_only:
        wants = mount.recursive_read_only
        is_recursive = has_recursive and wants in ("Enabled", "IfPossible")
        mode = "Enabled" if is_recursive else "Disabled"
    return VolumeMountStatus(
        name=mount.name,
        mount_path=mount.mount_path,
        read_only=mount.read_only,
        recursive_read_only=mode,
    )
