"""Informers of the scheduler, its own or shared with the controllers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec
from msgspec.structs import force_setattr

from moorage.api.clock import Clock
from moorage.api.containers import Container
from moorage.api.disruptions import PodDisruptionBudget
from moorage.api.meta import ObjectMeta, OwnerReference
from moorage.api.names import Namespace
from moorage.api.nodes import Node, NodeRuntimeHandler, NodeSpec, NodeStatus
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.api.pods import Pod, PodCondition, PodSpec, PodStatus
from moorage.api.remembered import remembered
from moorage.api.runtime_group import RuntimeClass
from moorage.api.volumes import EphemeralVolumeSource, Volume
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import (
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RUNTIME_CLASSES,
    STORAGE_CLASSES,
    Resource,
)
from moorage.wire.client.rest import Client

# Trimmed pods and nodes: only the fields the scheduler reads, equal values shared.
#
# A cluster has many pods of few templates, and the scheduler holds all of them. Decoding drops
# annotations, most volumes, environments, probes, container statuses, node conditions and the
# like. A typical pod then takes some 1.2 kB instead of 4.7 kB.

T = TypeVar("T")

_REMEMBERED = 4096
_OWNERS = tuple[OwnerReference, ...]
_HANDLERS = tuple[NodeRuntimeHandler, ...]
_READ_CONDITIONS = frozenset({"PodScheduled", "DisruptionTarget"})


class TrimmedPod(Pod, frozen=True):
    """A pod that drops the fields scheduling does not read when it is decoded."""

    def __post_init__(self) -> None:
        force_setattr(self, "metadata", _metadata(self.metadata))
        force_setattr(self, "spec", _spec(self.spec))
        force_setattr(self, "status", _status(self.status))


class TrimmedNode(Node, frozen=True):
    """A node that drops the fields scheduling does not read when it is decoded."""

    def __post_init__(self) -> None:
        meta, spec, status = self.metadata, self.spec, self.status
        force_setattr(
            self,
            "metadata",
            ObjectMeta(name=meta.name, resource_version=meta.resource_version, labels=meta.labels),
        )
        force_setattr(self, "spec", NodeSpec(unschedulable=spec.unschedulable, taints=spec.taints))
        force_setattr(
            self,
            "status",
            NodeStatus(
                allocatable=_shared(dict[str, str], status.allocatable),
                images=status.images,
                runtime_handlers=_shared(_HANDLERS, status.runtime_handlers),
            ),
        )


TRIMMED_PODS: Resource[Pod] = replace(PODS, type=TrimmedPod)
TRIMMED_NODES: Resource[Node] = replace(NODES, type=TrimmedNode)


def _metadata(meta: ObjectMeta) -> ObjectMeta:
    return ObjectMeta(
        name=meta.name,
        namespace=sys.intern(meta.namespace),
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        deletion_timestamp=meta.deletion_timestamp,
        labels=_shared(dict[str, str], meta.labels),
        owner_references=_shared(
            _OWNERS, tuple(reference for reference in meta.owner_references if reference.controller)
        ),
    )


def _spec(spec: PodSpec) -> PodSpec:
    return msgspec.structs.replace(
        _shared(
            PodSpec,
            PodSpec(
                volumes=tuple(_volumes(spec.volumes)),
                init_containers=tuple(map(_container, spec.init_containers)),
                containers=tuple(map(_container, spec.containers)),
                node_selector=spec.node_selector,
                affinity=spec.affinity,
                scheduler_name=spec.scheduler_name,
                tolerations=spec.tolerations,
                priority=spec.priority,
                runtime_class_name=spec.runtime_class_name,
                preemption_policy=spec.preemption_policy,
                overhead=spec.overhead,
                topology_spread_constraints=spec.topology_spread_constraints,
                scheduling_gates=spec.scheduling_gates,
                resources=spec.resources,
            ),
        ),
        node_name=sys.intern(spec.node_name),
    )


def _volumes(volumes: tuple[Volume, ...]) -> Iterator[Volume]:
    """Yield the volumes with images, which score a node, and those with claims, which filter."""
    for volume in volumes:
        if volume.image is not None:
            yield Volume(name=volume.name, image=volume.image)
        elif volume.persistent_volume_claim is not None:
            yield Volume(name=volume.name, persistent_volume_claim=volume.persistent_volume_claim)
        elif volume.ephemeral is not None:
            yield Volume(name=volume.name, ephemeral=EphemeralVolumeSource())


def _container(container: Container) -> Container:
    return Container(
        name=container.name,
        image=container.image,
        resources=container.resources,
        ports=container.ports,
        restart_policy=container.restart_policy,
    )


def _status(status: PodStatus) -> PodStatus:
    return PodStatus(
        phase=sys.intern(status.phase),
        conditions=tuple(
            _condition(condition.type, condition.status, condition.reason, condition.message)
            for condition in status.conditions
            if condition.type in _READ_CONDITIONS
        ),
        nominated_node_name=status.nominated_node_name,
        start_time=status.start_time,
    )


@remembered(_REMEMBERED)
def _condition(kind: str, status: str, reason: str, message: str) -> PodCondition:
    return PodCondition(type=kind, status=status, reason=reason, message=message)


def _shared(kind: Any, value: T) -> T:
    """Return an equal value; equal values share one object."""
    decoded: T = _decoded(kind, msgspec.msgpack.encode(value))
    return decoded


@remembered(_REMEMBERED)
def _decoded(kind: Any, encoded: bytes) -> Any:
    return msgspec.msgpack.decode(encoded, type=kind)


_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, slots=True)
class SchedulerInformers:
    """Informers of whole collections, all namespaces included. The creator runs them.

    Ended pods may be included or not: the scheduler ignores them. The trimmed resources of
    `trimming` for pods and nodes save most of the memory.
    """

    pods: Informer[Pod]
    nodes: Informer[Node]
    runtime_classes: Informer[RuntimeClass]
    namespaces: Informer[Namespace]
    disruption_budgets: Informer[PodDisruptionBudget]
    claims: Informer[PersistentVolumeClaim]
    volumes: Informer[PersistentVolume]
    storage_classes: Informer[StorageClass]

    @classmethod
    def of(cls, client: Client, clock: Clock) -> SchedulerInformers:
        """Create informers for one scheduler, not yet running."""
        return cls(
            pods=Informer(client, TRIMMED_PODS, field_selector=_NOT_ENDED, clock=clock),
            nodes=Informer(client, TRIMMED_NODES, clock=clock),
            runtime_classes=Informer(client, RUNTIME_CLASSES, clock=clock),
            namespaces=Informer(client, NAMESPACES, clock=clock),
            disruption_budgets=Informer(client, POD_DISRUPTION_BUDGETS, clock=clock),
            claims=Informer(client, PERSISTENT_VOLUME_CLAIMS, clock=clock),
            volumes=Informer(client, PERSISTENT_VOLUMES, clock=clock),
            storage_classes=Informer(client, STORAGE_CLASSES, clock=clock),
        )

    @property
    def all(self) -> tuple[Informer[Any], ...]:
        return (
            self.namespaces,
            self.runtime_classes,
            self.disruption_budgets,
            self.storage_classes,
            self.volumes,
            self.claims,
            self.nodes,
            self.pods,
        )
