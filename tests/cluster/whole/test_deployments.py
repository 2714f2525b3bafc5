"""Deployments on a real node: roll out, undo, scale, restart, delete with what they own."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.running import NGINX_STAND_IN, RunningCluster, until

pytestmark = pytest.mark.runtime

NAME = "web"


def _deployment(note: str = "first", replicas: int = 2) -> dict[str, Any]:
    labels = {"app": NAME}
    container = {
        "name": "nginx",
        "image": NGINX_STAND_IN,
        "env": [{"name": "NOTE", "value": note}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "runtimeClassName": "native",
                    "terminationGracePeriodSeconds": 1,
                    "containers": [container],
                },
            },
        },
    }


@pytest.fixture
def cluster(whole_cluster: RunningCluster) -> Iterator[RunningCluster]:
    whole_cluster.apply(_deployment())
    _rolled_out(whole_cluster)
    yield whole_cluster
    whole_cluster.kubectl("delete", "deployment", NAME, "--ignore-not-found", "--timeout=30s")


def _rolled_out(cluster: RunningCluster) -> str:
    return cluster.kubectl("rollout", "status", f"deployment/{NAME}", "--timeout=60s").stdout


def _pods(cluster: RunningCluster) -> list[dict[str, Any]]:
    items = cluster.get("pods", "-l", f"app={NAME}")["items"]
    return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]


def _notes(cluster: RunningCluster) -> set[str]:
    return {pod["spec"]["containers"][0]["env"][0]["value"] for pod in _pods(cluster)}


def test_rollout_is_reported_and_can_be_undone(cluster: RunningCluster) -> None:
    assert _notes(cluster) == {"first"}
    cluster.apply(_deployment("second"))
    assert "successfully rolled out" in _rolled_out(cluster)
    until(lambda: _notes(cluster) == {"second"}, "only new pods")
    history = cluster.kubectl("rollout", "history", f"deployment/{NAME}").stdout
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["1", "2"]
    cluster.kubectl("rollout", "undo", f"deployment/{NAME}")
    _rolled_out(cluster)
    until(lambda: _notes(cluster) == {"first"}, "the old pods' like")
    # The undone revision's ReplicaSet is used again, not copied.
    assert len(cluster.get("replicasets", "-l", f"app={NAME}")["items"]) == 2


def test_a_restart_replaces_every_pod(cluster: RunningCluster) -> None:
    before = {pod["metadata"]["uid"] for pod in _pods(cluster)}
    cluster.kubectl("rollout", "restart", f"deployment/{NAME}")
    _rolled_out(cluster)
    until(lambda: not before & {pod["metadata"]["uid"] for pod in _pods(cluster)}, "only new pods")


def test_scaling_up_and_down(cluster: RunningCluster) -> None:
    for replicas in (4, 1):
        cluster.kubectl("scale", f"deployment/{NAME}", f"--replicas={replicas}")
        _rolled_out(cluster)
        until(lambda replicas=replicas: len(_pods(cluster)) == replicas, f"{replicas} pods")  # type: ignore[misc]


def test_a_pod_that_is_deleted_comes_back(cluster: RunningCluster) -> None:
    victim = _pods(cluster)[0]["metadata"]["name"]
    cluster.kubectl("delete", "pod", victim, "--timeout=30s")
    _rolled_out(cluster)
    assert victim not in {pod["metadata"]["name"] for pod in _pods(cluster)}


def test_deleting_a_deployment_takes_its_pods_along(cluster: RunningCluster) -> None:
    cluster.kubectl("delete", "deployment", NAME, "--cascade=foreground", "--timeout=30s")
    assert not cluster.get("pods", "-l", f"app={NAME}")["items"]
    assert not cluster.get("replicasets", "-l", f"app={NAME}")["items"]


def test_a_service_knows_its_pods_addresses(cluster: RunningCluster) -> None:
    cluster.kubectl("expose", f"deployment/{NAME}", "--port=80")
    try:
        wanted = {pod["status"]["podIP"] for pod in _pods(cluster)}

        def addresses() -> set[str]:
            subsets = cluster.get("endpoints", NAME).get("subsets", [])
            return {address["ip"] for subset in subsets for address in subset.get("addresses", [])}

        until(lambda: addresses() == wanted, "the pods' addresses")
        service = json.loads(cluster.kubectl("get", "svc", NAME, "-o", "json").stdout)
        network = ipaddress.IPv4Network("10.96.0.0/12")
        assert ipaddress.IPv4Address(service["spec"]["clusterIP"]) in network
    finally:
        cluster.kubectl("delete", "service", NAME)
