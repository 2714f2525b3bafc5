"""Short ways to build the objects that the controllers' tests are about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from moorage.api.clock import format_time
from moorage.api.meta import ObjectMeta, OwnerReference
from moorage.api.nodes import NodeCondition, Taint
from moorage.api.pods import PodCondition
from moorage.api.workloads import (
    Deployment,
    DeploymentSpec,
    DeploymentStatus,
    DeploymentStrategy,
    ReplicaSet,
    ReplicaSetSpec,
    ReplicaSetStatus,
    RollingUpdateDeployment,
)
from moorage.controllers.deployments.revisions import DESIRED_REPLICAS, MAX_REPLICAS, REVISION
from moorage.controllers.objects import (
    ContainerStatus,
    Node,
    NodeSpec,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}
OTHER_TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "d"}]}}


def ago(seconds: float) -> str:
    return format_time(NOW - timedelta(seconds=seconds))


def owner(uid: str, *, controls: bool = True, blocks: bool = True) -> OwnerReference:
    return OwnerReference(
        api_version="apps/v1",
        kind="ReplicaSet",
        name=uid,
        uid=uid,
        controller=controls,
        block_owner_deletion=blocks,
    )


def pod(
    name: str,
    *,
    node: str = "n1",
    phase: str = "Running",
    ready_for: float | None = 3600,
    age: float = 7200,
    restarts: int = 0,
    cost: str = "",
    labels: dict[str, str] | None = None,
    owners: tuple[OwnerReference, ...] = (),
    is_deleting: bool = False,
    ip: str = "",
) -> Pod:
    """A running, ready pod by default. Durations are in seconds before NOW."""
    conditions: tuple[PodCondition, ...] = ()
    if ready_for is not None:
        conditions = (
            PodCondition(type="Ready", status="True", last_transition_time=ago(ready_for)),
        )
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=name,
            labels=labels if labels is not None else {"app": "web"},
            annotations={"controller.kubernetes.io/pod-deletion-cost": cost} if cost else {},
            creation_timestamp=ago(age),
            owner_references=owners,
            deletion_timestamp=ago(0) if is_deleting else None,
        ),
        spec=PodSpec(node_name=node),
        status=PodStatus(
            phase=phase,
            conditions=conditions,
            pod_ip=ip,
            container_statuses=(ContainerStatus(name="c", restart_count=restarts),),
        ),
    )


def replica_set(
    name: str,
    size: int = 0,
    *,
    available: int | None = None,
    template: dict[str, object] = TEMPLATE,
    revision: int = 1,
    desired: int | None = None,
    most: int | None = None,
    age: float = 100,
) -> ReplicaSet:
    """A settled set; `desired` and `most` are its size annotations."""
    available = size if available is None else available
    annotations = {REVISION: str(revision)}
    if desired is not None:
        annotations[DESIRED_REPLICAS] = str(desired)
    if most is not None:
        annotations[MAX_REPLICAS] = str(most)
    return ReplicaSet(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=name,
            generation=1,
            creation_timestamp=ago(age),
            annotations=annotations,
        ),
        spec=ReplicaSetSpec(
            replicas=size, selector={"matchLabels": {"app": "web"}}, template=template
        ),
        status=ReplicaSetStatus(
            replicas=size,
            ready_replicas=available,
            available_replicas=available,
            terminating_replicas=0,
            observed_generation=1,
        ),
    )


def deployment(
    replicas: int,
    *,
    surge: int | str = "25%",
    unavailable: int | str = "25%",
    strategy: str = "RollingUpdate",
    status: DeploymentStatus | None = None,
    deadline: int | None = 600,
    annotations: dict[str, str] | None = None,
    is_paused: bool = False,
    history: int | None = None,
) -> Deployment:
    rolling = RollingUpdateDeployment(max_surge=surge, max_unavailable=unavailable)
    return Deployment(
        metadata=ObjectMeta(
            name="web", namespace="default", uid="web", generation=1, annotations=annotations or {}
        ),
        spec=DeploymentSpec(
            replicas=replicas,
            selector={"matchLabels": {"app": "web"}},
            template=TEMPLATE,
            strategy=DeploymentStrategy(
                type=strategy, rolling_update=rolling if strategy == "RollingUpdate" else None
            ),
            progress_deadline_seconds=deadline,
            paused=is_paused,
            revision_history_limit=history,
        ),
        status=status or DeploymentStatus(),
    )


def node(
    name: str,
    ready: str | None = "True",
    *,
    taints: tuple[Taint, ...] = (),
    is_cordoned: bool = False,
    labels: dict[str, str] | None = None,
    **conditions: str,
) -> Node:
    """Further conditions by keyword: `MemoryPressure="True"`."""
    if ready is not None:
        conditions = {"Ready": ready, **conditions}
    return Node(
        metadata=ObjectMeta(name=name, uid=name, labels=labels or {}, creation_timestamp=ago(1000)),
        spec=NodeSpec(taints=taints, unschedulable=is_cordoned),
        status=NodeStatus(
            conditions=tuple(
                NodeCondition(type=type_, status=status, last_heartbeat_time=ago(60))
                for type_, status in conditions.items()
            )
        ),
    )
