"""Node status: capacity, conditions, handlers, images.

Pure: builds the status from the host's facts and the engine's health. A condition's transition time
changes only with its status; the caller sets heartbeats. Source: core/v1 NodeStatus, kubelet
`nodestatus/setters.go`, with its reasons and messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from moorage import __version__
from moorage.api import quantity
from moorage.api.nodes import (
    ContainerImage,
    DaemonEndpoint,
    NodeAddress,
    NodeCondition,
    NodeDaemonEndpoints,
    NodeFeatures,
    NodeRuntimeHandler,
    NodeStatus,
    NodeSwapStatus,
    NodeSystemInfo,
)
from moorage.api.quantity import Family, Quantity
from moorage.api.release import KUBERNETES
from moorage.api.resource_names import is_extended
from moorage.node.machine.facts import MachineFacts
from moorage.node.pressure.thresholds import EvictionOptions, hard_reservation
from moorage.wire.cri import pb

# Node shutdown as it is observed: whether the host is about to go down.


class NodeShutdown:
    """Whether a shutdown of the host has begun."""

    def __init__(self) -> None:
        self._is_begun = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_begun(self) -> bool:
        return self._is_begun

    @property
    def problem(self) -> str:
        """Return why the node is not ready; empty if no shutdown has begun."""
        return "node is shutting down" if self._is_begun else ""

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Register a function to call after a change. It must not block."""
        self._listeners.append(listener)

    def update(self, is_begun: bool) -> None:
        """Set whether a shutdown has begun, and call the listeners if that has changed."""
        if is_begun != self._is_begun:
            self._is_begun = is_begun
            for listener in self._listeners:
                listener()


_MAX_IMAGES = 50
_MAX_NAMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatusInputs:
    """Inputs of the status at one moment. `stamp` is the current time, RFC 3339.

    `pressure` are the types of the pressure conditions that hold.
    """

    facts: MachineFacts
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    addresses: Sequence[str]
    hostname: str
    port: int
    engine_name: str
    engine_version: str
    problems: Sequence[str]
    handlers: Sequence[NodeRuntimeHandler]
    has_groups_policy: bool | None
    images: Sequence[ContainerImage]
    pressure: Collection[str]
    before: Sequence[NodeCondition]
    stamp: str


def capacity_of(facts: MachineFacts, max_pods: int) -> dict[str, str]:
    """Return the node's capacity by resource."""
    capacity = {
        "cpu": str(facts.cpu_count),
        "memory": _kibibytes(facts.memory_bytes),
        "ephemeral-storage": _kibibytes(facts.disk_bytes),
        "pods": str(max_pods),
    }
    return capacity | {name: _binary(size) for name, size in facts.huge_pages.items()}


def allocatable_of(
    capacity: Mapping[str, str],
    reserved: Mapping[str, str],
    eviction: EvictionOptions | None = None,
) -> dict[str, str]:
    """Return capacity less the reserved resources; memory also less the huge pages.

    With `eviction` also less what hard thresholds keep free: what pods may request, where the limit
    of all pods together is without it. Source: kubelet `GetNodeAllocatableReservation`.
    """
    kept: Mapping[str, int] = {}
    if eviction is not None:
        kept = hard_reservation(
            eviction, {name: quantity.parse(text).value for name, text in capacity.items()}
        )
    labels: dict[str, str] = {}
    pages = [quantity.parse(text) for name, text in capacity.items() if name.startswith("huge")]
    for name, text in capacity.items():
        amount = quantity.parse(text) - quantity.parse(reserved.get(name, "0"))
        amount = amount - Quantity(kept.get(name, 0) * quantity.NANO)
        if name == "memory":
            for size in pages:
                amount = amount - size
        labels[name] = str(amount) if amount.nano > 0 else "0"
    return labels


def extended_resources(capacity: Mapping[str, str]) -> dict[str, str]:
    """Return the resources that others have given a node, such as `example.com/dongle`.

    They stay, and all of them are allocatable. Source: API docs "Advertise Extended Resources for a
    Node".
    """
    return {name: text for name, text in capacity.items() if is_extended(name)}


def allocatable_pids(max_pids: int, reserved: Mapping[str, str]) -> int:
    """Return how many processes and threads all pods together may have; at least 1.

    `pid` in `reserved` is reserved for the rest of the host. Source: KubeletConfiguration
    `systemReserved`; kubelet `getNodeAllocatableInternalAbsolute`.
    """
    return max(1, max_pids - quantity.parse(reserved.get("pid", "0")).value)


def node_status(inputs: NodeStatusInputs) -> NodeStatus:
    """Return the status to report."""
    facts = inputs.facts
    return NodeStatus(
        capacity=dict(inputs.capacity),
        allocatable=dict(inputs.allocatable),
        addresses=(
            *(NodeAddress(type="InternalIP", address=address) for address in inputs.addresses),
            NodeAddress(type="Hostname", address=inputs.hostname),
        ),
        daemon_endpoints=NodeDaemonEndpoints(kubelet_endpoint=DaemonEndpoint(port=inputs.port)),
        node_info=NodeSystemInfo(
            machine_id=facts.machine_id,
            system_uuid=facts.system_uuid or facts.machine_id,
            boot_id=facts.boot_id,
            kernel_version=facts.kernel,
            os_image=facts.os_image,
            container_runtime_version=f"{inputs.engine_name}://{inputs.engine_version}",
            kubelet_version=f"v{KUBERNETES}+moorage.{__version__}",
            operating_system="linux",
            architecture=facts.architecture,
            swap=NodeSwapStatus(capacity=facts.swap_bytes) if facts.swap_bytes else None,
        ),
        conditions=tuple(_conditions(inputs)),
        images=tuple(inputs.images),
        runtime_handlers=tuple(inputs.handlers),
        features=None
        if inputs.has_groups_policy is None
        else NodeFeatures(supplemental_groups_policy=inputs.has_groups_policy),
    )


_PRESSURES = (
    (
        "MemoryPressure",
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ),
    (
        "DiskPressure",
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ),
    (
        "PIDPressure",
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ),
)

PRESSURE_EVENTS = {
    ("MemoryPressure", "True"): "NodeHasInsufficientMemory",
    ("MemoryPressure", "False"): "NodeHasSufficientMemory",
    ("DiskPressure", "True"): "NodeHasDiskPressure",
    ("DiskPressure", "False"): "NodeHasNoDiskPressure",
    ("PIDPressure", "True"): "NodeHasInsufficientPID",
    ("PIDPressure", "False"): "NodeHasSufficientPID",
    ("Ready", "True"): "NodeReady",
    ("Ready", "False"): "NodeNotReady",
}
"""(condition, status) that it has changed to → the event's reason."""


def _conditions(inputs: NodeStatusInputs) -> Iterable[NodeCondition]:
    earlier = {condition.type: condition for condition in inputs.before}
    for type_, bad, good in _PRESSURES:
        is_bad = type_ in inputs.pressure
        reason, message = bad if is_bad else good
        yield _condition(inputs, earlier, type_, is_bad, reason, message)
    if inputs.problems:
        problem = inputs.problems[0]
        if len(inputs.problems) > 1:
            problem = f"[{', '.join(inputs.problems)}]"
        yield _condition(inputs, earlier, "Ready", False, "KubeletNotReady", problem)
    else:
        yield _condition(
            inputs, earlier, "Ready", True, "KubeletReady", "kubelet is posting ready status"
        )


def _condition(
    inputs: NodeStatusInputs,
    earlier: Mapping[str, NodeCondition],
    type_: str,
    is_true: bool,
    reason: str,
    message: str,
) -> NodeCondition:
    status = "True" if is_true else "False"
    before = earlier.get(type_)
    is_same = before is not None and before.status == status
    since = before.last_transition_time if before is not None and is_same else None
    return NodeCondition(
        type=type_,
        status=status,
        last_heartbeat_time=inputs.stamp,
        last_transition_time=since or inputs.stamp,
        reason=reason,
        message=message,
    )


def images_of(images: Iterable[pb.Image]) -> list[ContainerImage]:
    """Return the largest images of the node, with their names; unnamed ones are omitted."""
    largest_first = [
        ContainerImage(
            # Sorted: an engine lists a set, and another order would count as a changed status.
            names=(*sorted(image.repo_digests), *sorted(image.repo_tags))[:_MAX_NAMES],
            size_bytes=image.size,
        )
        for image in images
        if image.repo_digests or image.repo_tags
    ]
    largest_first.sort(key=lambda image: (-image.size_bytes, image.names))
    return largest_first[:_MAX_IMAGES]


def _kibibytes(size: int) -> str:
    return f"{size // 1024}Ki"


def _binary(size: int) -> str:
    return str(Quantity(size * quantity.NANO, Family.BINARY))
