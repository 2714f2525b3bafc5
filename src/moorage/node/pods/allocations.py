"""Allocations: the resources each pod was promised, their records, and their resizes.

What the API shows of a pod is what it asks for; an agent that starts must know which of it was
promised, or a resize that does not fit would take effect by a restart. Source: kubelet
`allocation/state/state_checkpoint.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import msgspec

from moorage.api.containers import Container, ResourceRequirements
from moorage.api.logs import Log
from moorage.api.pods import Pod
from moorage.api.qos import GUARANTEED
from moorage.api.quantity import Quantity
from moorage.linux.atomic_file import replace_file
from moorage.node.cgroups.values import UNLIMITED, CgroupValues
from moorage.node.paths import NodePaths
from moorage.node.pod_facts.labels import Given
from moorage.node.pod_facts.qos import pod_qos_class
from moorage.node.pod_facts.resources import (
    RESIZABLE,
    RESTART_CONTAINER,
    Allocation,
    Sizes,
    allocated,
    given_by,
    sizes_of,
)
from moorage.node.runtime.views import ContainerView, PodView, State
from moorage.runtimeclass.overhead import pod_requests_without_overhead

# Resize decisions: which containers to update or restart, in which order, and what forbids it.
#
# Pure. The pod's cgroup grows before its containers and shrinks after them, so that no container is
# ever larger than its pod. Source: KEP-1287; kubelet `computePodResizeAction`, `doPodResizeAction`.

_ZERO = Quantity(0)
_NO_LIMITS = Given(ResourceRequirements())


class Change(Enum):
    """What a running container needs to get the resources that its pod was promised."""

    NONE = "none"
    UPDATE = "update"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Update:
    """Give a running container other resources."""

    container: ContainerView
    before: Given
    after: Given


@dataclass(frozen=True, slots=True)
class Resize:
    """Bring the pod's cgroup and these containers to the resources that the pod was promised."""

    updates: tuple[Update, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeInputs:
    """State of a pod's resize.

    `given` is what the running containers have, by container ID; `stopped` are the IDs of those
    that were stopped to be started with other resources, `unsure` of those that may have other
    resources than `given` says, as a resize of them did not end. `is_due` means that the pod's
    cgroup may differ from the allocation, `holds_starts` that containers wait until it does not.
    """

    given: Mapping[str, Given] = field(default_factory=dict)
    stopped: frozenset[str] = frozenset()
    unsure: frozenset[str] = frozenset()
    is_due: bool = False
    holds_starts: bool = False


def change_of(pod: Pod, container: Container, given: Given | None) -> Change:
    """Return the needs of a running container. Unknown resources count as those of the pod."""
    if given is None:
        return Change.NONE
    wanted = given_by(pod, container)
    if given == wanted:
        return Change.NONE
    before, after = sizes_of(given), sizes_of(wanted)
    if before == after:
        return Change.NONE
    restarts = {
        policy.resource_name
        for policy in container.resize_policy
        if policy.restart_policy == RESTART_CONTAINER
    }
    return Change.RESTART if restarts & _changed(before, after) else Change.UPDATE


def _changed(before: Sizes, after: Sizes) -> set[str]:
    changed = set()
    if (before.cpu_request, before.cpu_limit) != (after.cpu_request, after.cpu_limit):
        changed.add("cpu")
    if (before.memory_request, before.memory_limit) != (after.memory_request, after.memory_limit):
        changed.add("memory")
    return changed


def updates(pod: Pod, view: PodView, inputs: ResizeInputs) -> tuple[Update, ...]:
    """Return the containers to update; those that get less memory come first."""
    found = []
    for container, newest in running(pod, view):
        given = inputs.given.get(newest.id)
        if given is None:
            continue
        change = change_of(pod, container, given)
        if newest.id in inputs.unsure and change is not Change.RESTART:
            # As if it had no limit, so that the new one is compared with what is used.
            found.append(Update(newest, _NO_LIMITS, given_by(pod, container)))
        elif change is Change.UPDATE:
            found.append(Update(newest, given, given_by(pod, container)))
    return tuple(sorted(found, key=_gain))


def _gain(update: Update) -> int:
    return sizes_of(update.after).memory_limit - sizes_of(update.before).memory_limit


def running(pod: Pod, view: PodView) -> Iterator[tuple[Container, ContainerView]]:
    """Yield the running containers that can be resized: all but ephemeral ones."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        newest = view.latest(container.name)
        if newest is not None and newest.state is State.RUNNING:
            yield container, newest


def is_behind(pod: Pod, view: PodView, given: Mapping[str, Given]) -> bool:
    """Return whether a running container lacks the promised resources."""
    return any(
        change_of(pod, container, given.get(newest.id)) is not Change.NONE
        for container, newest in running(pod, view)
    )


def grown(current: CgroupValues, wanted: CgroupValues) -> CgroupValues:
    """Return the limits to raise before the containers change; None for those that stay."""
    return CgroupValues(
        quota_us=_if_larger(current.quota_us, wanted.quota_us),
        memory_bytes=_if_larger(current.memory_bytes, wanted.memory_bytes),
    )


def _if_larger(current: int | None, wanted: int | None) -> int | None:
    if current is None or wanted is None or current == UNLIMITED:
        return None
    return wanted if wanted == UNLIMITED or wanted > current else None


def memory_complaints(
    current: CgroupValues,
    wanted: CgroupValues,
    resize: Resize,
    usage_bytes: int | None,
    container_usage_bytes: Mapping[str, int],
) -> list[str]:
    """Return which new memory limits are below what is used, so that they would kill processes.

    `container_usage_bytes` is by container ID.
    """
    complaints = []
    if _is_smaller(current.memory_bytes, wanted.memory_bytes):
        limit = wanted.memory_bytes or 0
        if usage_bytes is None:
            complaints.append("missing pod memory usage")
        elif usage_bytes >= limit:
            complaints.append(
                f"attempting to set pod memory limit ({limit}) below current usage ({usage_bytes})"
            )
    for update in shrinking(resize):
        name, limit = update.container.name, sizes_of(update.after).memory_limit
        used = container_usage_bytes.get(update.container.id)
        if used is None:
            complaints.append(f'missing container "{name}" memory usage')
        elif used >= limit:
            complaints.append(
                f'attempting to set container "{name}" memory limit ({limit}) below current usage '
                f"({used})"
            )
    return complaints


def lowers_memory(current: CgroupValues, wanted: CgroupValues, resize: Resize) -> bool:
    """Return whether a memory limit of the pod or of a container gets lower."""
    return _is_smaller(current.memory_bytes, wanted.memory_bytes) or bool(shrinking(resize))


def _is_smaller(current: int | None, wanted: int | None) -> bool:
    if wanted is None or wanted == UNLIMITED or current is None:
        return False
    return current == UNLIMITED or wanted < current


def shrinking(resize: Resize) -> list[Update]:
    """Return the updates that set a memory limit, or lower it."""
    found = []
    for update in resize.updates:
        before, after = sizes_of(update.before), sizes_of(update.after)
        is_lower = before.memory_limit == 0 or after.memory_limit < before.memory_limit
        if after.memory_limit and is_lower:
            found.append(update)
    return found


def urgency(desired: Pod, allocation: Allocation, pending_since: str) -> tuple[int, int, int, str]:
    """Return a key that sorts waiting resizes.

    Those that ask for no more come first, then those of higher priority, of guaranteed pods, and
    those that have waited longest.
    """
    asked = pod_requests_without_overhead(desired.spec)
    promised = pod_requests_without_overhead(allocated(desired, allocation).spec)
    is_larger = any(asked.get(name, _ZERO) > promised.get(name, _ZERO) for name in RESIZABLE)
    is_guaranteed = pod_qos_class(desired) == GUARANTEED
    return (
        int(is_larger),
        -(desired.spec.priority or 0),
        int(not is_guaranteed),
        pending_since or "~",
    )


class _Member(msgspec.Struct, frozen=True):
    name: str
    resources: ResourceRequirements


class _Summary(msgspec.Struct, frozen=True, rename="camel"):
    init_containers: tuple[_Member, ...] | msgspec.UnsetType
    containers: tuple[_Member, ...]
    generation: int
    error: str | msgspec.UnsetType


def summary(what: str, pod: Pod, generation: int, error: str = "") -> str:
    """Return an event's message about the outcome of a resize to these resources."""
    shown = _Summary(
        init_containers=_members(pod.spec.init_containers) or msgspec.UNSET,
        containers=_members(pod.spec.containers),
        generation=generation,
        error=error or msgspec.UNSET,
    )
    return f"{what}: {msgspec.json.encode(shown, order='deterministic').decode()}"


def _members(containers: Iterable[Container]) -> tuple[_Member, ...]:
    return tuple(_Member(container.name, container.resources) for container in containers)


log = Log(__name__)


class AllocationRecord(msgspec.Struct, frozen=True):
    """A pod's allocation; by container ID what running containers were resized to.

    `unsure` are the IDs of those whose resize had begun: it may have been carried out or not.
    """

    allocation: Allocation
    given: dict[str, Given] = {}
    unsure: frozenset[str] = frozenset()


class AllocationRecords:
    """The records of this node's pods. Every call blocks on the file system."""

    def __init__(self, paths: NodePaths) -> None:
        self._paths = paths

    def read(self, uid: str) -> AllocationRecord | None:
        """Return the record of a pod; None without a readable one."""
        file = self._paths.pod(uid).resources
        try:
            return msgspec.json.decode(file.read_bytes(), type=AllocationRecord)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            # The specification is the best guess that is left.
            log.warning("allocation not readable", file=file, error=error)
            return None

    def write(self, uid: str, record: AllocationRecord) -> None:
        """Write a pod's record, in its directory, which must exist. Raises OSError."""
        file: Path = self._paths.pod(uid).resources
        replace_file(file, msgspec.json.encode(record))
