"""A cluster on another's engine: `moor up --cri`, here on a containerd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containerd import RunningContainerd, running_containerd, skip_without_containerd
from tests.machine import leftovers, machine
from tests.running import (
    MOOR,
    NGINX_STAND_IN,
    RunningCluster,
    pod,
    running,
    runtime_class,
    skip_without_kubectl,
    skip_without_runtimes,
)

pytestmark = [pytest.mark.runtime, pytest.mark.slow]


@pytest.fixture(scope="module")
def containerd() -> Iterator[RunningContainerd]:
    skip_without_kubectl()
    skip_without_runtimes()
    skip_without_containerd()
    before = machine()
    with running_containerd() as engine:
        yield engine
    assert not leftovers(before)


@pytest.fixture(scope="module")
def cluster(
    containerd: RunningContainerd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningCluster]:
    data = tmp_path_factory.mktemp("cri") / "data"
    with running(data, "--node-name", "n1", "--cri", containerd.endpoint) as cluster:
        cluster.apply(runtime_class("native", "runc"), runtime_class("gvisor", "gvisor"))
        yield cluster


def test_its_handlers_are_the_nodes_and_pods_run_on_it(
    cluster: RunningCluster, containerd: RunningContainerd
) -> None:
    status = cluster.get("node", "n1")["status"]
    assert status["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")
    handlers = {each.get("name", "") for each in status["runtimeHandlers"]}
    assert handlers == {"", *containerd.handlers}
    container = {"image": NGINX_STAND_IN, "command": ["/usr/bin/serve"]}
    cluster.apply(pod("web", runtime_class="native", container=container))
    cluster.wait_ready("web")
    assert (
        "Stand-in for nginx"
        in cluster.kubectl("exec", "web", "--", "wget", "-q", "-O", "-", "http://127.0.0.1/").stdout
    )
    cluster.kubectl("logs", "web")
    cluster.kubectl("delete", "pod", "web", "--timeout=30s")


def test_a_class_it_has_no_handler_for_is_pending_and_says_why(cluster: RunningCluster) -> None:
    cluster.apply(pod("none", runtime_class="gvisor"))
    cluster.kubectl("wait", "--for=condition=PodScheduled=false", "pod/none", "--timeout=10s")
    assert 'lack runtime handler "gvisor"' in cluster.moor("explain", "pod/none").stdout
    cluster.kubectl("delete", "pod", "none")


def test_there_is_no_engine_of_our_own(cluster: RunningCluster) -> None:
    rows = cluster.moor("status").stdout.splitlines()
    assert [row.split()[0] for row in rows[1:5]] == [
        "supervisor", "apiserver", "node", "controllers",
    ]  # fmt: skip
    said = cluster.moor("image", "load", str(Path(MOOR[0])), status=1).stderr
    assert "images are loaded into the cluster's own engine only" in said
