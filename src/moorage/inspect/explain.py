"""Explanation of a pod for `moor explain pod/NAME`: its placement, or why it does not run.

Reads pod, class, nodes and events from the API, runs the scheduler's own filters, and writes the
result as sentences, the most important first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from moorage.api.claims import pod_claims
from moorage.api.clock import parse_time
from moorage.api.conditions import is_ready
from moorage.api.events import Event
from moorage.api.pods import ENDED_PHASES, ContainerStateTerminated, ContainerStatus, Pod
from moorage.api.runtime_group import RuntimeClass
from moorage.api.text import counted
from moorage.engine.handlers import Handler
from moorage.inspect.pod_findings import choice_words, findings_of, start_words
from moorage.node.pods.handler_choice import DamagedRecordError, HandlerRecords
from moorage.runtimeclass.validation import is_implicit
from moorage.scheduler import Explanation, StorageState, explain
from moorage.wire.client.resources import (
    EVENTS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    RUNTIME_CLASSES,
    STORAGE_CLASSES,
)
from moorage.wire.client.rest import Client

_MOST_EVENTS = 10
_DEFAULT_HANDLER = "the node's default"
_NO_IMAGE = (
    "check the image's name; without a registry, load the image with `moor image load` and do not "
    "set imagePullPolicy: Always"
)
_REMEDIES_OF_WAITING: Mapping[str, str] = {
    "ErrImagePull": _NO_IMAGE,
    "ImagePullBackOff": _NO_IMAGE,
    "RegistryUnavailable": _NO_IMAGE,
    "ErrImageNeverPull": "load the image with `moor image load`, or change imagePullPolicy: Never",
    "InvalidImageName": "correct the image's name",
    "CrashLoopBackOff": "see what it wrote: kubectl logs --previous -n {namespace} {pod} -c {name}",
    "CreateContainerConfigError": "create what is missing, or correct its name in the pod",
}
_START_ERROR = "correct the container's command, or its limits"


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """Result of the scheduler's filters for one node: it fits, or the objections with details."""

    node: str
    fits: bool
    objections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodExplanation:
    """All that `moor explain` prints. `verdict` is the summary in one sentence."""

    pod: str
    phase: str
    verdict: str
    runtime_class: str
    handler: str
    overhead: dict[str, str]
    node: str
    nodes: tuple[NodeAnswer, ...]
    containers: tuple[str, ...]
    events: tuple[str, ...]
    remedies: tuple[str, ...]
    choice: str = ""
    start: str = ""
    findings: tuple[str, ...] = ()


async def explain_pod(
    client: Client,
    namespace: str,
    name: str,
    *,
    filters_by_handler: bool,
    now: datetime,
    local_handlers: Iterable[Handler] = (),
    records: HandlerRecords | None = None,
    explain: Callable[..., Explanation] = explain,
) -> PodExplanation:
    """Explain the placement and state of a pod.

    `local_handlers` are those of this host, with reasons for unavailable ones. `records` are those
    of this host's node agent: the API has only a pod's class, which may have been deleted, or
    created again with another handler, since the pod was admitted.

    Raises NotFoundError if there is no such pod, UnreachableError without an API server.
    """
    pod = await client.get(PODS, name, namespace)
    recorded = await recorded_handler(records, pod)
    nodes, pods, classes, namespaces, events = await asyncio.gather(
        client.list(NODES),
        client.list(PODS),
        client.list(RUNTIME_CLASSES),
        client.list(NAMESPACES),
        client.list(EVENTS, namespace, field_selector=f"involvedObject.uid={pod.metadata.uid}"),
    )
    storage = await _storage_of(client, pod)
    explanation = explain(
        pod,
        nodes.items,
        pods.items,
        classes.items,
        namespace_labels={
            namespace_object.metadata.name: namespace_object.metadata.labels
            for namespace_object in namespaces.items
        },
        storage=storage,
        filters_by_handler=filters_by_handler,
    )
    by_name = {class_.metadata.name: class_ for class_ in classes.items}
    runtime_class = by_name.get(pod.spec.runtime_class_name or "")
    ordered = in_order(events.items)
    latest = ordered[-_MOST_EVENTS:]
    findings = findings_of(pod, ordered)
    remedies = [
        *remedies_of(pod, explanation, local_handlers),
        *(finding.remedy for finding in findings if finding.remedy),
    ]
    return PodExplanation(
        pod=f"{namespace}/{name}",
        phase=pod.status.phase,
        verdict=verdict_of(pod, explanation, latest, recorded),
        runtime_class=class_words(pod, runtime_class),
        handler=handler_words(explanation, recorded),
        overhead=dict(pod.spec.overhead),
        node=pod.spec.node_name,
        nodes=tuple(_node_answers(explanation)),
        containers=tuple(_container_words(pod)),
        events=tuple(event_words(event, now) for event in latest),
        remedies=tuple(dict.fromkeys(remedies)),
        choice=choice_words(pod.metadata.annotations),
        start=start_words(pod),
        findings=tuple(finding.sentence for finding in findings),
    )


async def _storage_of(client: Client, pod: Pod) -> StorageState | None:
    """Return claims, volumes and classes, or None if the pod has no claims."""
    if not pod_claims(pod.metadata.name, pod.spec.volumes):
        return None
    claims, volumes, classes = await asyncio.gather(
        client.list(PERSISTENT_VOLUME_CLAIMS, pod.metadata.namespace),
        client.list(PERSISTENT_VOLUMES),
        client.list(STORAGE_CLASSES),
    )
    storage = StorageState()
    for claim in claims.items:
        storage.set_claim(claim)
    for volume in volumes.items:
        storage.set_volume(volume)
    for storage_class in classes.items:
        storage.set_class(storage_class)
    return storage


async def recorded_handler(records: HandlerRecords | None, pod: Pod) -> str | None:
    """Return the handler that the pod was admitted with on this host's node.

    Returns None without a readable record: only the agent's user may read one, and the agent
    itself reports a damaged one.
    """
    if records is None or not pod.spec.node_name:
        return None
    try:
        record = await records.read(pod.metadata.uid)
    except (OSError, DamagedRecordError):
        return None
    return record.handler if record is not None else None


def verdict_of(
    pod: Pod, explanation: Explanation, events: list[Event], recorded: str | None = None
) -> str:
    """Return in a sentence how a pod is."""
    phase, node = pod.status.phase, pod.spec.node_name
    if pod.metadata.deletion_timestamp:
        return f"is being deleted, from node {node}" if node else "is being deleted"
    if phase in ENDED_PHASES:
        why = f": {pod.status.message}" if pod.status.message else ""
        return f"has ended ({phase}) on node {node}{why}"
    if not node:
        return f"has no node: {explanation.summary}"
    if is_ready(pod.status.conditions):
        handler = _recorded_words(explanation, recorded)
        if handler == _DEFAULT_HANDLER:
            return f"runs on node {node} under the node's default handler"
        return f"runs on node {node} under handler {handler}"
    statuses = _statuses(pod)
    stuck = next((status for status in statuses if _is_stuck(status)), None)
    if stuck is not None:
        return f"is on node {node}, but container {stuck.name} {state_words(stuck)}"
    if phase == "Running":
        return f"runs on node {node}, but is not ready"
    failure = next((event for event in reversed(events) if event.type == "Warning"), None)
    why = f": {failure.reason}: {failure.message}" if failure else ""
    return f"is on node {node}, but has not started{why}"


def class_words(pod: Pod, runtime_class: RuntimeClass | None) -> str:
    """Return the words for the class of a pod."""
    name = pod.spec.runtime_class_name
    if is_implicit(name):
        return "none: the node's default handler"
    if runtime_class is None:
        return f"{name}, which does not exist"
    return str(name)


def handler_words(explanation: Explanation, recorded: str | None) -> str:
    """Return the recorded handler if there is one, and the class's where it differs."""
    sentence = _recorded_words(explanation, recorded)
    if recorded is None or recorded == explanation.handler:
        return sentence
    if explanation.handler is None:
        return f"{sentence}, with which the pod was admitted"
    current = _class_handler(explanation)
    return f"{sentence}, with which the pod was admitted; its class now says {current}"


def _recorded_words(explanation: Explanation, recorded: str | None) -> str:
    if recorded is None:
        return _class_handler(explanation)
    return recorded or _DEFAULT_HANDLER


def _class_handler(explanation: Explanation) -> str:
    if explanation.handler is None:
        return "unknown, since the class does not exist"
    return explanation.handler or _DEFAULT_HANDLER


def _node_answers(explanation: Explanation) -> Iterator[NodeAnswer]:
    for verdict in explanation.nodes:
        reasons = tuple(
            "; ".join(objection.reasons) + (f" ({objection.detail})" if objection.detail else "")
            for objection in verdict.objections
        )
        yield NodeAnswer(verdict.node_name, verdict.is_suitable, reasons)


def _container_words(pod: Pod) -> Iterator[str]:
    for status in _statuses(pod):
        restarts = f", {counted(status.restart_count, 'restart')}" if status.restart_count else ""
        yield f"{status.name}: {state_words(status)}{restarts}"


def _statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    return (*pod.status.init_container_statuses, *pod.status.container_statuses)


def _is_stuck(status: ContainerStatus) -> bool:
    """Return whether the container waits for a correction by the user."""
    waiting = status.state.waiting
    return waiting is not None and waiting.reason in _REMEDIES_OF_WAITING


def state_words(status: ContainerStatus) -> str:
    """Return the words for the state of a container."""
    state = status.state
    if state.running is not None:
        return "running" if status.ready else "running, not ready"
    if state.terminated is not None:
        return _ending_words(state.terminated)
    if state.waiting is not None:
        last = status.last_state.terminated
        message = f": {state.waiting.message}" if state.waiting.message else ""
        ended = f"; it {_ending_words(last)}" if last is not None else ""
        return f"waits ({state.waiting.reason}){message}{ended}"
    return "unknown"


def _ending_words(ended: ContainerStateTerminated) -> str:
    message = f": {ended.message}" if ended.message else ""
    return f"ended with {ended.exit_code} ({ended.reason}){message}"


def _moment(event: Event) -> str:
    return event.last_timestamp or event.event_time or event.metadata.creation_timestamp or ""


def in_order(events: Iterable[Event]) -> list[Event]:
    """Return events by the time at which they happened last."""
    return sorted(events, key=_moment)


def event_words(event: Event, now: datetime) -> str:
    """Return an event in one line, with its age in seconds."""
    moment = _moment(event)
    # An event may be younger than now where clocks differ.
    past_s = max((now - parse_time(moment)).total_seconds(), 0.0) if moment else 0.0
    ago = f"{past_s:.0f} s ago" if moment else "time unknown"
    times = f", {event.count} times" if event.count > 1 else ""
    return f"{event.type} {event.reason} ({ago}{times}): {event.message}"


def remedies_of(pod: Pod, explanation: Explanation, local: Iterable[Handler]) -> Iterator[str]:
    """Yield what can be done for a pod."""
    if pod.spec.node_name:
        yield from _remedies_of_containers(pod)
        return
    if explanation.blocked_by is not None:
        yield explanation.blocked_by.remedy
        return
    by_name = {handler.handler: handler for handler in local}
    handler = by_name.get(explanation.handler or "")
    if handler is not None and not handler.available:
        yield f"on this machine, {handler.reason}: {handler.remedy}"
    for verdict in explanation.nodes:
        for objection in verdict.objections:
            yield objection.remedy


def _remedies_of_containers(pod: Pod) -> Iterator[str]:
    for status in _statuses(pod):
        waiting, last = status.state.waiting, status.last_state.terminated
        if waiting is None or waiting.reason not in _REMEDIES_OF_WAITING:
            continue
        if last is not None and last.reason == "StartError":
            yield _START_ERROR
            continue
        meta = pod.metadata
        yield _REMEDIES_OF_WAITING[waiting.reason].format(
            namespace=meta.namespace, pod=meta.name, name=status.name
        )
