"""Deployments and ReplicaSets. Templates stay raw: they are copied, never interpreted.

Source: apps/v1.
"""

from __future__ import annotations

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
