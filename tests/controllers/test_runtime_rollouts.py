"""Rollouts on a real API server with the real controllers, on simulated nodes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moorage.api.errors import StatusError
from moorage.api.runtime_group import API_VERSION
from moorage.api.runtime_rollouts import RuntimeRollout
from moorage.runtimes.custom_resources import install_definitions
from moorage.wire.client.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    PODS,
    RUNTIME_CLASSES,
    RUNTIME_ROLLOUTS,
    STATEFUL_SETS,
    Resource,
)
from moorage.wire.client.rest import PatchType
from tests.controllers.cluster import Cluster, running_cluster
from tests.controllers.simulated_nodes import SimulatedNodes

pytestmark = pytest.mark.slow

# A hundred nodes take half a minute: `make soak` has them.
_IS_WHOLE = bool(os.environ.get("MOORAGE_FUZZ"))
_NODES = 100 if _IS_WHOLE else 30
_DEPLOYMENTS = 30 if _IS_WHOLE else 12
_DEADLINE_S = 60.0


@asynccontextmanager
async def cluster_with_nodes(directory: Path) -> AsyncIterator[tuple[Cluster, SimulatedNodes]]:
    # Simulated nodes have no heartbeat.
    patient = {"node_grace_period_s": 600.0, "node_startup_grace_period_s": 600.0}
    async with running_cluster(directory, **patient) as cluster:
        await install_definitions(cluster.client)
        handlers = {
            f"n{number}": ("runc", "gvisor", "gvisor-2026") if number % 2 else ("runc", "gvisor")
            for number in range(_NODES)
        }
        nodes = SimulatedNodes(cluster.client, handlers)
        await nodes.create()
        for name in ("gvisor", "gvisor-2026"):
            await cluster.client.create(
                RUNTIME_CLASSES, {"metadata": {"name": name}, "handler": name}
            )
        player = asyncio.create_task(nodes.run())
        try:
            yield cluster, nodes
        finally:
            player.cancel()
            await asyncio.gather(player, return_exceptions=True)


def template(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": name}},
        "spec": {
            "runtimeClassName": "gvisor", "containers": [{"name": "c", "image": "a"}], **spec
        },
    }  # fmt: skip


def workload(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}}, "template": template(name), **spec
        },
    }  # fmt: skip


def cron_job(name: str) -> dict[str, Any]:
    job = {"spec": {"template": template(name, restartPolicy="Never")}}
    return {"metadata": {"name": name}, "spec": {"schedule": "0 0 1 1 *", "jobTemplate": job}}


async def create_workloads(cluster: Cluster) -> None:
    client = cluster.client
    for index in range(_DEPLOYMENTS):
        await client.create(DEPLOYMENTS, workload(f"d{index:02}", replicas=2), "default")
    for index in range(4):
        body = workload(f"s{index}", replicas=2, serviceName="s")
        await client.create(STATEFUL_SETS, body, "default")
        await client.create(CRON_JOBS, cron_job(f"c{index}"), "default")
    rolling = {"rollingUpdate": {"maxUnavailable": "50%"}}
    await client.create(DAEMON_SETS, workload("every", updateStrategy=rolling), "default")
    on_delete = workload("hand", updateStrategy={"type": "OnDelete"})
    await client.create(DAEMON_SETS, on_delete, "default")
    await client.create(DEPLOYMENTS, workload("halted", paused=True, replicas=1), "default")
    job = {"metadata": {"name": "long"}, "spec": {"template": template("j", restartPolicy="Never")}}
    await client.create(JOBS, job, "default")
    alone = {"metadata": {"name": "alone"}, "spec": template("alone")["spec"]}
    await client.create(PODS, alone, "default")
    await deployments_available(cluster)
    await cluster.until(
        DAEMON_SETS,
        lambda all_: all(_is_everywhere(one, _NODES) for one in all_),
        within_s=_DEADLINE_S,
    )


async def deployments_available(cluster: Cluster) -> None:
    await cluster.until(
        DEPLOYMENTS, lambda all_: all(_is_available(one) for one in all_), within_s=_DEADLINE_S
    )


def _is_available(deployment: Any) -> bool:
    is_paused = deployment.spec.paused
    return bool(is_paused) or bool(deployment.status.available_replicas == deployment.spec.replicas)


def _is_everywhere(daemon_set: Any, number: int) -> bool:
    return bool(daemon_set.status.number_available == number)


async def create_rollout(cluster: Cluster, name: str = "r", **spec: Any) -> None:
    body = {
        "apiVersion": API_VERSION,
        "kind": "RuntimeRollout",
        "metadata": {"name": name},
        "spec": {"from": "gvisor", "to": "gvisor-2026", **spec},
    }
    await cluster.client.create(RUNTIME_ROLLOUTS, body)


async def rollout_when(
    cluster: Cluster, condition: Callable[[RuntimeRollout], bool], name: str = "r"
) -> RuntimeRollout:
    def holds(rollouts: list[RuntimeRollout]) -> bool:
        return any(one.metadata.name == name and condition(one) for one in rollouts)

    found = await cluster.until(RUNTIME_ROLLOUTS, holds, within_s=_DEADLINE_S)
    wanted: RuntimeRollout = next(one for one in found if one.metadata.name == name)
    return wanted


async def classes_of(cluster: Cluster) -> list[str]:
    client = cluster.client
    kinds: tuple[Resource[Any], ...] = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS)
    classes: list[str] = [
        one.spec.template["spec"]["runtimeClassName"]
        for resource in kinds
        for one in (await client.list(resource)).items
    ]
    return classes + [
        one.spec.job_template.spec["template"]["spec"]["runtimeClassName"]
        for one in (await client.list(CRON_JOBS)).items
    ]


async def test_workloads_of_many_nodes_are_moved_and_moved_back(tmp_path: Path) -> None:
    async with cluster_with_nodes(tmp_path) as (cluster, _):
        await create_workloads(cluster)
        await create_rollout(cluster, canary=2, waveSize="40%")
        number = _DEPLOYMENTS + 4 + 4 + 2 + 1
        done = await rollout_when(cluster, lambda one: one.status.phase == "Completed")
        counts = done.status.counts
        assert set(await classes_of(cluster)) == {"gvisor-2026"}
        assert (counts.total, counts.moved, counts.held) == (number, number - 2, 2)
        assert counts.failed == counts.reverted == 0
        unmovable = [(one.kind, one.name) for one in done.status.workloads if one.wave == 0]
        assert unmovable == [("Job", "long"), ("Pod", "alone")]
        held = {one.name: one.message for one in done.status.workloads if one.state == "Held"}
        assert "OnDelete" in held["hand"]
        assert "paused" in held["halted"]
        # The new handler is on half of the nodes: so is the DaemonSet now.
        every = await cluster.client.get(DAEMON_SETS, "every", "default")
        assert _is_everywhere(every, _NODES // 2)
        await cluster.client.patch(RUNTIME_ROLLOUTS, "r", {"spec": {"rollback": True}})
        await rollout_when(cluster, lambda one: one.status.phase == "RolledBack")
        assert set(await classes_of(cluster)) == {"gvisor"}


async def test_a_target_that_breaks_half_way_is_stopped_and_rolled_back(tmp_path: Path) -> None:
    async with cluster_with_nodes(tmp_path) as (cluster, nodes):
        for index in range(8):
            body = workload(f"d{index}", replicas=2)
            await cluster.client.create(DEPLOYMENTS, body, "default")
        await deployments_available(cluster)
        gates = {"readyWithinSeconds": 2}
        await create_rollout(cluster, waveSize=3, onFailure="Rollback", gates=gates)
        await rollout_when(cluster, lambda one: one.status.counts.moved >= 1)
        nodes.broken.add("gvisor-2026")
        done = await rollout_when(cluster, lambda one: one.status.phase == "RolledBack")
        assert done.status.stop is not None
        assert done.status.stop.reason == "NotReady"
        assert await classes_of(cluster) == ["gvisor"] * 8
        await deployments_available(cluster)


async def test_the_second_of_two_rollouts_waits_and_a_bad_one_is_refused(tmp_path: Path) -> None:
    async with cluster_with_nodes(tmp_path) as (cluster, _):
        body = workload("d", replicas=1)
        await cluster.client.create(DEPLOYMENTS, body, "default")
        await create_rollout(cluster, paused=True)
        await rollout_when(cluster, lambda one: one.status.phase == "Paused")
        await create_rollout(cluster, "second", **{"from": "gvisor-2026", "to": "gvisor"})
        await create_rollout(cluster, "missing", **{"from": "other", "to": "nothing"})
        for name, reason in (("second", "RolloutOverlaps"), ("missing", "ClassMissing")):
            blocked = await rollout_when(cluster, lambda one: bool(one.status.phase), name)
            accepted = next(c for c in blocked.status.conditions if c.type == "Accepted")
            assert (accepted.status, accepted.reason) == ("False", reason)
        for spec, complaint in _BAD:
            with pytest.raises(StatusError, match=complaint):
                await create_rollout(cluster, "bad", **spec)
        with pytest.raises(StatusError, match="from and to cannot be changed"):
            await cluster.client.patch(RUNTIME_ROLLOUTS, "r", {"spec": {"to": "else"}})


_BAD: tuple[tuple[dict[str, Any], str], ...] = (
    ({"to": "gvisor"}, "from and to must differ"),
    ({"canary": "101%"}, "should match"),
    ({"canary": -1}, "greater than or equal to 0"),
    ({"waveSize": 0}, "greater than or equal to 1"),
    ({"onFailure": "Ignore"}, "Unsupported value"),
    ({"gates": {"maxFailurePercent": 101}}, "less than or equal to 100"),
)


async def _apply(cluster: Cluster, name: str, class_name: str, *, is_cron_job: bool = False) -> Any:
    """Apply a workload as Helm 4 does it: by the server, without force."""
    body = cron_job(name) if is_cron_job else workload(name, replicas=1)
    spec = body["spec"]["jobTemplate"]["spec"] if is_cron_job else body["spec"]
    spec["template"]["spec"]["runtimeClassName"] = class_name
    resource: Resource[Any] = CRON_JOBS if is_cron_job else DEPLOYMENTS
    identity = {"apiVersion": resource.api_version, "kind": resource.kind}
    return await cluster.client.patch(
        resource, name, identity | body, "default", kind=PatchType.APPLY, field_manager="helm"
    )


@pytest.mark.parametrize("is_cron_job", [False, True])
async def test_a_chart_is_upgraded_after_a_rollout(tmp_path: Path, is_cron_job: bool) -> None:
    async with cluster_with_nodes(tmp_path) as (cluster, _):
        await cluster.client.create(
            RUNTIME_CLASSES, {"metadata": {"name": "third"}, "handler": "runc"}
        )
        await _apply(cluster, "web", "gvisor", is_cron_job=is_cron_job)
        await create_rollout(cluster)
        await rollout_when(cluster, lambda one: one.status.phase == "Completed")
        assert await classes_of(cluster) == ["gvisor-2026"]
        # The chart has the new class, and later another one.
        for name in ("gvisor-2026", "third"):
            await _apply(cluster, "web", name, is_cron_job=is_cron_job)
            assert await classes_of(cluster) == [name]


async def test_a_chart_with_the_former_class_goes_back_without_a_conflict(
    tmp_path: Path,
) -> None:
    async with cluster_with_nodes(tmp_path) as (cluster, _):
        await _apply(cluster, "web", "gvisor")
        await create_rollout(cluster)
        await rollout_when(cluster, lambda one: one.status.phase == "Completed")
        await _apply(cluster, "web", "gvisor")
        assert await classes_of(cluster) == ["gvisor"]


async def test_a_rollback_leaves_the_class_to_the_chart_too(tmp_path: Path) -> None:
    async with cluster_with_nodes(tmp_path) as (cluster, _):
        await _apply(cluster, "web", "gvisor")
        await create_rollout(cluster)
        await rollout_when(cluster, lambda one: one.status.phase == "Completed")
        await cluster.client.patch(RUNTIME_ROLLOUTS, "r", {"spec": {"rollback": True}})
        await rollout_when(cluster, lambda one: one.status.phase == "RolledBack")
        await _apply(cluster, "web", "gvisor-2026")
        assert await classes_of(cluster) == ["gvisor-2026"]
