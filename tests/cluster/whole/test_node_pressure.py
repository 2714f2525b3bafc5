"""A node that runs short of memory or disk: the right pod ends, not the node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from moorage.linux.mounts import mount, unmount
from tests.running import (
    RunningCluster,
    pod,
    running,
    skip_without_kubectl,
    skip_without_runtimes,
    until,
)

pytestmark = pytest.mark.runtime

TOLERATING = [{"operator": "Exists"}]


@contextmanager
def cluster_with(data: Path, path: Path, **fields: Any) -> Iterator[RunningCluster]:
    """A cluster whose node agent has these fields of a KubeletConfiguration."""
    skip_without_kubectl()
    skip_without_runtimes()
    header = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    path.write_text(json.dumps({**header, **fields}))
    with running(data, node_name="n1", kubelet_configuration=str(path)) as cluster:
        yield cluster


def status_of(cluster: RunningCluster, name: str) -> dict[str, Any]:
    return dict(cluster.get("pod", name)["status"])


def condition_of(cluster: RunningCluster, type_: str) -> dict[str, Any]:
    conditions = cluster.get("node", "n1")["status"]["conditions"]
    return next((item for item in conditions if item["type"] == type_), {})


def test_memory_pressure_evicts_refuses_and_taints(tmp_path: Path) -> None:
    soft = {
        "evictionHard": {},
        "evictionSoft": {"memory.available": "99.99%"},
        "evictionSoftGracePeriod": {"memory.available": "30s"},
        "evictionMaxPodGracePeriod": 1,
    }
    with cluster_with(tmp_path / "data", tmp_path / "kubelet.json", **soft) as cluster:
        hog = {
            "command": ["sh", "-c", "head -c 80m /dev/zero | tail -c 80m | sleep 1000"],
            "resources": {"requests": {"memory": "1Mi"}},
        }
        modest = {"resources": {"requests": {"memory": "900Mi"}}}
        cluster.apply(
            pod("modest", container=modest, tolerations=TOLERATING),
            pod("hog", container=hog, tolerations=TOLERATING),
        )
        until(lambda: status_of(cluster, "hog").get("reason") == "Evicted", "the eviction", 90)
        ended = status_of(cluster, "hog")
        assert ended["phase"] == "Failed"
        assert ended["message"].startswith("The node was low on resource: memory. Threshold quan")
        assert "Container app was using " in ended["message"]
        target = [item for item in ended["conditions"] if item["type"] == "DisruptionTarget"]
        assert [(item["status"], item["reason"]) for item in target] == [
            ("True", "TerminationByKubelet")
        ]
        condition = condition_of(cluster, "MemoryPressure")
        assert (condition["status"], condition["reason"]) == (
            "True",
            "KubeletHasInsufficientMemory",
        )
        taint = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
        until(lambda: taint in _taints(cluster), "the taint", 30)
        cluster.apply(pod("best-effort", nodeName="n1"))
        until(lambda: status_of(cluster, "best-effort").get("phase") == "Failed", "refusal", 30)
        refused = status_of(cluster, "best-effort")
        assert (refused["reason"], refused["message"]) == (
            "Evicted",
            "Pod was rejected: The node had condition: [MemoryPressure]. ",
        )
        until(lambda: "EvictionThresholdMet" in _events(cluster), "the node's event", 30)
        evicted = [
            event["involvedObject"]["name"]
            for event in cluster.get("events", "--sort-by=.firstTimestamp")["items"]
            if event["reason"] == "Evicted" and event["source"]["component"] == "kubelet"
        ]
        assert evicted[0] == "hog"


def _taints(cluster: RunningCluster) -> list[dict[str, str]]:
    taints = cluster.get("node", "n1")["spec"].get("taints", [])
    return [{"key": taint["key"], "effect": taint["effect"]} for taint in taints]


def _events(cluster: RunningCluster) -> set[str]:
    return {event["reason"] for event in cluster.get("events", "-A")["items"]}


def test_a_full_disk_ends_the_pod_that_fills_it(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount("disk", disk, "tmpfs", "size=1g,mode=0755")
    try:
        with cluster_with(
            disk / "data", tmp_path / "kubelet.json", evictionPressureTransitionPeriod="1s"
        ) as cluster:
            cluster.apply(pod("modest"))
            cluster.wait_ready("modest")
            fill = {"command": ["sh", "-c", "cat /dev/zero > /filled; sleep 1000"]}
            cluster.apply(pod("hog", container=fill))
            until(lambda: status_of(cluster, "hog").get("reason") == "Evicted", "eviction", 120)
            message = status_of(cluster, "hog")["message"]
            assert message.startswith("The node was low on resource: ephemeral-storage. Threshold")
            # Its layer goes with its containers, which is the node's to reclaim.
            until(
                lambda: condition_of(cluster, "DiskPressure").get("status") == "False",
                "the node's recovery",
                120,
            )
            assert status_of(cluster, "modest")["phase"] == "Running"
            assert condition_of(cluster, "Ready")["status"] == "True"
    finally:
        unmount(disk)
