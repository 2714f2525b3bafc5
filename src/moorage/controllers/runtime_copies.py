"""Copies that the controllers of runtimes keep of a cluster's objects, where they run alone.

Beside another controller manager nothing else reads these copies, so that of 100,000 pods a few
hundred bytes each stay: class, node, owner, phase, readiness. Templates keep their class alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sys import intern
from typing import Any

from msgspec.structs import replace

from moorage.api.meta import ObjectMeta, OwnerReference, Raw
from moorage.api.pods import PodCondition
from moorage.controllers.objects import ContainerStatus, Node, NodeStatus, Pod, PodSpec, PodStatus

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_CONDITIONS = ("Ready", "PodScheduled")


def _kept_pod(pod: Pod) -> Pod:
    """Return what is read of a pod: of one without a class its identity and phase."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    phase = intern(status.phase)
    if not spec.runtime_class_name:
        metadata = ObjectMeta(
            name=meta.name,
            namespace=intern(meta.namespace),
            uid=meta.uid,
            resource_version=meta.resource_version,
        )
        return Pod(metadata=metadata, status=PodStatus(phase=phase))
    restarts = sum(
        one.restart_count for one in (*status.init_container_statuses, *status.container_statuses)
    )
    return Pod(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=intern(meta.namespace),
            uid=meta.uid,
            resource_version=meta.resource_version,
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=meta.deletion_timestamp,
            # A rollout selects pods that no workload owns by their labels.
            labels={} if meta.owner_references else meta.labels,
            owner_references=tuple(map(_kept_owner, meta.owner_references)),
        ),
        spec=PodSpec(
            node_name=intern(spec.node_name), runtime_class_name=intern(spec.runtime_class_name)
        ),
        status=PodStatus(
            phase=phase,
            conditions=tuple(
                PodCondition(
                    type=intern(one.type),
                    status=intern(one.status),
                    last_transition_time=one.last_transition_time,
                )
                for one in status.conditions
                if one.type in _CONDITIONS
            ),
            container_statuses=(ContainerStatus(restart_count=restarts),) if restarts else (),
        ),
    )


def _kept_owner(owner: OwnerReference) -> OwnerReference:
    return OwnerReference(
        kind=intern(owner.kind),
        name=intern(owner.name),
        uid=intern(owner.uid),
        controller=owner.controller,
    )


def _kept_node(node: Node) -> Node:
    """Return a node without what its labels' index has: the conditions that are read stay."""
    conditions = tuple(one for one in node.status.conditions if one.type == "Ready")
    status = NodeStatus(conditions=conditions, runtime_handlers=node.status.runtime_handlers)
    return replace(node, metadata=_kept_metadata(node.metadata), status=status)


def _kept_workload(workload: Any) -> Any:
    spec = replace(workload.spec, template=_kept_template(workload.spec.template))
    return replace(workload, metadata=_kept_metadata(workload.metadata), spec=spec)


def _kept_cron_job(cron_job: Any) -> Any:
    job = cron_job.spec.job_template
    template = _kept_template(job.spec.get("template") or {})
    job_template = replace(job, spec={"template": template})
    spec = replace(cron_job.spec, job_template=job_template)
    return replace(cron_job, metadata=_kept_metadata(cron_job.metadata), spec=spec)


def _kept_template(template: Raw) -> Raw:
    name = (template.get("spec") or {}).get("runtimeClassName")
    return {"spec": {"runtimeClassName": name}} if name else {}


def _kept_metadata(meta: ObjectMeta) -> ObjectMeta:
    if _LAST_APPLIED not in meta.annotations:
        return meta
    kept = {key: value for key, value in meta.annotations.items() if key != _LAST_APPLIED}
    return replace(meta, annotations=kept)


KEPT: Mapping[str, Callable[[Any], Any]] = {
    "pods": _kept_pod,
    "nodes": _kept_node,
    "replicasets": _kept_workload,
    "replicationcontrollers": _kept_workload,
    "deployments": _kept_workload,
    "statefulsets": _kept_workload,
    "daemonsets": _kept_workload,
    "jobs": _kept_workload,
    "cronjobs": _kept_cron_job,
    "namespaces": lambda namespace: namespace,
    "runtimeclasses": lambda runtime_class: runtime_class,
}
"""Plural of each resource that the controllers of runtimes read → what is kept of an object."""
