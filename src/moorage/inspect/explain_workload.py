"""Explanation of a workload for `moor explain KIND/NAME`: what stops it, its pods by reason.

Reads the workload, its pods by their owners, and the events of both from the API, so it works on
any Kubernetes. Pods in the same state are one group, whatever their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from moorage.api.conditions import is_ready
from moorage.api.errors import NotFoundError
from moorage.api.events import Event
from moorage.api.jobs import CronJob, Job
from moorage.api.pods import ENDED_PHASES, Pod
from moorage.api.workloads import DaemonSet, Deployment, ReplicaSet, StatefulSet
from moorage.engine.handlers import Handler
from moorage.inspect.explain import NodeAnswer, event_words, explain_pod, in_order
from moorage.inspect.pod_findings import Finding, choice_words, exit_words, findings_of, last_end
from moorage.runtimeclass.start_phases import (
    duration_words,
    length_words,
    percentile,
    phases_of,
    second_words,
)
from moorage.wire.client.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)
from moorage.wire.client.rest import Client

_MOST_EVENTS = 10
_NAMES_SHOWN = 3

WORKLOADS: Mapping[str, Resource[Any]] = {
    **dict.fromkeys(("deployment", "deployments", "deploy"), DEPLOYMENTS),
    **dict.fromkeys(("replicaset", "replicasets", "rs"), REPLICA_SETS),
    **dict.fromkeys(
        ("replicationcontroller", "replicationcontrollers", "rc"), REPLICATION_CONTROLLERS
    ),
    **dict.fromkeys(("statefulset", "statefulsets", "sts"), STATEFUL_SETS),
    **dict.fromkeys(("daemonset", "daemonsets", "ds"), DAEMON_SETS),
    **dict.fromkeys(("job", "jobs"), JOBS),
    **dict.fromkeys(("cronjob", "cronjobs", "cj"), CRON_JOBS),
}
"""Workloads by the names that kubectl takes for their kinds."""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods in the same state: how many, the names of the first ones, what was found about them."""

    state: str
    count: int
    names: tuple[str, ...]
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkloadExplanation:
    """All that `moor explain` prints of a workload. `verdict` is the summary in one sentence.

    `nodes` are the objections of the nodes to the first pod without one; empty if there is none.
    """

    workload: str
    verdict: str
    runtime_class: str
    choice: str
    obstacles: tuple[str, ...]
    groups: tuple[PodGroup, ...]
    start: str
    events: tuple[str, ...]
    remedies: tuple[str, ...]
    nodes: tuple[NodeAnswer, ...] = ()


async def explain_workload(
    client: Client,
    resource: Resource[Any],
    namespace: str,
    name: str,
    *,
    filters_by_handler: bool,
    now: datetime,
    local_handlers: Iterable[Handler] = (),
) -> WorkloadExplanation:
    """Explain the state of a workload of a kind in `WORKLOADS`, and of its pods.

    Of the pods without a node, one is explained as `explain_pod` does, with these handlers.

    Raises NotFoundError if there is no such workload, UnreachableError without an API server.
    """
    workload = await client.get(resource, name, namespace)
    owners = [workload]
    between = _BETWEEN.get(resource.kind)
    if between is not None:
        owners = _owned(await client.list(between, namespace), {workload.metadata.uid})
    uids = {owner.metadata.uid for owner in owners}
    pods = _owned(await client.list(PODS, namespace), uids)
    events = (await client.list(EVENTS, namespace)).items
    answer = explained(resource.kind, workload, owners, pods, events, now)
    unplaced = next((pod for pod in pods if _is_unplaced(pod)), None)
    if unplaced is None:
        return answer
    try:
        pod = await explain_pod(
            client,
            namespace,
            unplaced.metadata.name,
            filters_by_handler=filters_by_handler,
            now=now,
            local_handlers=local_handlers,
        )
    except NotFoundError:
        # It was deleted since the list.
        return answer
    remedies = tuple(dict.fromkeys((*answer.remedies, *pod.remedies)))
    return replace(answer, nodes=pod.nodes, remedies=remedies)


# Kind → kind of the objects between a workload and its pods.
_BETWEEN: Mapping[str, Resource[Any]] = {"Deployment": REPLICA_SETS, "CronJob": JOBS}


def _owned(answer: Any, uids: set[str]) -> list[Any]:
    return [
        item
        for item in answer.items
        if any(owner.uid in uids and owner.controller for owner in item.metadata.owner_references)
    ]


def explained(
    kind: str,
    workload: Any,
    owners: Sequence[Any],
    pods: Sequence[Pod],
    events: Sequence[Event],
    now: datetime,
) -> WorkloadExplanation:
    """Return the explanation of a workload.

    Pure. `owners` are the objects that own its pods: ReplicaSets, Jobs, or the workload itself;
    `events` are those of the namespace.
    """
    by_uid: dict[str, list[Event]] = {}
    for event in in_order(events):
        by_uid.setdefault(event.involved_object.uid, []).append(event)
    template = _template(kind, workload)
    meta = workload.metadata
    grouped = list(_groups(pods, by_uid))
    own = [
        event
        for owner in {meta.uid: workload, **{owner.metadata.uid: owner for owner in owners}}
        for event in by_uid.get(owner, ())
    ]
    obstacles = tuple(dict.fromkeys(_obstacles(kind, workload, owners, own)))
    latest = in_order(own)[-_MOST_EVENTS:]
    return WorkloadExplanation(
        workload=f"{kind.lower()} {meta.namespace}/{meta.name}",
        verdict=_VERDICTS[kind](workload, pods),
        runtime_class=_class_words(template, pods),
        choice=_choice(template, pods),
        obstacles=obstacles,
        groups=tuple(group for group, _ in grouped),
        start=_start(pods),
        events=tuple(event_words(event, now) for event in latest),
        remedies=tuple(dict.fromkeys(remedy for _, remedies in grouped for remedy in remedies)),
    )


# Verdicts


def _deployment(workload: Deployment, pods: Sequence[Pod]) -> str:
    del pods
    spec, status = workload.spec, workload.status
    wanted = 1 if spec.replicas is None else spec.replicas
    words = f"{status.ready_replicas} of {wanted} replicas are ready"
    if status.updated_replicas < wanted:
        words += f", {status.updated_replicas} have the latest template"
    return f"{words}; it is paused" if spec.paused else words


def _replica_set(workload: ReplicaSet, pods: Sequence[Pod]) -> str:
    del pods
    wanted = 1 if workload.spec.replicas is None else workload.spec.replicas
    return f"{workload.status.ready_replicas} of {wanted} replicas are ready"


def _stateful_set(workload: StatefulSet, pods: Sequence[Pod]) -> str:
    wanted = 1 if workload.spec.replicas is None else workload.spec.replicas
    words = f"{workload.status.ready_replicas} of {wanted} replicas are ready"
    unready = [pod for pod in pods if not is_ready(pod.status.conditions)]
    if unready and len(pods) < wanted and workload.spec.pod_management_policy != "Parallel":
        words += f"; the next ones wait for {min(pod.metadata.name for pod in unready)}"
    return words


def _daemon_set(workload: DaemonSet, pods: Sequence[Pod]) -> str:
    del pods
    status = workload.status
    if not status.desired_number_scheduled:
        return "no node is eligible for its pods"
    words = f"{status.number_ready} of {status.desired_number_scheduled} nodes have a ready pod"
    if status.number_misscheduled:
        words += f", {status.number_misscheduled} have one that they should not have"
    return words


def _job(workload: Job, pods: Sequence[Pod]) -> str:
    del pods
    status = workload.status
    counts = f"{status.active} active, {status.succeeded} succeeded, {status.failed} failed"
    finished = status.finished
    if finished is not None:
        words = "is complete" if finished.type == "Complete" else f"has failed ({finished.reason})"
        return f"{words}: {counts}"
    return f"is suspended: {counts}" if workload.spec.suspend else f"goes on: {counts}"


def _cron_job(workload: CronJob, pods: Sequence[Pod]) -> str:
    del pods
    status = workload.status
    last = status.last_schedule_time or "never"
    succeeded = status.last_successful_time or "never"
    words = f"last scheduled {last}, last succeeded {succeeded}, {len(status.active)} active"
    return f"is suspended: {words}" if workload.spec.suspend else words


_VERDICTS: Mapping[str, Callable[[Any, Sequence[Pod]], str]] = {
    "Deployment": _deployment,
    "ReplicaSet": _replica_set,
    "ReplicationController": _replica_set,
    "StatefulSet": _stateful_set,
    "DaemonSet": _daemon_set,
    "Job": _job,
    "CronJob": _cron_job,
}


# What stops it

_FAILURES = frozenset({"ReplicaFailure", "Failed", "FailureTarget"})


def _obstacles(
    kind: str, workload: Any, owners: Sequence[Any], events: Iterable[Event]
) -> Iterator[str]:
    """Yield why the workload does not create pods, or has given up.

    A ReplicaSet's failure no longer counts when it has all pods that it wants, such as none
    after an undo.
    """
    owners = [owner for owner in owners if not _has_all(owner)]
    failing = {owner.metadata.uid for owner in (workload, *owners)}
    for owner in (workload, *owners):
        for condition in _conditions(owner):
            type_, reason = condition.get("type", ""), condition.get("reason", "")
            is_true = condition.get("status") == "True"
            is_stuck = type_ == "Progressing" and condition.get("status") == "False"
            if is_stuck or (is_true and type_ in _FAILURES):
                yield f"{type_} ({reason}): {condition.get('message', '')}"
    if kind == "DaemonSet" and not workload.status.desired_number_scheduled:
        yield "no node matches the template's nodeSelector, affinity, class and tolerations"
    failures = [
        event
        for event in events
        if event.reason == "FailedCreate" and event.involved_object.uid in failing
    ]
    if failures:
        yield f"FailedCreate: {failures[-1].message}"


def _has_all(owner: Any) -> bool:
    if not isinstance(owner, ReplicaSet):
        return False
    wanted = owner.spec.replicas
    return owner.status.replicas >= (1 if wanted is None else wanted)


def _conditions(owner: Any) -> Iterator[dict[str, Any]]:
    for condition in getattr(owner.status, "conditions", ()):
        if isinstance(condition, dict):
            yield condition
        else:
            yield {
                field: getattr(condition, field)
                for field in ("type", "status", "reason", "message")
            }


# Pods


def _groups(
    pods: Iterable[Pod], events: Mapping[str, Sequence[Event]]
) -> Iterator[tuple[PodGroup, list[str]]]:
    """Yield the groups of pods, the largest first, each with its remedies."""
    by_state: dict[str, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        by_state.setdefault(_state(pod), []).append(pod)
    for state, members in sorted(by_state.items(), key=lambda item: -len(item[1])):
        findings: dict[str, Finding] = {}
        for pod in members:
            for finding in findings_of(pod, events.get(pod.metadata.uid, ())):
                # Of findings that differ in numbers only, one is enough.
                findings.setdefault(finding.sentence.partition(":")[0], finding)
        names = tuple(pod.metadata.name for pod in members[:_NAMES_SHOWN])
        sentences = tuple(finding.sentence for finding in findings.values())
        remedies = [finding.remedy for finding in findings.values() if finding.remedy]
        yield PodGroup(state, len(members), names, sentences), remedies


def _state(pod: Pod) -> str:
    """Return a pod's state without anything that differs between pods with the same problem."""
    if pod.metadata.deletion_timestamp:
        return "being deleted"
    if pod.status.phase in ENDED_PHASES:
        why = f" ({pod.status.reason})" if pod.status.reason else ""
        return f"{pod.status.phase.lower()}{why}"
    if not pod.spec.node_name:
        return f"no node: {_refusal(pod)}"
    if is_ready(pod.status.conditions):
        return "ready"
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = status.state.waiting
        if waiting is None or waiting.reason in ("", "PodInitializing", "ContainerCreating"):
            continue
        ended = last_end(status)
        after = f" after {exit_words(ended)}" if ended is not None else ""
        return f"container {status.name} waits ({waiting.reason}){after}"
    return "running, not ready" if pod.status.phase == "Running" else "starting"


def _is_unplaced(pod: Pod) -> bool:
    return not pod.spec.node_name and not pod.metadata.deletion_timestamp


def _refusal(pod: Pod) -> str:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message or condition.reason
    return "the scheduler has not looked at it"


def _start(pods: Iterable[Pod]) -> str:
    """Return the median and the longest start of the pods; empty if nothing is known."""
    starts = [phases for pod in pods if (phases := phases_of(pod)) is not None and phases.is_over]
    measured = [phases for phases in starts if phases.is_measured]
    if measured:
        starts = measured
    middle = percentile((phases.latency_ms for phases in starts), 0.5)
    if middle is None:
        return ""
    slowest = max(starts, key=lambda phases: phases.latency_ms)
    longest = slowest.longest_of_latency
    of = f", {longest.name} {length_words(longest)} of it" if longest is not None else ""
    words, where = (duration_words, "on the node") if measured else (second_words, "from creation")
    return (
        f"{words(middle)} (median of {len(starts)}, {where}), slowest "
        f"{words(slowest.latency_ms)}{of}"
    )


# The class


def _template(kind: str, workload: Any) -> dict[str, Any]:
    if kind == "CronJob":
        template = workload.spec.job_template.spec.get("template")
    else:
        template = workload.spec.template
    return template if isinstance(template, dict) else {}


def _class_words(template: Mapping[str, Any], pods: Iterable[Pod]) -> str:
    asked = (template.get("spec") or {}).get("runtimeClassName") or "none"
    given = sorted({pod.spec.runtime_class_name or "none" for pod in pods})
    if given and given != [asked]:
        return f"{asked} in the template; its pods have {', '.join(given)}"
    return f"{asked}: the node's default handler" if asked == "none" else asked


def _choice(template: Mapping[str, Any], pods: Iterable[Pod]) -> str:
    annotations = [(template.get("metadata") or {}).get("annotations") or {}]
    annotations += [pod.metadata.annotations for pod in pods]
    return next((words for words in map(choice_words, annotations) if words), "")
