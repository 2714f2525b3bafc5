"""@kubernetes/client-node: its informer, patches, streams and metrics, on a cluster with a node."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from moorage.cluster.images.catalogue import BUSYBOX
from tests.peers import required_peer
from tests.running import RunningCluster

_PROGRAM = Path(__file__).with_name("client_node.mjs")


def test_a_pod_is_followed_patched_entered_measured_and_evicted(
    whole_cluster: RunningCluster,
) -> None:
    node, client = required_peer("node"), required_peer("client-node")
    done = subprocess.run(
        [node, _PROGRAM, whole_cluster.kubeconfig, client, BUSYBOX],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == {
        "labels": ["apply", "json", "merge", "strategic"],
        "failed": ["out\n", "err\n", "Failure", "3"],
        "copied": ["to the end", "", "Success", "0"],
        "forwarded": "HTTP/1.0 200 OK",
        "measured": ["main", "web"],
        "events": ["add", "delete", "update"],
        "gone": [404, "NotFound"],
    }
