"""Pods that are resized in place: real cgroups, restarts, room that is waited for."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.running import RunningCluster, pod, skip_without_gvisor, until

pytestmark = pytest.mark.runtime


@pytest.fixture
def name(whole_cluster: RunningCluster) -> Iterator[str]:
    name = f"r-{uuid.uuid4().hex[:8]}"
    yield name
    whole_cluster.kubectl("delete", "pod", name, "--ignore-not-found", "--now", "--wait=false")


def sized(cpu: str, cpu_limit: str, memory: str, memory_limit: str) -> dict[str, Any]:
    return {
        "requests": {"cpu": cpu, "memory": memory},
        "limits": {"cpu": cpu_limit, "memory": memory_limit},
    }


SMALL, LARGE = sized("20m", "30m", "35Mi", "45Mi"), sized("25m", "35m", "40Mi", "50Mi")
# Version 2 first; the files are those that upstream's tests read.
FILES = {
    "cpu": ("cpu.max", "cpu/cpu.cfs_quota_us"),
    "memory": ("memory.max", "memory/memory.limit_in_bytes"),
}


def limit(cluster: RunningCluster, name: str, resource: str) -> str:
    new, old = FILES[resource]
    script = f"cd /sys/fs/cgroup; cat {new} 2>/dev/null || cat {old}"
    return cluster.kubectl("exec", name, "--", "sh", "-c", script).stdout.split()[0]


def resize(cluster: RunningCluster, name: str, resources: dict[str, Any]) -> None:
    body = {"spec": {"containers": [{"name": "app", "resources": resources}]}}
    cluster.kubectl("patch", "pod", name, "--subresource=resize", "--type=strategic",
                    "-p", json.dumps(body))  # fmt: skip


def has(cluster: RunningCluster, name: str, resources: dict[str, Any]) -> bool:
    status = cluster.get("pod", name)["status"]
    types = {condition["type"] for condition in status["conditions"]}
    (container,) = status["containerStatuses"]
    return bool(
        container.get("resources") == resources
        and container.get("allocatedResources") == resources["requests"]
        and not types & {"PodResizePending", "PodResizeInProgress"}
    )


@pytest.mark.parametrize("handler", ["runc", "crun"])
def test_a_container_goes_on_with_other_limits(
    whole_cluster: RunningCluster, name: str, handler: str
) -> None:
    whole_cluster.apply(pod(name, runtime_class=handler, container={"resources": SMALL}))
    whole_cluster.wait_ready(name)
    for resources, quota, limit_bytes in ((LARGE, 3500, 50 << 20), (SMALL, 3000, 45 << 20)):
        resize(whole_cluster, name, resources)
        until(lambda wanted=resources: has(whole_cluster, name, wanted), "the resize")  # type: ignore[misc]
        assert limit(whole_cluster, name, "cpu") == str(quota)
        assert limit(whole_cluster, name, "memory") == str(limit_bytes)
    status = whole_cluster.get("pod", name)["status"]
    assert status["containerStatuses"][0]["restartCount"] == 0
    assert status["observedGeneration"] == 3


def test_a_container_restarts_where_its_policy_says_so(
    whole_cluster: RunningCluster, name: str
) -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    container = {"resources": SMALL, "resizePolicy": policy}
    whole_cluster.apply(pod(name, runtime_class="runc", container=container))
    whole_cluster.wait_ready(name)
    for count, resources in ((1, LARGE), (2, SMALL)):
        resize(whole_cluster, name, resources)
        until(lambda wanted=resources: has(whole_cluster, name, wanted), "the resize")  # type: ignore[misc]
        whole_cluster.wait_ready(name)
        (status,) = whole_cluster.get("pod", name)["status"]["containerStatuses"]
        assert status["restartCount"] == count


def test_a_memory_limit_below_what_is_used_is_reported(
    whole_cluster: RunningCluster, name: str
) -> None:
    whole_cluster.apply(pod(name, runtime_class="runc", container={"resources": SMALL}))
    whole_cluster.wait_ready(name)
    resize(whole_cluster, name, sized("20m", "30m", "10Ki", "10Ki"))

    def said() -> str:
        conditions = whole_cluster.get("pod", name)["status"]["conditions"]
        return " ".join(
            f"{condition.get('reason')}: {condition.get('message')}"
            for condition in conditions
            if condition["type"] == "PodResizeInProgress"
        )

    until(lambda: "below current usage" in said(), "the error")
    assert said().startswith("Error: cannot decrease memory limits: ")
    assert limit(whole_cluster, name, "memory") == str(45 << 20)
    resize(whole_cluster, name, SMALL)
    until(lambda: has(whole_cluster, name, SMALL), "the old size")


def test_a_sandbox_is_resized_as_a_whole(whole_cluster: RunningCluster, name: str) -> None:
    skip_without_gvisor()
    whole_cluster.apply(pod(name, runtime_class="gvisor", container={"resources": SMALL}))
    whole_cluster.wait_ready(name)
    resize(whole_cluster, name, LARGE)
    until(lambda: has(whole_cluster, name, LARGE), "the resize")
