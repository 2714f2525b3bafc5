"""Copies that the controllers of runtimes keep of a cluster's objects, where they run alone.

Beside another controller manager nothing else reads these copies, so that of 100,000 pods a few
hundred bytes each stay: class, node, owner, phase, readiness. Templates keep their class alone.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from sys import intern
from typing import Any, cast

from msgspec.structs import replace

from moorage.api.meta import ObjectMeta, OwnerReference, Raw
from moorage.api.pods import PodCondition
from moorage.api.runtime_group import GROUP
from moorage.controllers.objects import (
    ContainerStatus,
    Node,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    RuntimeHandler,
)

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MOST_SHARED = 1000
_CONDITIONS = ("Ready", "PodScheduled")


def _kept_pod(pod: Pod) -> Pod:
    """Return the fields of a pod that are read: without a class its identity and phase."""
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


class _SharedLabels:
    """Labels of handlers and features, hundreds a node, kept once for all nodes with the same."""

    def __init__(self) -> None:
        self._kept: dict[frozenset[tuple[str, str]], dict[str, str]] = {}

    def share(self, labels: Mapping[str, str]) -> Mapping[str, str]:
        """Return the same labels, of which those of our group are shared."""
        ours = frozenset(label for label in labels.items() if GROUP in label[0])
        if ours not in self._kept and len(self._kept) >= _MOST_SHARED:
            self._kept.clear()
        shared = self._kept.setdefault(ours, dict(ours))
        others = {key: value for key, value in labels.items() if GROUP not in key}
        return ChainMap(others, shared)


def _node_keeper() -> Callable[[Node], Node]:
    labels = _SharedLabels()

    def kept(node: Node) -> Node:
        meta = node.metadata
        metadata = ObjectMeta(
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
            creation_timestamp=meta.creation_timestamp,
            labels=cast(dict[str, str], labels.share(meta.labels)),
        )
        conditions = tuple(one for one in node.status.conditions if one.type == "Ready")
        handlers = tuple(
            RuntimeHandler(name=intern(handler.name)) for handler in node.status.runtime_handlers
        )
        status = NodeStatus(conditions=conditions, runtime_handlers=handlers)
        return Node(metadata=metadata, status=status)

    return kept


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


def kept_copies() -> Mapping[str, Callable[[Any], Any]]:
    """Return the plural of each resource that the controllers read → what is kept of an object."""
    return {**_KEPT, "nodes": _node_keeper()}


_KEPT: Mapping[str, Callable[[Any], Any]] = {
    "pods": _kept_pod,
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
