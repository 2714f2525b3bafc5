"""kr8s: pods and Deployments through its objects, on a cluster with a node."""

from __future__ import annotations

import kr8s
import pytest
from kr8s.objects import ConfigMap, Deployment, Pod

from moorage.cluster.images.catalogue import BUSYBOX
from tests.running import RunningCluster, until

_COMMAND = ["sh", "-c", "echo begun; exec sleep 3600"]


@pytest.fixture
def api(whole_cluster: RunningCluster) -> kr8s.Api:
    return kr8s.api(kubeconfig=str(whole_cluster.kubeconfig))


def test_a_pod_is_created_waited_for_entered_and_deleted(api: kr8s.Api) -> None:
    container = {"name": "main", "image": BUSYBOX, "command": _COMMAND}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    pod = Pod({"metadata": {"name": "kr8s"}, "spec": spec}, api=api)
    pod.create()
    pod.wait("condition=Ready", timeout=60)
    until(lambda: list(pod.logs()) == ["begun"], "the container's output")
    assert pod.exec(["echo", "inside"]).stdout == b"inside\n"
    pod.label({"with": "kr8s"})
    assert [found.name for found in api.get("pods", label_selector={"with": "kr8s"})] == ["kr8s"]
    pod.delete()
    pod.wait("delete", timeout=60)
    assert not pod.exists()


def test_a_deployment_is_scaled_and_lists_its_pods(api: kr8s.Api) -> None:
    labels = {"app": "kr8s-scaled"}
    container = {"name": "main", "image": BUSYBOX, "command": _COMMAND}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    deployment = Deployment({"metadata": {"name": "kr8s-scaled"}, "spec": spec}, api=api)
    deployment.create()
    try:
        deployment.wait("condition=Available", timeout=60)
        deployment.scale(2)
        until(lambda: len(list(deployment.pods())) == 2, "two pods")
    finally:
        deployment.delete(propagation_policy="Foreground")


def test_objects_are_patched_and_watched(api: kr8s.Api) -> None:
    config_map = ConfigMap({"metadata": {"name": "kr8s"}, "data": {"a": "1"}}, api=api)
    config_map.create()
    config_map.patch({"data": {"b": "2"}})
    assert dict(config_map.raw["data"]) == {"a": "1", "b": "2"}
    for kind, found in api.watch("configmaps", field_selector="metadata.name=kr8s"):
        assert (kind, found.name) == ("ADDED", "kr8s")
        break
    config_map.delete()
