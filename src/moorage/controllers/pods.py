"""Pods as controllers see them: status, owners, creation and deletion. Source: `podutil`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from moorage.api import conditions
from moorage.api.clock import parse_time
from moorage.api.errors import NotFoundError, StatusError
from moorage.api.labels import from_object
from moorage.api.meta import ObjectMeta, Raw
from moorage.api.names import dns_subdomain_errors
from moorage.api.pods import ENDED_PHASES, PodCondition
from moorage.controllers.expectations import Expectations
from moorage.controllers.informers import NAMESPACE
from moorage.controllers.objects import PODS, Pod
from moorage.controllers.ownership import controller_of, controller_reference
from moorage.controllers.requests import at_once, is_namespace_ending, slow_start
from moorage.wire.client.informer import Informer, object_key
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import Resource
from moorage.wire.client.rest import Client, UnreachableError, meta_of

# Batches of pod requests that lower the owner's expectations by the requests that fail.

Failure = StatusError | UnreachableError


class PodBatches:
    """Creates and deletes pods of the owners of one controller, which are expected beforehand."""

    def __init__(self, expectations: Expectations) -> None:
        self._expectations = expectations

    async def create(
        self, key: str, calls: Sequence[Callable[[], Awaitable[None]]]
    ) -> tuple[int, Failure | None]:
        """Create a pod by each call, in growing batches until one fails.

        Returns how many were created and the first failure. That nothing can be created in a
        namespace that is terminating is no failure.
        """
        waiting = iter(calls)
        created = 0

        async def create() -> None:
            nonlocal created
            try:
                await next(waiting)()
                created += 1
            except (StatusError, UnreachableError) as error:
                self._expectations.creation_seen(key)
                if not is_namespace_ending(error):
                    raise

        called, failure = await slow_start(len(calls), create)
        self._expectations.creation_seen(key, len(calls) - called)
        return created, failure

    async def delete(
        self, key: str, pods: Sequence[Pod], call: Callable[[Pod], Awaitable[None]]
    ) -> tuple[list[Pod], Failure | None]:
        """Delete pods by `call`, all at once.

        Returns those that are gone or going, and the first failure.
        """
        going: list[Pod] = []

        async def delete(pod: Pod) -> None:
            try:
                await call(pod)
            except NotFoundError:
                self._expectations.deletion_seen(key, pod.metadata.uid)
            except (StatusError, UnreachableError):
                self._expectations.deletion_seen(key, pod.metadata.uid)
                raise
            going.append(pod)

        failure = await at_once([partial(delete, pod) for pod in pods])
        return going, failure


def is_ended(pod: Pod) -> bool:
    """Return whether the pod has ended: none of its containers will run again."""
    return pod.status.phase in ENDED_PHASES


def is_deleting(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def is_active(pod: Pod) -> bool:
    """Return whether the pod counts as a replica: neither ended nor being deleted."""
    return not is_ended(pod) and not is_deleting(pod)


def is_terminating(pod: Pod) -> bool:
    return is_deleting(pod) and not is_ended(pod)


def ready_condition(pod: Pod) -> PodCondition | None:
    return next(
        (condition for condition in pod.status.conditions if condition.type == conditions.READY),
        None,
    )


def is_ready(pod: Pod) -> bool:
    return conditions.is_ready(pod.status.conditions)


def ready_since(pod: Pod) -> datetime | None:
    """Return when the pod became ready; None if it is not, or its condition has no time."""
    condition = ready_condition(pod)
    if condition is None or condition.status != "True" or not condition.last_transition_time:
        return None
    return parse_time(condition.last_transition_time)


def seconds_until_available(pod: Pod, min_ready_s: int, now: datetime) -> float | None:
    """Return the seconds until the pod is available: 0 if it is, None if it is not ready."""
    if not is_ready(pod):
        return None
    if min_ready_s == 0:
        return 0.0
    since = ready_since(pod)
    if since is None:
        return None
    return max(0.0, min_ready_s - (now - since).total_seconds())


def next_available_s(active: Iterable[Pod], min_ready_s: int, now: datetime) -> float | None:
    """Return the seconds until the next ready pod becomes available; None without one."""
    waits = (seconds_until_available(pod, min_ready_s, now) for pod in active)
    return min((wait for wait in waits if wait), default=None)


# Changes of pods, passed on to the controller that owns them.
#
# An owner is reconciled when one of its pods changes, or when it might adopt a pod without
# controller. Its expectations are lowered by what the informer shows.


class PodOwners:
    """The owners, of one kind, of the pods that change: `pod_changed` has their keys for a loop."""

    def __init__(self, owners: Informer[Any], expectations: Expectations) -> None:
        self._owners = owners
        self._expectations = expectations

    def pod_changed(self, before: Pod | None, after: Pod | None) -> Iterator[str]:
        """Lower the expectations of the pod's owners and yield their keys."""
        if before is not None and after is not None and after.metadata.uid != before.metadata.uid:
            yield from self.pod_changed(before, None)
            before = None
        old_key = self._controller_key(before) if before is not None else None
        key = self._controller_key(after) if after is not None else None
        if key is not None and after is not None:
            if before is None:
                self._expectations.creation_seen(key)
            if is_deleting(after):
                self._expectations.deletion_seen(key, after.metadata.uid)
        if old_key is not None and before is not None and after is None:
            self._expectations.deletion_seen(old_key, before.metadata.uid)
        for changed_key in {old_key, key} - {None}:
            assert changed_key is not None
            yield changed_key
        if after is not None and controller_of(after.metadata) is None and not is_deleting(after):
            yield from self._adopters(before, after)

    def _adopters(self, before: Pod | None, orphan: Pod) -> Iterator[str]:
        """Yield the owners that might adopt a pod without controller."""
        if before is not None and (
            before.metadata.labels == orphan.metadata.labels
            and controller_of(before.metadata) is None
        ):
            return
        for owner in self._owners.by_index(NAMESPACE, orphan.metadata.namespace):
            if from_object(owner.spec.selector).matches(orphan.metadata.labels):
                yield object_key(owner.metadata)

    def _controller_key(self, pod: Pod) -> str | None:
        controller = controller_of(pod.metadata)
        if controller is None or controller.kind != self._owners.resource.kind:
            return None
        owner = self._owners.get(controller.name, pod.metadata.namespace)
        if owner is None or owner.metadata.uid != controller.uid:
            return None
        return object_key(owner.metadata)


# Pod requests of a controller: creation and deletion, with the events that report them.
#
# Source: `PodControlInterface`; the events' reasons and messages are what users and tools look for.


def pod_of(owners: Resource[Any], owner: ObjectMeta, template: Raw) -> dict[str, Any]:
    """Return the pod of an owner's template, as JSON, controlled by the owner."""
    described = template.get("metadata") or {}
    copied = ("labels", "annotations", "finalizers")
    return {
        "metadata": {
            "generateName": name_prefix(owner),
            "namespace": owner.namespace,
            **{key: described[key] for key in copied if described.get(key)},
            "ownerReferences": [controller_reference(owners, owner)],
        },
        "spec": template.get("spec") or {},
    }


def name_prefix(meta: ObjectMeta) -> str:
    """Return `NAME-`, or the bare name where that prefix makes an invalid pod name."""
    return f"{meta.name}-" if not dns_subdomain_errors(f"{meta.name}-a") else meta.name


class PodRequests:
    """Creates and deletes the pods of the objects of one kind and records the events."""

    def __init__(self, client: Client, recorder: EventRecorder, owners: Resource[Any]) -> None:
        self._client = client
        self._recorder = recorder
        self._owners = owners

    async def create(self, owner: Any, body: dict[str, Any]) -> None:
        """Create a pod of the owner; `body` is the pod as JSON.

        Raises StatusError or UnreachableError, after an event unless the namespace is terminating.
        """
        about = reference(self._owners, owner)
        try:
            pod = await self._client.create(PODS, body, meta_of(owner).namespace)
        except (StatusError, UnreachableError) as error:
            if not is_namespace_ending(error):
                self._recorder.record(about, WARNING, "FailedCreate", f"Error creating: {error}")
            raise
        message = f"Created pod: {pod.metadata.name}"
        self._recorder.record(about, NORMAL, "SuccessfulCreate", message)

    async def delete(self, owner: Any, pod: Pod) -> None:
        """Delete a pod of the owner.

        Raises StatusError or UnreachableError, after an event unless the pod is gone.
        """
        about = reference(self._owners, owner)
        name, namespace = pod.metadata.name, pod.metadata.namespace
        try:
            await self._client.delete(PODS, name, namespace, uid=pod.metadata.uid)
        except NotFoundError:
            raise
        except (StatusError, UnreachableError) as error:
            self._recorder.record(about, WARNING, "FailedDelete", f"Error deleting: {error}")
            raise
        self._recorder.record(about, NORMAL, "SuccessfulDelete", f"Deleted pod: {name}")


# Ranking of pods for deletion when there are too many.
#
# Source: API docs "ReplicaSet: scaling down", `ActivePodsWithRanks`. Ages are compared on a
# logarithmic scale, so that among pods of about the same age chance decides and not the order of
# creation.

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

_PHASE_ORDER = {"Pending": 0, "Unknown": 1, "Running": 2}
_COST_LIMIT = 2**31


def pods_to_delete(
    pods: Sequence[Pod], related: Iterable[Pod], count: int, now: datetime
) -> list[Pod]:
    """Return the `count` pods to delete first.

    `related` are the pods of the ReplicaSets with the same owner: nodes that have many of them
    lose theirs first.
    """
    if count >= len(pods):
        return list(pods)
    crowd = Counter(pod.spec.node_name for pod in related if is_active(pod))
    return sorted(pods, key=lambda pod: _rank(pod, crowd[pod.spec.node_name], now))[:count]


def deletion_cost(pod: Pod) -> int:
    """Return the pod's deletion cost annotation; 0 if absent or not a 32-bit integer."""
    text = pod.metadata.annotations.get(DELETION_COST, "0")
    try:
        cost = int(text)
    except ValueError:
        return 0
    is_canonical = str(cost) == text and -_COST_LIMIT <= cost < _COST_LIMIT
    return cost if is_canonical else 0


def _rank(pod: Pod, crowd: int, now: datetime) -> tuple[Any, ...]:
    """Return the pod's sort key; the lowest is deleted first."""
    regular, sidecar = _restarts(pod)
    created = pod.metadata.creation_timestamp
    return (
        bool(pod.spec.node_name),
        _PHASE_ORDER.get(pod.status.phase, 0),
        is_ready(pod),
        deletion_cost(pod),
        -crowd,
        _age_class(ready_since(pod), now),
        -regular,
        -sidecar,
        _age_class(parse_time(created) if created else None, now),
        pod.metadata.uid,
    )


def _age_class(since: datetime | None, now: datetime) -> int:
    """Return the logarithm of the age; an unknown time counts as the youngest."""
    if since is None:
        return -2
    nanoseconds = int((now - since).total_seconds() * 1e9)
    return int(math.log2(nanoseconds)) if nanoseconds > 0 else -1


def _restarts(pod: Pod) -> tuple[int, int]:
    """Return the highest restart counts of a regular container and of a sidecar."""
    sidecars = {
        container.name
        for container in pod.spec.init_containers
        if container.restart_policy == "Always"
    }
    regular = max(
        (container_status.restart_count for container_status in pod.status.container_statuses),
        default=0,
    )
    sidecar = max(
        (
            init_container_status.restart_count
            for init_container_status in pod.status.init_container_statuses
            if init_container_status.name in sidecars
        ),
        default=0,
    )
    return regular, sidecar
