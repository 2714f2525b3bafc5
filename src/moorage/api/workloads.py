"""Workloads of the group apps. Templates stay raw: they are copied, never interpreted.

Source: apps/v1.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import force_setattr

from moorage.api.meta import Object, ObjectMeta, Raw


class RollingUpdateDeployment(Object, frozen=True):
    max_unavailable: int | str | None = None
    max_surge: int | str | None = None


class DeploymentStrategy(Object, frozen=True):
    type: str = ""
    rolling_update: RollingUpdateDeployment | None = None


class DeploymentSpec(Object, frozen=True):
    replicas: int | None = None
    selector: Raw | None = None
    template: Raw = {}
    strategy: DeploymentStrategy = DeploymentStrategy()
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None
    paused: bool = False
    progress_deadline_seconds: int | None = None


class DeploymentCondition(Object, frozen=True):
    type: str = ""
    status: str = ""
    last_update_time: str | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class DeploymentStatus(Object, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    terminating_replicas: int | None = None
    conditions: tuple[DeploymentCondition, ...] = ()
    collision_count: int | None = None


class Deployment(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class ReplicaSetSpec(Object, frozen=True):
    replicas: int | None = None
    min_ready_seconds: int = 0
    selector: Raw | None = None
    template: Raw = {}


class ReplicaSetCondition(Object, frozen=True):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class ReplicaSetStatus(Object, frozen=True):
    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    terminating_replicas: int | None = None
    observed_generation: int = 0
    conditions: tuple[ReplicaSetCondition, ...] = ()


class ReplicaSet(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


class ReplicationController(ReplicaSet, frozen=True):
    """A ReplicationController, decoded as the ReplicaSet that it amounts to."""

    def __post_init__(self) -> None:
        labels = self.spec.selector
        selector = None if labels is None else {"matchLabels": labels}
        force_setattr(self, "spec", msgspec.structs.replace(self.spec, selector=selector))


class RollingUpdateStatefulSet(Object, frozen=True):
    partition: int | None = None
    max_unavailable: int | str | None = None


class StatefulSetUpdateStrategy(Object, frozen=True):
    type: str = ""
    rolling_update: RollingUpdateStatefulSet | None = None


class ClaimRetentionPolicy(Object, frozen=True):
    when_deleted: str = ""
    when_scaled: str = ""


class StatefulSetOrdinals(Object, frozen=True):
    start: int = 0


class StatefulSetSpec(Object, frozen=True):
    replicas: int | None = None
    selector: Raw | None = None
    template: Raw = {}
    volume_claim_templates: tuple[Raw, ...] = ()
    service_name: str = ""
    pod_management_policy: str = ""
    update_strategy: StatefulSetUpdateStrategy = StatefulSetUpdateStrategy()
    revision_history_limit: int | None = None
    min_ready_seconds: int = 0
    persistent_volume_claim_retention_policy: ClaimRetentionPolicy = ClaimRetentionPolicy()
    ordinals: StatefulSetOrdinals = StatefulSetOrdinals()


class StatefulSetStatus(Object, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    current_replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    collision_count: int | None = None
    available_replicas: int = 0
    conditions: tuple[Raw, ...] = ()


class StatefulSet(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()


class RollingUpdateDaemonSet(Object, frozen=True):
    max_unavailable: int | str | None = None
    max_surge: int | str | None = None


class DaemonSetUpdateStrategy(Object, frozen=True):
    type: str = ""
    rolling_update: RollingUpdateDaemonSet | None = None


class DaemonSetSpec(Object, frozen=True):
    selector: Raw | None = None
    template: Raw = {}
    update_strategy: DaemonSetUpdateStrategy = DaemonSetUpdateStrategy()
    min_ready_seconds: int = 0
    revision_history_limit: int | None = None


class DaemonSetStatus(Object, frozen=True):
    current_number_scheduled: int = 0
    number_misscheduled: int = 0
    desired_number_scheduled: int = 0
    number_ready: int = 0
    observed_generation: int = 0
    updated_number_scheduled: int = 0
    number_available: int = 0
    number_unavailable: int = 0
    collision_count: int | None = None
    conditions: tuple[Raw, ...] = ()


class DaemonSet(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()


class ControllerRevision(Object, frozen=True):
    """A numbered template: `data` is the patch that restores it."""

    metadata: ObjectMeta = ObjectMeta()
    data: Raw | None = None
    revision: int = 0


class PodTemplate(Object, frozen=True):
    """A template that no controller of Kubernetes makes pods of. Source: core/v1."""

    metadata: ObjectMeta = ObjectMeta()
    template: Raw = {}
