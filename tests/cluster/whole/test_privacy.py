"""What a user of this machine without rights can reach of a cluster and its pods: nothing."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.linux.trees import remove_tree
from tests.intruder import reachable_paths
from tests.running import (
    RunningCluster,
    pod,
    running,
    runtime_class,
    skip_without_kubectl,
    skip_without_runtimes,
)

pytestmark = [pytest.mark.runtime]

SECRET = base64.b64encode(b"correct-horse-battery-staple").decode()
_SETUID = "cp /bin/busybox /tmp/true; chmod 4755 /tmp/true; cp /tmp/true /memory/id; sleep 3600"


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    """On a directory that was there, open to all, as an earlier version made it."""
    skip_without_kubectl()
    skip_without_runtimes()
    # Not below pytest's own directory, which is closed.
    root = Path(tempfile.mkdtemp(prefix="moorage-privacy-", dir="/tmp"))
    root.chmod(0o755)
    data = root / "data"
    for path in (data, *(data / name for name in ("db", "node", "pods", "engine", "logs"))):
        path.mkdir()
        path.chmod(0o755)
    try:
        with running(data, node_name="n1") as cluster:
            yield cluster
    finally:
        remove_tree(root)


def test_other_users_reach_nothing_of_a_cluster(cluster: RunningCluster) -> None:
    environment = [
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "password", "key": "it"}}}
    ]
    mounts = [
        {"name": name, "mountPath": f"/{name}"} for name in ("disk", "memory", "secret", "settings")
    ]
    volumes = [
        {"name": "disk", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        {"name": "secret", "secret": {"secretName": "password"}},
        {"name": "settings", "configMap": {"name": "settings"}},
    ]
    command = ["/bin/sh", "-c", _SETUID]
    container = {"command": command, "env": environment, "volumeMounts": mounts, "tty": True}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password"},
         "data": {"it": SECRET}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"},
         "data": {"it": "open"}},
        runtime_class("native", "runc"),
        pod("plain", runtime_class="native", container=container, volumes=volumes),
        pod("sharing", container=container, volumes=volumes, shareProcessNamespace=True),
    )  # fmt: skip
    cluster.wait_ready("plain", "sharing")
    settings = json.loads((cluster.data_dir / "cluster.json").read_text())
    run = Path("/run/moorage") / settings["cluster_id"]
    reachable = reachable_paths([cluster.data_dir, run])
    passable = (run, run / "e", run / "e/b", run / "e/s")
    assert set(reachable.pop("enter")) == set(map(str, passable))
    assert reachable == {}
    # Nothing was closed to the pod itself.
    read = "cat /secret/it /settings/it; /tmp/true && /memory/id -u"
    answer = cluster.kubectl("exec", "plain", "--", "/bin/sh", "-c", read)
    assert "correct-horse-battery-staple" in str(answer)
