"""Engine views of a pod: its sandboxes and containers, newest first, as plain values.

Inputs of the decisions and the status, converted once from CRI messages; equal values mean that
nothing changed. Times are nanoseconds since the epoch, 0 for "not yet", as in the CRI.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address

from moorage.node.pod_facts.labels import (
    CONTAINER_NAME,
    OWNER,
    POD_UID,
    ContainerRecord,
    parse_container_record,
    sandbox_handler,
)
from moorage.wire.cri import pb


class State(Enum):
    """State of a container, in the kubelet's spelling."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


_STATES = {
    pb.CONTAINER_CREATED: State.CREATED,
    pb.CONTAINER_RUNNING: State.RUNNING,
    pb.CONTAINER_EXITED: State.EXITED,
}

_ORDER = {State.CREATED: 0, State.RUNNING: 1, State.EXITED: 2, State.UNKNOWN: 3}


def state_of(value: pb.ContainerState.ValueType) -> State:
    """Return the state for a CRI value; UNKNOWN for any other value."""
    return _STATES.get(value, State.UNKNOWN)


def is_step_back(before: State, after: State) -> bool:
    """Return whether a state is older than the known one: containers only advance."""
    return _ORDER[after] < _ORDER[before]


@dataclass(frozen=True, slots=True)
class SandboxView:
    """A pod sandbox. `ips` is empty until the network is set up, and on the host network.

    `handler` is None when neither the engine nor the sandbox's annotations report it. `owner` is
    the agent that created it (labels.owner_of), its bare node name if that was an earlier version;
    empty for a kubelet's sandbox.
    """

    id: str
    uid: str
    name: str
    namespace: str
    attempt: int
    is_ready: bool
    created_ns: int
    handler: str | None
    is_host_network: bool
    ips: tuple[str, ...]
    owner: str = ""


@dataclass(frozen=True, slots=True)
class MountView:
    """A mount of a container."""

    host_path: str
    container_path: str


@dataclass(frozen=True, slots=True)
class UserView:
    """The user that a container runs as."""

    uid: int
    gid: int
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ContainerView:
    """A container. `message` includes the termination message."""

    id: str
    uid: str
    sandbox_id: str
    name: str
    state: State
    created_ns: int
    started_ns: int
    finished_ns: int
    exit_code: int
    reason: str
    message: str
    image: str
    image_ref: str
    image_id: str
    log_path: str
    memory: ContainerRecord
    mounts: tuple[MountView, ...] = ()
    user: UserView | None = None
    stop_signal: str = ""

    @property
    def restart_count(self) -> int:
        return self.memory.restart_count


@dataclass(frozen=True, slots=True)
class PodView:
    """Everything the engine has of one pod; both tuples are ordered newest first."""

    uid: str
    name: str = ""
    namespace: str = ""
    sandboxes: tuple[SandboxView, ...] = ()
    containers: tuple[ContainerView, ...] = ()

    @property
    def sandbox(self) -> SandboxView | None:
        """Return the newest sandbox."""
        return self.sandboxes[0] if self.sandboxes else None

    @property
    def is_empty(self) -> bool:
        return not self.sandboxes and not self.containers

    @property
    def ips(self) -> tuple[str, ...]:
        """Return the IP addresses of the newest sandbox, while it is ready."""
        sandbox = self.sandbox
        return sandbox.ips if sandbox is not None and sandbox.is_ready else ()

    def latest(self, name: str) -> ContainerView | None:
        """Return the newest container of that name, in whichever sandbox."""
        return next((container for container in self.containers if container.name == name), None)

    def history(self, name: str) -> tuple[ContainerView, ...]:
        """Return all containers of that name, newest first."""
        return tuple(container for container in self.containers if container.name == name)

    @property
    def alive(self) -> tuple[ContainerView, ...]:
        """Return containers that run or may run: an unknown state counts until it is stopped."""
        return tuple(
            container
            for container in self.containers
            if container.state in (State.RUNNING, State.UNKNOWN)
        )

    @property
    def is_stopped(self) -> bool:
        """Return whether no container or sandbox of the pod is running."""
        return not self.alive and not any(sandbox.is_ready for sandbox in self.sandboxes)


def pod_view(
    uid: str, sandboxes: Iterable[SandboxView], containers: Iterable[ContainerView]
) -> PodView:
    """Combine sandboxes and containers into a pod's view, newest first."""
    ordered = tuple(sorted(sandboxes, key=lambda sandbox: (-sandbox.created_ns, sandbox.id)))
    name, namespace = (ordered[0].name, ordered[0].namespace) if ordered else ("", "")
    newest_first = sorted(containers, key=lambda container: (-container.created_ns, container.id))
    return PodView(uid, name, namespace, ordered, tuple(newest_first))


def sandbox_view(status: pb.PodSandboxStatus) -> SandboxView:
    """Convert a PodSandboxStatus; invalid addresses are omitted."""
    candidates = [
        status.network.ip,
        *(additional_ip.ip for additional_ip in status.network.additional_ips),
    ]
    return SandboxView(
        id=status.id,
        uid=status.metadata.uid,
        name=status.metadata.name,
        namespace=status.metadata.namespace,
        attempt=status.metadata.attempt,
        is_ready=status.state == pb.SANDBOX_READY,
        created_ns=status.created_at,
        handler=sandbox_handler(status.runtime_handler, status.labels, status.annotations),
        is_host_network=status.linux.namespaces.options.network == pb.NODE,
        ips=tuple(candidate for candidate in candidates if _is_ip(candidate)),
        owner=status.labels.get(OWNER, ""),
    )


def container_view(status: pb.ContainerStatus, sandbox_id: str, message: str) -> ContainerView:
    """Convert a ContainerStatus.

    `message` is its own message with the termination message appended.
    """
    return ContainerView(
        id=status.id,
        uid=status.labels.get(POD_UID, ""),
        sandbox_id=sandbox_id,
        name=status.labels.get(CONTAINER_NAME, status.metadata.name),
        state=state_of(status.state),
        created_ns=status.created_at,
        started_ns=status.started_at,
        finished_ns=status.finished_at,
        exit_code=status.exit_code,
        reason=status.reason,
        message=message,
        image=status.image.image,
        image_ref=status.image_ref,
        image_id=status.image_id,
        log_path=status.log_path,
        memory=parse_container_record(status.annotations),
        mounts=tuple(MountView(mount.host_path, mount.container_path) for mount in status.mounts),
        user=_user(status),
        stop_signal=_stop_signal(status),
    )


def _user(status: pb.ContainerStatus) -> UserView | None:
    if not status.HasField("user"):
        return None
    linux = status.user.linux
    return UserView(linux.uid, linux.gid, tuple(linux.supplemental_groups))


def _stop_signal(status: pb.ContainerStatus) -> str:
    return "" if status.stop_signal == 0 else pb.Signal.Name(status.stop_signal)


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
