"""The controllers against a real API server: what users see of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from moorage.api.clock import format_micro_time
from moorage.api.errors import NotFoundError
from moorage.controllers.objects import ENDPOINT_SLICES
from moorage.wire.client.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from tests.controllers.cluster import Cluster, FakeNodeAgent, running_cluster

# Each starts an API server: not for `make unit`.
pytestmark = pytest.mark.slow

SHORT = {
    "node_grace_period_s": 1.0,
    "node_startup_grace_period_s": 1.0,
    "orphan_pod_quarantine_s": 0.2,
    "node_evictions_per_s": 10.0,
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path, **SHORT) as running:
        await running.until(SERVICE_ACCOUNTS, lambda all_: len(all_) >= 4)
        yield running


def workload(name: str, replicas: int, image: str = "a") -> dict[str, Any]:
    labels = {"app": name}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": image}]},
            },
        },
    }


def condition(obj: Any, type_: str) -> Any:
    return next((condition for condition in obj.status.conditions if condition.type == type_), None)


def is_rolled_out(deployment: Any, replicas: int, revision: str) -> bool:
    status = deployment.status
    progress = condition(deployment, "Progressing")
    return (
        status.observed_generation >= deployment.metadata.generation
        and status.updated_replicas == status.available_replicas == status.replicas == replicas
        and deployment.metadata.annotations.get("deployment.kubernetes.io/revision") == revision
        and progress is not None
        and progress.reason == "NewReplicaSetAvailable"
    )


@pytest.fixture
async def cluster_without_lost_pods(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Pods may be bound to a node that has no object, for a long time."""
    async with running_cluster(tmp_path) as running:
        await running.until(SERVICE_ACCOUNTS, lambda all_: len(all_) >= 4)
        agent = asyncio.create_task(FakeNodeAgent(running, "n1").run())
        yield running
        agent.cancel()


async def test_a_deployment_rolls_forward_and_back(cluster_without_lost_pods: Cluster) -> None:
    cluster = cluster_without_lost_pods
    client = cluster.client
    await client.create(DEPLOYMENTS, workload("web", 3), "default")
    await cluster.until(DEPLOYMENTS, lambda all_: is_rolled_out(all_[0], 3, "1"))
    (first,) = (await client.list(REPLICA_SETS)).items

    def with_image(image: str) -> dict[str, Any]:
        return {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}

    await client.patch(DEPLOYMENTS, "web", with_image("b"), "default")
    await cluster.until(DEPLOYMENTS, lambda all_: is_rolled_out(all_[0], 3, "2"))
    assert len((await client.list(REPLICA_SETS)).items) == 2

    await client.patch(DEPLOYMENTS, "web", with_image("a"), "default")
    await cluster.until(DEPLOYMENTS, lambda all_: is_rolled_out(all_[0], 3, "3"))
    back = await client.get(REPLICA_SETS, first.metadata.name, "default")
    assert back.metadata.annotations["deployment.kubernetes.io/revision-history"] == "1"
    assert back.spec.replicas == 3

    events = await cluster.until(EVENTS, lambda all_: any("to 0" in obj.message for obj in all_))
    messages = {event.message for event in events if event.reason == "ScalingReplicaSet"}
    assert f"Scaled up replica set {first.metadata.name} from 0 to 3" in messages


async def test_a_replica_set_adopts_and_releases(cluster: Cluster) -> None:
    client = cluster.client
    spec = {"containers": [{"name": "c", "image": "a"}]}
    lone = {"metadata": {"name": "lone", "labels": {"app": "web"}}, "spec": spec}
    await client.create(PODS, lone, "default")
    await client.create(REPLICA_SETS, workload("web", 2), "default")
    await cluster.until(
        PODS, lambda all_: len(all_) == 2 and all(obj.metadata.owner_references for obj in all_)
    )
    await client.patch(PODS, "lone", {"metadata": {"labels": {"app": "free"}}}, "default")
    pods = await cluster.until(PODS, lambda all_: len(all_) == 3)
    await cluster.until(
        PODS, lambda all_: sum(bool(obj.metadata.owner_references) for obj in all_) == 2
    )
    assert len(pods) == 3


async def test_deletion_in_the_background_takes_dependents_along(cluster: Cluster) -> None:
    await cluster.client.create(DEPLOYMENTS, workload("web", 2), "default")
    await cluster.until(PODS, lambda all_: len(all_) == 2)
    await cluster.client.delete(DEPLOYMENTS, "web", "default")
    await cluster.until(REPLICA_SETS, lambda all_: not all_)
    await cluster.until(PODS, lambda all_: not all_)


async def test_deletion_in_the_foreground_ends_with_the_owner(cluster: Cluster) -> None:
    client = cluster.client
    await client.create(REPLICA_SETS, workload("web", 2), "default")
    pods = await cluster.until(PODS, lambda all_: len(all_) == 2)
    held = pods[0].metadata.name
    await client.patch(PODS, held, {"metadata": {"finalizers": ["a.b/c"]}}, "default")
    await client.delete(REPLICA_SETS, "web", "default", propagation_policy="Foreground")
    await cluster.until(PODS, lambda all_: [obj.metadata.name for obj in all_] == [held])
    assert len((await client.list(REPLICA_SETS)).items) == 1
    await client.patch(PODS, held, {"metadata": {"finalizers": None}}, "default")
    await cluster.until(REPLICA_SETS, lambda all_: not all_)


async def test_orphans_outlive_their_owner(cluster: Cluster) -> None:
    await cluster.client.create(REPLICA_SETS, workload("web", 2), "default")
    await cluster.until(PODS, lambda all_: len(all_) == 2)
    await cluster.client.delete(REPLICA_SETS, "web", "default", propagation_policy="Orphan")
    await cluster.until(REPLICA_SETS, lambda all_: not all_)
    pods = (await cluster.client.list(PODS)).items
    assert [pod.metadata.owner_references for pod in pods] == [(), ()]


async def test_owner_in_another_namespace_is_ignored(cluster: Cluster) -> None:
    client = cluster.client
    elsewhere = await client.create(CONFIG_MAPS, {"metadata": {"name": "o"}}, "kube-public")
    reference = {
        "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": elsewhere.metadata.uid,
    }  # fmt: skip
    child = {"metadata": {"name": "child", "ownerReferences": [reference]}}
    await client.create(CONFIG_MAPS, child, "default")
    await cluster.until(
        CONFIG_MAPS, lambda all_: "child" not in {obj.metadata.name for obj in all_}
    )
    events = await cluster.until(EVENTS, lambda all_: len(all_) > 0)
    assert [event.reason for event in events] == ["OwnerRefInvalidNamespace"]


async def test_a_namespace_goes_after_everything_in_it(cluster: Cluster) -> None:
    client = cluster.client
    await client.create(NAMESPACES, {"metadata": {"name": "t"}})
    await cluster.until(CONFIG_MAPS, lambda all_: "t" in {e.metadata.namespace for e in all_})
    await client.create(DEPLOYMENTS, workload("web", 2), "t")
    held = {"metadata": {"name": "held", "finalizers": ["a.b/c"]}}
    await client.create(CONFIG_MAPS, held, "t")
    await client.delete(NAMESPACES, "t")

    def says_what_remains(all_: list[Any]) -> bool:
        conditions = next(e.status.conditions for e in all_ if e.metadata.name == "t")
        by_type = {condition["type"]: condition["message"] for condition in conditions}
        return "configmaps. has 1" in by_type.get("NamespaceContentRemaining", "")

    await cluster.until(NAMESPACES, says_what_remains)
    await client.patch(CONFIG_MAPS, "held", {"metadata": {"finalizers": None}}, "t")
    await cluster.until(NAMESPACES, lambda all_: "t" not in {e.metadata.name for e in all_})
    assert not (await client.list(PODS, "t")).items


async def test_the_root_certificate_is_restored(cluster: Cluster) -> None:
    client = cluster.client

    name = "kube-root-ca.crt"

    def is_whole(all_: list[Any]) -> bool:
        return any(
            obj.metadata.namespace == "default"
            and set(obj.data) == {"ca.crt"}
            and obj.data["ca.crt"].startswith("-----BEGIN")
            for obj in all_
        )

    await cluster.until(CONFIG_MAPS, is_whole)
    await client.delete(CONFIG_MAPS, name, "default")
    await cluster.until(CONFIG_MAPS, is_whole)
    await client.patch(CONFIG_MAPS, name, {"data": {"ca.crt": "y", "z": "z"}}, "default")
    await cluster.until(CONFIG_MAPS, is_whole)


async def test_a_token_secret_is_filled_and_ends_with_its_account(cluster: Cluster) -> None:
    client = cluster.client
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}}, "default")
    secret = {
        "metadata": {
            "name": "robot-token",
            "annotations": {"kubernetes.io/service-account.name": "robot"},
        },
        "type": "kubernetes.io/service-account-token",
    }
    await client.create(SECRETS, secret, "default")
    (filled,) = await cluster.until(SECRETS, lambda all_: bool(all_ and all_[0].data))
    assert set(filled.data) == {"token", "ca.crt", "namespace"}
    await client.delete(SERVICE_ACCOUNTS, "robot", "default")
    await cluster.until(SECRETS, lambda all_: not all_)


@pytest.mark.slow
async def test_a_silent_nodes_pods_are_not_ready_and_then_evicted(cluster: Cluster) -> None:
    client = cluster.client
    for name in ("n1", "n2"):
        await client.create(NODES, {"metadata": {"name": name}})
        await cluster.heartbeat(name)
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute",
         "tolerationSeconds": 0}
        for key in ("not-ready", "unreachable")
    ]  # fmt: skip
    spec = {
        "nodeName": "n1",
        "containers": [{"name": "c", "image": "a"}],
        "tolerations": tolerations,
    }
    await client.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "default")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    await cluster.status(PODS, "p", {"phase": "Running", "conditions": [ready]})

    async def keep_renewing() -> None:
        while True:
            renewed = {"spec": {"renewTime": format_micro_time(datetime.now(UTC))}}
            await client.patch(LEASES, "n2", renewed, "kube-node-lease")
            await asyncio.sleep(0.3)

    await client.create(LEASES, {"metadata": {"name": "n2"}}, "kube-node-lease")
    renewing = asyncio.create_task(keep_renewing())
    try:
        await cluster.until(
            NODES,
            lambda all_: any(
                taint.key == "node.kubernetes.io/unreachable" and taint.effect == "NoExecute"
                for node in all_
                for taint in node.spec.taints
                if node.metadata.name == "n1"
            ),
        )
        (pod,) = await cluster.until(
            PODS, lambda all_: all_[0].metadata.deletion_timestamp is not None
        )
    finally:
        renewing.cancel()
    assert condition(pod, "DisruptionTarget").reason == "DeletionByTaintManager"
    assert condition(pod, "Ready").status == "False"
    lost, kept = await client.get(NODES, "n1"), await client.get(NODES, "n2")
    assert condition(kept, "Ready").status == "True"
    assert condition(lost, "Ready").reason == "NodeStatusUnknown"

    await client.delete(NODES, "n1")
    await cluster.until(PODS, lambda all_: not all_)


async def test_a_service_has_the_addresses_of_its_pods(cluster_without_lost_pods: Cluster) -> None:
    cluster = cluster_without_lost_pods
    client = cluster.client
    await client.create(REPLICA_SETS, workload("web", 1), "default")
    service = {
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    await client.create(SERVICES, service, "default")
    await cluster.until(
        ENDPOINT_SLICES,
        lambda all_: [e["addresses"] for obj in all_ for e in obj.endpoints] == [["10.0.0.1"]],
    )
    await client.delete(SERVICES, "web", "default")
    await cluster.until(ENDPOINT_SLICES, lambda all_: not all_)
    with pytest.raises(NotFoundError):
        await client.get(SERVICES, "web", "default")


@pytest.mark.failing_reconciles
async def test_refused_pods_are_reported_and_created_once_allowed(cluster: Cluster) -> None:
    client = cluster.client
    wanted = workload("web", 2)
    wanted["spec"]["template"]["spec"]["serviceAccountName"] = "robot"
    await client.create(DEPLOYMENTS, wanted, "default")
    (failing,) = await cluster.until(
        DEPLOYMENTS, lambda all_: condition(all_[0], "ReplicaFailure") is not None
    )
    failure = condition(failing, "ReplicaFailure")
    assert failure.reason == "FailedCreate"
    assert 'serviceaccount "robot" not found' in failure.message
    events = await cluster.until(
        EVENTS, lambda all_: "FailedCreate" in {obj.reason for obj in all_}
    )
    messages = {event.message for event in events if event.reason == "FailedCreate"}
    assert f"Error creating: {failure.message}" in messages
    await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}}, "default")
    await cluster.until(PODS, lambda all_: len(all_) == 2)
    await cluster.until(DEPLOYMENTS, lambda all_: condition(all_[0], "ReplicaFailure") is None)


@pytest.mark.slow
async def test_a_rollout_that_gets_nowhere_is_called_late(cluster: Cluster) -> None:
    wanted = workload("web", 1)
    wanted["spec"]["progressDeadlineSeconds"] = 1
    await cluster.client.create(DEPLOYMENTS, wanted, "default")

    def is_late(all_: list[Any]) -> bool:
        result = condition(all_[0], "Progressing") if all_ else None
        return result is not None and result.reason == "ProgressDeadlineExceeded"

    (late,) = await cluster.until(DEPLOYMENTS, is_late)
    assert condition(late, "Progressing").status == "False"
    assert condition(late, "Progressing").message.endswith("has timed out progressing.")


async def test_a_paused_deployment_is_resized_but_not_rolled(cluster: Cluster) -> None:
    client = cluster.client
    await client.create(DEPLOYMENTS, workload("web", 1), "default")
    await cluster.until(PODS, lambda all_: len(all_) == 1)
    change = {"paused": True, "replicas": 3, "template": {"metadata": {"annotations": {"a": "b"}}}}
    await client.patch(DEPLOYMENTS, "web", {"spec": change}, "default")
    await cluster.until(PODS, lambda all_: len(all_) == 3)
    (paused,) = await cluster.until(
        DEPLOYMENTS, lambda all_: condition(all_[0], "Progressing").reason == "DeploymentPaused"
    )
    assert condition(paused, "Progressing").status == "Unknown"
    assert len((await client.list(REPLICA_SETS)).items) == 1
    await client.patch(DEPLOYMENTS, "web", {"spec": {"paused": False}}, "default")
    await cluster.until(REPLICA_SETS, lambda all_: len(all_) == 2)
