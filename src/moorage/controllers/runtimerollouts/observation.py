"""Observation of the cluster for a rollout: workloads, their pods, and what cannot be moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from moorage.api.clock import parse_time
from moorage.api.jobs import CronJob, Job
from moorage.api.labels import EVERYTHING, Selector, from_object
from moorage.api.meta import ObjectMeta, Raw
from moorage.api.names import Namespace
from moorage.api.runtime_group import RuntimeClass
from moorage.api.runtime_rollouts import (
    MOVED_AT_ANNOTATION,
    MOVED_FROM_ANNOTATION,
    ROLLOUT_ANNOTATION,
    ROLLOUT_UID_ANNOTATION,
    WAVE_ANNOTATION,
    RuntimeRollout,
)
from moorage.api.workloads import DaemonSet, Deployment, ReplicaSet, StatefulSet
from moorage.controllers.informers import OWNER, RUNTIME_CLASS, Informers
from moorage.controllers.objects import Node, Pod
from moorage.controllers.ownership import controller_of
from moorage.controllers.pods import is_active, ready_since
from moorage.runtimeclass.rollouts import (
    Mark,
    Moved,
    NodeFacts,
    PodFacts,
    Unmovable,
    Workload,
    record_of,
)
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    STATEFUL_SETS,
    Resource,
)

# Progress of one workload, read from its status: settled, held, or failed.
#
# Each kind says differently that pods have a new template. What replaces no pods by itself (paused
# Deployments, OnDelete) is held: the template changes, and its owner decides when pods follow. That
# is known before the move (`moved_at` is None), so that such workloads do not go first.

_ON_DELETE = "OnDelete"
_LATE = "ProgressDeadlineExceeded"


class Progress(msgspec.Struct, frozen=True):
    """The fields of a `Workload` that differ by kind."""

    size: int
    is_settled: bool
    hold: str = ""
    fault: str = ""
    note: str = ""


def of_deployment(deployment: Deployment, moved_at: datetime | None) -> Progress:
    """Return how far a Deployment's pods have its template."""
    spec, status = deployment.spec, deployment.status
    size = 1 if spec.replicas is None else spec.replicas
    is_seen = status.observed_generation >= deployment.metadata.generation
    is_old = moved_at is None or not is_seen or status.updated_replicas < size
    if spec.paused and size and is_old:
        return Progress(size, True, hold="the Deployment is paused: resume it to replace its pods")
    is_settled = (
        is_seen
        and status.updated_replicas == status.replicas == size
        and status.available_replicas >= size
    )
    fault = note = ""
    for condition in status.conditions:
        if condition.type == "ReplicaFailure" and condition.status == "True":
            note = condition.message
        is_late = condition.type == "Progressing" and condition.reason == _LATE
        if is_late and is_seen and moved_at is not None:
            since = condition.last_update_time or condition.last_transition_time
            if since is not None and parse_time(since) >= moved_at:
                fault = condition.message
    return Progress(size, is_settled, fault=fault, note=note)


def of_stateful_set(stateful_set: StatefulSet, moved_at: datetime | None) -> Progress:
    """Return how far a StatefulSet's pods have its template."""
    spec, status = stateful_set.spec, stateful_set.status
    size = 1 if spec.replicas is None else spec.replicas
    is_seen = status.observed_generation >= stateful_set.metadata.generation
    if spec.update_strategy.type == _ON_DELETE:
        return _on_delete(size, moved_at is not None and is_seen, status.updated_replicas)
    rolling = spec.update_strategy.rolling_update
    partition = (rolling.partition or 0) if rolling is not None else 0
    replaced = max(0, size - max(0, partition - spec.ordinals.start))
    is_settled = (
        is_seen and status.updated_replicas >= replaced and status.available_replicas >= size
    )
    hold = ""
    if replaced < size and (moved_at is None or status.updated_replicas < size):
        hold = f"updateStrategy.rollingUpdate.partition keeps {size - replaced} pods: lower it"
    return Progress(size, is_settled, hold=hold)


def of_daemon_set(daemon_set: DaemonSet, moved_at: datetime | None) -> Progress:
    """Return how far a DaemonSet's pods have its template."""
    status = daemon_set.status
    size = status.desired_number_scheduled
    is_seen = status.observed_generation >= daemon_set.metadata.generation
    if daemon_set.spec.update_strategy.type == _ON_DELETE:
        is_seen = moved_at is not None and is_seen
        return _on_delete(size, is_seen, status.updated_number_scheduled)
    is_settled = (
        is_seen and status.updated_number_scheduled >= size and status.number_available >= size
    )
    return Progress(size, is_settled)


def of_cron_job(jobs: Iterable[Job], moved_at: datetime | None) -> Progress:
    """Return the state of a CronJob: settled at once, failed if its latest Job since has failed."""
    if moved_at is None:
        return Progress(0, True)
    latest = max(
        (job for job in jobs if _created(job) >= moved_at and job.status.finished is not None),
        key=_created,
        default=None,
    )
    failure = latest.status.condition("Failed") if latest is not None else None
    if latest is None or failure is None:
        return Progress(0, True)
    return Progress(0, True, fault=f"Job {latest.metadata.name} failed: {failure.message}")


def _created(job: Job) -> datetime:
    return parse_time(job.metadata.creation_timestamp or "1970-01-01T00:00:00Z")


def _on_delete(size: int, is_seen: bool, updated: int) -> Progress:
    if not is_seen or updated < size:
        hold = "updateStrategy is OnDelete: delete its pods to replace them"
        return Progress(size, True, hold=hold)
    return Progress(size, True)


WORKLOADS: dict[str, Resource[Any]] = {
    resource.kind: resource for resource in (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, CRON_JOBS)
}
"""Kinds that a rollout moves."""

AnyWorkload = Deployment | StatefulSet | DaemonSet | CronJob


@dataclass(frozen=True)
class Sources:
    """The informers that a rollout reads; `pods` has the indexes OWNER and RUNTIME_CLASS."""

    deployments: Informer[Deployment]
    stateful_sets: Informer[StatefulSet]
    daemon_sets: Informer[DaemonSet]
    cron_jobs: Informer[CronJob]
    jobs: Informer[Job]
    replica_sets: Informer[ReplicaSet]
    replication_controllers: Informer[ReplicaSet]
    pods: Informer[Pod]
    nodes: Informer[Node]
    namespaces: Informer[Namespace]
    runtime_classes: Informer[RuntimeClass]

    @classmethod
    def of(cls, informers: Informers) -> Sources:
        """Take them from the shared informers."""
        return cls(**{name: getattr(informers, name) for name in cls.__dataclass_fields__})

    @property
    def workloads(self) -> dict[str, Informer[Any]]:
        """Return the informer of each kind that a rollout moves."""
        return {
            DEPLOYMENTS.kind: self.deployments,
            STATEFUL_SETS.kind: self.stateful_sets,
            DAEMON_SETS.kind: self.daemon_sets,
            CRON_JOBS.kind: self.cron_jobs,
        }

    @property
    def all(self) -> list[Informer[Any]]:
        """Return all of them."""
        return [getattr(self, name) for name in self.__dataclass_fields__]


Current = Callable[[AnyWorkload], AnyWorkload]
Refusal = Callable[[str], str]


def class_of(workload: AnyWorkload | Job | ReplicaSet) -> str:
    """Return the class of a workload's template, `""` without one."""
    template: Raw = (
        workload.spec.job_template.spec.get("template") or {}
        if isinstance(workload, CronJob)
        else workload.spec.template
    )
    name = (template.get("spec") or {}).get("runtimeClassName")
    return name if isinstance(name, str) else ""


def mark_of(meta: ObjectMeta) -> Mark | None:
    """Return the mark of the last move, None without one or if it is damaged."""
    notes = meta.annotations
    if ROLLOUT_ANNOTATION not in notes:
        return None
    try:
        return Mark(
            notes[ROLLOUT_ANNOTATION],
            notes[ROLLOUT_UID_ANNOTATION],
            notes[MOVED_FROM_ANNOTATION],
            parse_time(notes[MOVED_AT_ANNOTATION]),
            int(notes[WAVE_ANNOTATION]),
        )
    except (KeyError, ValueError):
        return None


def workloads_of(
    rollout: RuntimeRollout, sources: Sources, current: Current, refusal: Refusal
) -> list[Workload]:
    """Return the workloads of a rollout: selected ones of its class, and those that it moved.

    Which were moved is what its status says: an owner of a workload may write any annotation.

    `current` replaces an object by a newer one of our own writing; `refusal` gives the API
    server's answer to the last attempt by uid.
    """
    is_selected = _selection(rollout, sources)
    record = record_of(rollout.status.moves)
    found = []
    for kind, informer in sources.workloads.items():
        for copied in informer:
            workload = current(copied)
            meta = workload.metadata
            if meta.deletion_timestamp is not None:
                continue
            name = class_of(workload)
            moved = record.get(meta.uid)
            if moved is not None or (name == rollout.spec.from_ and is_selected(meta)):
                found.append(_workload(kind, workload, name, moved, rollout, sources, refusal))
    return found


def _workload(
    kind: str,
    workload: AnyWorkload,
    class_name: str,
    moved: Moved | None,
    rollout: RuntimeRollout,
    sources: Sources,
    refusal: Refusal,
) -> Workload:
    # A workload that was recorded, and not moved yet, is looked at as one that was not.
    moved_at = moved.at if moved is not None and class_name == rollout.spec.to else None
    progress = _progress(workload, moved_at, sources)
    meta = workload.metadata
    return Workload(
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        class_name=class_name,
        mark=mark_of(meta),
        size=progress.size,
        is_settled=progress.is_settled,
        is_on_schedule=isinstance(workload, CronJob),
        hold=progress.hold,
        fault=progress.fault,
        note=progress.note,
        refusal=refusal(meta.uid),
        pods=tuple(_pods(workload, rollout.spec.to, moved_at, sources)) if moved_at else (),
    )


def _progress(workload: AnyWorkload, moved_at: datetime | None, sources: Sources) -> Progress:
    match workload:
        case Deployment():
            return of_deployment(workload, moved_at)
        case StatefulSet():
            return of_stateful_set(workload, moved_at)
        case DaemonSet():
            return of_daemon_set(workload, moved_at)
        case CronJob():
            jobs = sources.jobs.by_index(OWNER, workload.metadata.uid)
            return of_cron_job(jobs, moved_at)


def _pods(
    workload: AnyWorkload, class_name: str, moved_at: datetime | None, sources: Sources
) -> Iterator[PodFacts]:
    """Yield the pods of a class that a workload owns, directly or by ReplicaSets or Jobs."""
    owners = [workload.metadata.uid]
    between: Informer[Any] | None = None
    if isinstance(workload, Deployment):
        between = sources.replica_sets
    elif isinstance(workload, CronJob):
        between = sources.jobs
    if between is not None:
        owners = [one.metadata.uid for one in between.by_index(OWNER, owners[0])]
    for owner in owners:
        for pod in sources.pods.by_index(OWNER, owner):
            created = parse_time(pod.metadata.creation_timestamp or "1970-01-01T00:00:00Z")
            is_new = moved_at is not None and created >= moved_at
            is_deleting = pod.metadata.deletion_timestamp is not None
            if is_new and not is_deleting and pod.spec.runtime_class_name == class_name:
                yield _pod_facts(pod, created)


def _pod_facts(pod: Pod, created: datetime) -> PodFacts:
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    scheduled = next(
        (
            condition.last_transition_time
            for condition in pod.status.conditions
            if condition.type == "PodScheduled" and condition.status == "True"
        ),
        None,
    )
    return PodFacts(
        name=pod.metadata.name,
        created=created,
        scheduled=parse_time(scheduled) if scheduled else None,
        ready_since=ready_since(pod),
        restarts=sum(one.restart_count for one in statuses) + (pod.status.phase == "Failed"),
    )


def unmovable_of(rollout: RuntimeRollout, sources: Sources) -> list[Unmovable]:
    """Return objects with pods of the old class and no template that a patch can move."""
    name = rollout.spec.from_
    is_selected = _selection(rollout, sources)
    found = []
    for job in sources.jobs:
        owner = controller_of(job.metadata)
        is_left = job.status.finished is None and (owner is None or owner.kind != CRON_JOBS.kind)
        if class_of(job) == name and is_left and is_selected(job.metadata):
            why = "a Job's template cannot be changed: its pods keep the class until it has ended"
            found.append(_unmovable("Job", job.metadata, why))
    for kind, informer in (
        ("ReplicaSet", sources.replica_sets),
        ("ReplicationController", sources.replication_controllers),
    ):
        for replica_set in informer:
            if class_of(replica_set) == name and replica_set.spec.replicas != 0:
                meta = replica_set.metadata
                if controller_of(meta) is None and is_selected(meta):
                    why = (
                        f"a {kind} does not replace its pods: use a Deployment, or create it again"
                    )
                    found.append(_unmovable(kind, meta, why))
    for pod in sources.pods.by_index(RUNTIME_CLASS, name):
        owner = controller_of(pod.metadata)
        if (owner is None or owner.kind == "Node") and is_active(pod) and is_selected(pod.metadata):
            why = "a pod's class cannot be changed, and no workload owns it: create it again"
            if owner is not None:
                why = f"a static pod of node {owner.name}: change its file there"
            found.append(_unmovable("Pod", pod.metadata, why))
    return sorted(found, key=lambda one: (one.kind, one.namespace, one.name))


def _unmovable(kind: str, meta: ObjectMeta, why: str) -> Unmovable:
    return Unmovable(kind, meta.namespace, meta.name, why)


def _selection(rollout: RuntimeRollout, sources: Sources) -> Callable[[ObjectMeta], bool]:
    """Return whether the selectors match an object; nothing is selected by a faulty selector."""
    spec = rollout.spec
    try:
        namespaces = _selector(spec.namespace_selector)
        labels = _selector(spec.workload_selector)
    except ValueError:
        return lambda _: False

    def is_selected(meta: ObjectMeta) -> bool:
        namespace = sources.namespaces.get(meta.namespace)
        return (
            namespace is not None
            and namespace.metadata.deletion_timestamp is None
            and namespaces.matches(namespace.metadata.labels)
            and labels.matches(meta.labels)
        )

    return is_selected


def _selector(selector: Raw | None) -> Selector:
    return EVERYTHING if selector is None else from_object(selector)


def nodes_of(sources: Sources) -> list[NodeFacts]:
    """Return the nodes with the handlers that they report."""
    return [
        NodeFacts(
            node.metadata.name,
            node.metadata.labels,
            frozenset(handler.name for handler in node.status.runtime_handlers) or None,
        )
        for node in sources.nodes
    ]
