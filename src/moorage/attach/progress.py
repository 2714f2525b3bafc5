"""Progress of the parts' workloads, with what their pods wait for, until all are ready.

`part_progress` decides purely from a workload and its pods; `follow` watches both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from moorage.api.clock import Clock
from moorage.api.conditions import is_ready
from moorage.api.events import Event
from moorage.api.labels import from_labels
from moorage.api.meta import Raw
from moorage.api.pods import ContainerStatus, Pod
from moorage.api.workloads import DaemonSet, Deployment
from moorage.attach.errors import AttachError
from moorage.attach.manifests.identity import OURS, Obj
from moorage.attach.served_objects import key_of
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import DAEMON_SETS, DEPLOYMENTS, EVENTS, PODS
from moorage.wire.client.rest import Client

_IMAGE = (
    "the nodes cannot get image {image}: push it to a registry that they reach and set image to "
    "it, or load it into each node's engine and set imagePullPolicy=Never"
)
_REMEDIES = {
    "ErrImagePull": _IMAGE,
    "ImagePullBackOff": _IMAGE,
    "RegistryUnavailable": _IMAGE,
    "ErrImageNeverPull": "load image {image} into each node's engine, or set "
    "imagePullPolicy=IfNotPresent",
    "InvalidImageName": "set image to a valid name",
    "CrashLoopBackOff": "see what it wrote: kubectl logs --previous -n {namespace} {pod}",
    "CreateContainerConfigError": "see kubectl describe pod -n {namespace} {pod}",
    "FailedMount": "a directory of the node is missing or another one: correct agent.cri or "
    "agent.hostPaths, or make it on the node",
    "Unschedulable": "give the cluster a node that has room, or set a smaller request",
}


_NO_DIRECTORY = "hostPath type check failed"
"""Source: kubelet, pkg/volume/hostpath."""
_ON_THE_WAY = ("ContainerCreating", "PodInitializing")


class WaitReason(msgspec.Struct, frozen=True, order=True):
    """Why a pod is not ready, and the remedy, empty if it only takes time."""

    text: str
    remedy: str = ""


class PartProgress(msgspec.Struct, frozen=True):
    """A part: how many pods it shall have and how many are ready, and what others wait for.

    `is_done`: all pods are ready, and of the present template.
    """

    name: str
    desired: int = 0
    ready: int = 0
    is_done: bool = False
    reasons: tuple[WaitReason, ...] = ()


def part_progress(
    workload: Deployment | DaemonSet, pods: Iterable[Pod], events: Sequence[Event] = ()
) -> PartProgress:
    """Return how far a workload is, given its pods, and warnings of their namespace."""
    name = workload.metadata.name
    status = workload.status
    is_current = status.observed_generation >= workload.metadata.generation
    if isinstance(workload, DaemonSet):
        desired, ready = workload.status.desired_number_scheduled, workload.status.number_available
        updated = workload.status.updated_number_scheduled
    else:
        replicas = workload.spec.replicas
        desired = 1 if replicas is None else replicas
        ready, updated = workload.status.available_replicas, workload.status.updated_replicas
    is_done = is_current and ready >= desired and updated >= desired
    reasons: tuple[WaitReason, ...] = ()
    if not is_done:
        reasons = tuple(sorted({why for pod in pods for why in pod_reasons(pod, events)}))
    return PartProgress(name, desired, ready, is_done, reasons)


def pod_reasons(pod: Pod, events: Iterable[Event] = ()) -> Iterable[WaitReason]:
    """Yield the reasons why a pod waits. `events` are of its namespace, warnings of any object."""
    if pod.spec.node_name and not is_ready(pod.status.conditions):
        mounts = [event for event in events if _is_of_mounts(event, pod)]
        if mounts:
            last = max(mounts, key=lambda event: event.last_timestamp or "")
            yield WaitReason(f"{last.reason}: {last.message}", _REMEDIES[last.reason])
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.reason == "Unschedulable":
            yield WaitReason(
                f"no node takes its pod: {condition.message}", _REMEDIES["Unschedulable"]
            )
    images = {container.name: container.image for container in pod.spec.containers}
    for status in pod.status.container_statuses:
        if reason := _container_reason(pod, status, images.get(status.name, "")):
            yield reason


def _is_of_mounts(event: Event, pod: Pod) -> bool:
    """Whether a directory of the node is missing; a Secret that is, is on its way."""
    is_of_host = event.reason == "FailedMount" and _NO_DIRECTORY in event.message
    return is_of_host and event.involved_object.uid == pod.metadata.uid


def _container_reason(pod: Pod, status: ContainerStatus, image: str) -> WaitReason | None:
    waiting = status.state.waiting
    if waiting is None or (waiting.reason in _ON_THE_WAY and not waiting.message):
        return None
    text = waiting.reason or "waiting"
    if message := _last_words(status) or waiting.message:
        text += f": {message}"
    remedy = _REMEDIES.get(waiting.reason, "")
    return WaitReason(
        text,
        remedy.format(image=image, namespace=pod.metadata.namespace, pod=pod.metadata.name),
    )


def _last_words(status: ContainerStatus) -> str:
    """Return the last line that a container wrote which is started again and again."""
    ended = status.last_state.terminated
    if ended is None:
        return ""
    return ended.message.strip().rpartition("\n")[2]


Report = Callable[[Sequence[PartProgress]], None]


async def follow(
    client: Client,
    namespace: str,
    workloads: Sequence[Obj],
    report: Report,
    clock: Clock,
    timeout_s: float,
) -> None:
    """Wait until the workloads are ready; `report` gets the parts whenever they change.

    Raises AttachError, with what the parts wait for, after `timeout_s`.
    """
    keys = {key_of(obj) for obj in workloads}
    selectors = {
        obj["metadata"]["name"]: obj["spec"]["selector"]["matchLabels"] for obj in workloads
    }
    changed = asyncio.Event()
    watched = _Watched(client, namespace, clock, changed)
    latest: list[PartProgress] = []
    try:
        async with asyncio.timeout(timeout_s), watched:
            while True:
                changed.clear()
                parts = [
                    part_progress(
                        one, watched.pods_of(selectors[one.metadata.name]), watched.warnings()
                    )
                    for one in watched.workloads()
                    if (_kind(one), namespace, one.metadata.name) in keys
                ]
                if parts != latest:
                    latest = parts
                    report(parts)
                if len(parts) == len(keys) and all(part.is_done for part in parts):
                    return
                await changed.wait()
    except TimeoutError as error:
        waiting = [part for part in latest if not part.is_done]
        raise AttachError(_timeout_text(waiting, timeout_s)) from error


def _timeout_text(waiting: Sequence[PartProgress], timeout_s: float) -> str:
    lines = [f"the parts are not ready after {timeout_s:g} s; run it again to go on"]
    for part in waiting:
        lines.append(f"  {part.name}: {part.ready} of {part.desired} pods are ready")
        for reason in part.reasons:
            lines.append(f"    {reason.text}")
            if reason.remedy:
                lines.append(f"    → {reason.remedy}")
    return "\n".join(lines)


def _kind(workload: Deployment | DaemonSet) -> str:
    return "DaemonSet" if isinstance(workload, DaemonSet) else "Deployment"


class _Watched:
    """Copies of the workloads and pods of the namespace, watched while it is open."""

    def __init__(
        self, client: Client, namespace: str, clock: Clock, changed: asyncio.Event
    ) -> None:
        def informer(resource: Any, *, labels: str = "", fields: str = "") -> Informer[Any]:
            made: Informer[Any] = Informer(
                client,
                resource,
                namespace=namespace,
                label_selector=labels,
                field_selector=fields,
                clock=clock,
            )
            made.add_handler(lambda _before, _after: changed.set())
            return made

        self._deployments = informer(DEPLOYMENTS, labels=OURS)
        self._daemon_sets = informer(DAEMON_SETS, labels=OURS)
        self._pods = informer(PODS, labels=OURS)
        self._warnings = informer(EVENTS, fields="type=Warning,involvedObject.kind=Pod")
        self._tasks: list[asyncio.Future[None]] = []

    def workloads(self) -> list[Deployment | DaemonSet]:
        found = [*self._deployments, *self._daemon_sets]
        return sorted(found, key=lambda one: str(one.metadata.name))

    def warnings(self) -> list[Event]:
        return list(self._warnings)

    def pods_of(self, selector: Raw) -> list[Pod]:
        chosen = from_labels(selector)
        return [pod for pod in self._pods if chosen.matches(pod.metadata.labels)]

    async def __aenter__(self) -> None:
        informers = (self._deployments, self._daemon_sets, self._pods, self._warnings)
        self._tasks = [asyncio.ensure_future(one.run()) for one in informers]
        for one in informers:
            await one.wait_synced()

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
