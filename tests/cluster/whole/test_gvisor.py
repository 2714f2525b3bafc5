"""Pods of gVisor: a kernel of their own, and all else as any pod's."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.running import BUSYBOX, NGINX_STAND_IN, RunningCluster, pod, skip_without_gvisor, until

pytestmark = pytest.mark.runtime

CLASS = "gvisor"


@pytest.fixture
def name(whole_cluster: RunningCluster) -> Iterator[str]:
    skip_without_gvisor()
    name = f"g-{uuid.uuid4().hex[:8]}"
    yield name
    whole_cluster.remove("pod", name)


def _status(cluster: RunningCluster, name: str) -> dict[str, Any]:
    return dict(cluster.get("pod", name)["status"])


def _container(cluster: RunningCluster, name: str, container: str = "app") -> dict[str, Any]:
    statuses = _status(cluster, name).get("containerStatuses", [])
    return next((status for status in statuses if status["name"] == container), {})


def _run(cluster: RunningCluster, name: str, script: str, container: str = "app") -> str:
    done = cluster.kubectl("exec", name, "-c", container, "--", "sh", "-c", script)
    return done.stdout.strip()


def test_inside_is_a_kernel_that_is_not_the_hosts(whole_cluster: RunningCluster, name: str) -> None:
    whole_cluster.apply(pod(name, runtime_class=CLASS))
    whole_cluster.wait_ready(name)
    assert _run(whole_cluster, name, "uname -r") != os.uname().release
    assert "gVisor" in _run(whole_cluster, name, "dmesg")


def test_containers_of_a_pod_share_its_kernel_network_and_volumes(
    whole_cluster: RunningCluster, name: str
) -> None:
    mount = [{"name": "shared", "mountPath": "/shared"}]
    serving = {"image": NGINX_STAND_IN, "command": ["/usr/bin/serve"], "volumeMounts": mount}
    beside = {
        "name": "beside", "image": BUSYBOX, "command": ["sleep", "3600"], "volumeMounts": mount,
    }  # fmt: skip
    first = {
        "name": "first", "image": BUSYBOX, "volumeMounts": mount,
        "command": ["sh", "-c", "echo prepared > /shared/word"],
    }  # fmt: skip
    document = pod(
        name,
        runtime_class=CLASS,
        container=serving,
        initContainers=[first],
        volumes=[{"name": "shared", "emptyDir": {}}],
    )
    document["spec"]["containers"].append(beside)
    whole_cluster.apply(document)
    whole_cluster.wait_ready(name)
    # Not wget: under gVisor of 2022 a read that has to wait fails.
    ask = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 3 127.0.0.1 80 || true"
    until(
        lambda: "Stand-in for nginx" in _run(whole_cluster, name, ask, "beside"),
        "an answer of the other container",
    )
    assert _run(whole_cluster, name, "cat /shared/word", "beside") == "prepared"
    _run(whole_cluster, name, "echo changed > /shared/word", "beside")
    assert _run(whole_cluster, name, "cat /shared/word") == "changed"


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
def test_container_exits_with_its_own_status_and_its_log_is_kept(
    whole_cluster: RunningCluster, name: str, code: int, phase: str
) -> None:
    container = {"command": ["sh", "-c", f"echo out; echo err >&2; exit {code}"]}
    whole_cluster.apply(pod(name, runtime_class=CLASS, container=container, restartPolicy="Never"))
    until(lambda: _status(whole_cluster, name)["phase"] == phase, phase)
    ended = _container(whole_cluster, name)["state"]["terminated"]
    assert ended["exitCode"] == code
    assert sorted(whole_cluster.kubectl("logs", name).stdout.split()) == ["err", "out"]


def test_one_container_restarts_while_the_other_goes_on(
    whole_cluster: RunningCluster, name: str
) -> None:
    """And the pod keeps its address, since its sandbox does not end."""
    ending = {"command": ["sh", "-c", "while ! test -e /tmp/end; do sleep 0.1; done; exit 5"]}
    document = pod(name, runtime_class=CLASS, container=ending)
    document["spec"]["containers"].append(
        {"name": "beside", "image": BUSYBOX, "command": ["sleep", "3600"]}
    )
    whole_cluster.apply(document)
    whole_cluster.wait_ready(name)
    address = _status(whole_cluster, name)["podIP"]
    beside = _container(whole_cluster, name, "beside")["containerID"]
    _run(whole_cluster, name, "touch /tmp/end")
    until(lambda: _container(whole_cluster, name)["restartCount"] == 1, "a restart")
    whole_cluster.wait_ready(name)
    assert _container(whole_cluster, name)["lastState"]["terminated"]["exitCode"] == 5
    assert _container(whole_cluster, name, "beside")["containerID"] == beside
    assert _container(whole_cluster, name, "beside")["restartCount"] == 0
    assert _status(whole_cluster, name)["podIP"] == address


def test_probes_reach_into_the_sandbox(whole_cluster: RunningCluster, name: str) -> None:
    container = {
        "image": NGINX_STAND_IN,
        "command": ["/usr/bin/serve"],
        "readinessProbe": {"exec": {"command": ["test", "-f", "/tmp/ready"]}, "periodSeconds": 1},
        "livenessProbe": {
            "httpGet": {"path": "/", "port": 80}, "periodSeconds": 1, "failureThreshold": 2,
        },
        "startupProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1},
    }  # fmt: skip
    whole_cluster.apply(pod(name, runtime_class=CLASS, container=container))
    until(lambda: _container(whole_cluster, name).get("started", False), "its start")
    assert _container(whole_cluster, name)["ready"] is False
    _run(whole_cluster, name, "touch /tmp/ready")
    whole_cluster.wait_ready(name)
    _run(whole_cluster, name, "rm -r /www")
    until(lambda: _container(whole_cluster, name)["restartCount"] >= 1, "a restart")


def test_pod_over_its_memory_limit_ends_as_oom_killed(
    whole_cluster: RunningCluster, name: str
) -> None:
    # The application kernel keeps its own share of the limit, so that is not the least there is.
    greedy = "head -c 300m /dev/zero | tail -c 300m > /dev/null"
    limits = {"limits": {"memory": "128Mi", "cpu": "500m"}}
    container = {"command": ["sh", "-c", greedy], "resources": limits}
    whole_cluster.apply(pod(name, runtime_class=CLASS, container=container, restartPolicy="Never"))
    until(lambda: _status(whole_cluster, name)["phase"] == "Failed", "its end")
    ended = _container(whole_cluster, name)["state"]["terminated"]
    assert ended["reason"] == "OOMKilled", json.dumps(ended)
    assert ended["exitCode"] == 137


def test_a_pod_is_deleted_within_its_grace(whole_cluster: RunningCluster, name: str) -> None:
    container = {"command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]}
    whole_cluster.apply(
        pod(name, runtime_class=CLASS, container=container, terminationGracePeriodSeconds=20)
    )
    whole_cluster.wait_ready(name)
    whole_cluster.kubectl("delete", "pod", name, "--timeout=15s")


def test_a_command_beyond_the_limit_says_that_it_took_its_pod_along(
    whole_cluster: RunningCluster, name: str
) -> None:
    limits = {"limits": {"memory": "128Mi"}}
    whole_cluster.apply(pod(name, runtime_class=CLASS, container={"resources": limits}))
    whole_cluster.wait_ready(name)
    script = "head -c 400m /dev/zero | tail -c 400m | wc -c"
    done = whole_cluster.kubectl("exec", name, "--", "sh", "-c", script, fails=True)
    assert done.returncode == 137
    assert "the command exceeded the memory limit of its pod" in done.stderr
    assert "urpc" not in done.stderr
    until(
        lambda: (
            _container(whole_cluster, name).get("lastState", {}).get("terminated", {}).get("reason")
            == "OOMKilled"
        ),
        "the container's restart",
        60,
    )
