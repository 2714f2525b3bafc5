"""Usage of real containers: `kubectl top`, and an autoscaler that follows it up and down."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.running import BUSYBOX, RunningCluster, until

pytestmark = pytest.mark.runtime

# Works until it is let rest; as limits are 100m, three of them leave the machine its own CPUs.
_WORK = "while :; do if [ -e /tmp/rest ]; then sleep 1; fi; done"


def _deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    container = {
        "name": "work",
        "image": BUSYBOX,
        "command": ["sh", "-c", _WORK],
        "resources": {
            "requests": {"cpu": "50m", "memory": "8Mi"},
            "limits": {"cpu": "100m", "memory": "32Mi"},
        },
    }
    idle = {**container, "name": "idle", "command": ["sleep", "3600"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [container, idle]},
            },
        },
    }


def _autoscaler(name: str) -> dict[str, Any]:
    usage = {
        "name": "cpu",
        "container": "work",
        "target": {"type": "Utilization", "averageUtilization": 60},
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "maxReplicas": 3,
            "metrics": [{"type": "ContainerResource", "containerResource": usage}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }


@pytest.fixture
def working(whole_cluster: RunningCluster) -> Iterator[str]:
    """The name of a Deployment whose one pod is at work."""
    name = f"work-{uuid.uuid4().hex[:8]}"
    whole_cluster.apply(_deployment(name))
    whole_cluster.kubectl("rollout", "status", f"deployment/{name}", "--timeout=60s")
    yield name
    whole_cluster.remove("hpa,deployment", name)


def _millicores(text: str) -> int:
    assert text.endswith("m"), text
    return int(text.removesuffix("m"))


def test_kubectl_top_shows_what_is_used(whole_cluster: RunningCluster, working: str) -> None:
    """A container at its limit uses about that, whatever else the machine does."""

    def rows(*arguments: str) -> list[list[str]]:
        done = whole_cluster.kubectl("top", *arguments, "--no-headers")
        return [line.split() for line in done.stdout.splitlines()]

    def containers() -> dict[str, tuple[int, str]]:
        listed = rows("pods", "--containers", "-l", f"app={working}")
        return {name: (_millicores(cpu), memory) for _, name, cpu, memory in listed}

    until(lambda: set(containers()) == {"work", "idle"}, "both containers are measured")
    until(lambda: containers()["work"][0] >= 50, "the work is measured")
    used = containers()
    assert used["work"][0] <= 130
    assert used["idle"][0] < 20
    assert all(memory.endswith("Mi") for _, memory in used.values())
    ((_, cpu, memory),) = rows("pods", "-l", f"app={working}")
    assert 50 <= _millicores(cpu) <= 150
    assert memory.endswith("Mi")
    (node,) = rows("nodes")
    assert _millicores(node[1]) >= 50
    assert node[2].endswith("%")
    table = whole_cluster.kubectl("get", "podmetrics", "-l", f"app={working}").stdout
    assert table.split()[:4] == ["NAME", "CPU", "MEMORY", "WINDOW"]


@pytest.mark.timeout(240)
def test_an_autoscaler_follows_the_work(whole_cluster: RunningCluster, working: str) -> None:
    whole_cluster.apply(_autoscaler(working))

    def replicas() -> int:
        return int(whole_cluster.get("deployment", working)["spec"]["replicas"])

    def reasons() -> dict[str, str]:
        events = whole_cluster.get("events", "--field-selector", f"involvedObject.name={working}")
        return {
            event["message"]: event["reason"]
            for event in events["items"]
            if event["involvedObject"]["kind"] == "HorizontalPodAutoscaler"
        }

    until(lambda: replicas() == 3, "more pods", within_s=90)
    above = (
        "New size: 3; reason: cpu container resource utilization (percentage of request) above "
        "target"
    )
    until(lambda: reasons().get(above) == "SuccessfulRescale", "the event of it")
    whole_cluster.kubectl("rollout", "status", f"deployment/{working}", "--timeout=60s")
    for pod in whole_cluster.get("pods", "-l", f"app={working}")["items"]:
        name = pod["metadata"]["name"]
        whole_cluster.kubectl("exec", name, "-c", "work", "--", "touch", "/tmp/rest")
    until(lambda: replicas() == 1, "fewer pods", within_s=90)
    below = "New size: 1; reason: All metrics below target"
    until(lambda: reasons().get(below) == "SuccessfulRescale", "the event of it")
    shown = whole_cluster.get("hpa", working)
    by_type = {one["type"]: one for one in shown["status"]["conditions"]}
    assert by_type["ScalingActive"]["status"] == "True"
    first = whole_cluster.get("horizontalpodautoscalers.v1.autoscaling", working)
    assert (first["apiVersion"], first["spec"]["maxReplicas"]) == ("autoscaling/v1", 3)
    row = whole_cluster.kubectl("get", "hpa", working, "--no-headers").stdout.split()
    assert row[:2] == [working, f"Deployment/{working}"]
    assert row[2] == "cpu:"
