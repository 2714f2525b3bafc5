"""Informers of the scheduler, its own or shared with the controllers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moorage.api.clock import Clock
from moorage.api.disruptions import PodDisruptionBudget
from moorage.api.namespaces import Namespace
from moorage.api.nodes import Node
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.api.pods import Pod
from moorage.api.runtime_classes import RuntimeClass
from moorage.scheduler.trimming import TRIMMED_NODES, TRIMMED_PODS
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import (
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    RUNTIME_CLASSES,
    STORAGE_CLASSES,
)
from moorage.wire.client.rest import Client

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
