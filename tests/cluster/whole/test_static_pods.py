"""Static pods on a real node: from a file to a mirror, and without either."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.running import (
    RunningCluster,
    pod,
    running,
    skip_without_kubectl,
    skip_without_runtimes,
    until,
)

pytestmark = pytest.mark.runtime


def phase(cluster: RunningCluster) -> str:
    pods = cluster.get("pods")["items"]
    return next(
        (item["status"].get("phase", "") for item in pods if item["metadata"]["name"] == "web-n1"),
        "",
    )


def test_a_static_pod_lives_as_long_as_its_file(tmp_path: Path) -> None:
    skip_without_kubectl()
    skip_without_runtimes()
    manifests, config = tmp_path / "manifests", tmp_path / "kubelet.json"
    manifests.mkdir()
    header = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    config.write_text(json.dumps({**header, "staticPodPath": str(manifests)}))
    file = manifests / "web.json"
    file.write_text(json.dumps(pod("web")))
    with running(tmp_path / "data", node_name="n1", kubelet_configuration=str(config)) as cluster:
        until(lambda: phase(cluster) == "Running", "the mirror", 60)
        mirror = cluster.get("pod", "web-n1")["metadata"]
        assert mirror["ownerReferences"][0]["kind"] == "Node"
        assert cluster.kubectl("exec", "web-n1", "--", "echo", "inside").stdout == "inside\n"
        # A mirror that is deleted is made again; the pod goes on.
        container = cluster.get("pod", "web-n1")["status"]["containerStatuses"][0]["containerID"]
        cluster.kubectl("delete", "pod", "web-n1", "--wait=false")
        until(
            lambda: (
                phase(cluster) == "Running"
                and cluster.get("pod", "web-n1")["metadata"]["uid"] != mirror["uid"]
            ),
            "another mirror",
            60,
        )
        status = cluster.get("pod", "web-n1")["status"]
        assert status["containerStatuses"][0]["containerID"] == container
        file.unlink()
        until(lambda: phase(cluster) == "", "the end", 60)
