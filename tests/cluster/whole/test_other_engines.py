"""A cluster on another's engine, `moor up --cri`: on a containerd, and on `moor engine`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containerd import running_containerd, skip_without_containerd
from tests.machine import leftovers, machine
from tests.own_engine import running_engine
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


@pytest.fixture(scope="module", params=["containerd", "moorage"])
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """An engine's name and its endpoint."""
    skip_without_kubectl()
    skip_without_runtimes()
    name = str(request.param)
    if name == "containerd":
        skip_without_containerd()
    before = machine()
    with running_containerd() if name == "containerd" else running_engine() as endpoint:
        yield name, endpoint
    assert not leftovers(before)


@pytest.fixture(scope="module")
def cluster(
    engine: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningCluster]:
    data = tmp_path_factory.mktemp("cri") / "data"
    with running(data, "--node-name", "n1", "--cri", engine[1]) as cluster:
        cluster.apply(runtime_class("native", "runc"), runtime_class("none", "none"))
        yield cluster


def test_pods_run_on_it(cluster: RunningCluster, engine: tuple[str, str]) -> None:
    status = cluster.get("node", "n1")["status"]
    assert status["nodeInfo"]["containerRuntimeVersion"].startswith(f"{engine[0]}://")
    assert {"", "runc"} <= {each.get("name", "") for each in status["runtimeHandlers"]}
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
    cluster.apply(pod("none", runtime_class="none"))
    cluster.kubectl("wait", "--for=condition=PodScheduled=false", "pod/none", "--timeout=10s")
    assert 'lack runtime handler "none"' in cluster.moor("explain", "pod/none").stdout
    cluster.kubectl("delete", "pod", "none")


def test_there_is_no_engine_of_our_own(cluster: RunningCluster) -> None:
    rows = cluster.moor("status").stdout.splitlines()
    assert [row.split()[0] for row in rows[1:5]] == [
        "supervisor", "apiserver", "node", "controllers",
    ]  # fmt: skip
    said = cluster.moor("image", "load", str(Path(MOOR[0])), status=1).stderr
    assert "images are loaded into the cluster's own engine only" in said
