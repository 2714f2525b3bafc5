"""A cluster on another's engine, `moor up --cri`: on a containerd, and on `moor engine`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster.images import PAUSE
from moorage.wire.cri import CriClient, pb
from moorage.wire.engine_ports import engine_listeners, engine_process
from tests.containerd import running_containerd, skip_without_containerd
from tests.machine import host_resources, leftovers
from tests.own_engine import running_engine
from tests.running import (
    BUSYBOX,
    MOOR,
    NGINX_STAND_IN,
    RunningCluster,
    pod,
    running,
    runtime_class,
    skip_without_kubectl,
    skip_without_runtimes,
    until,
)

pytestmark = [pytest.mark.runtime, pytest.mark.slow, pytest.mark.timeout(300)]

# Clusters that start several times take a minute for each engine: what the agent does there with
# another's engine does not depend on which. `make soak` has both.
_IS_WHOLE = bool(os.environ.get("MOORAGE_ENGINES"))
ONE_ENGINE = pytest.mark.parametrize(
    "engine", ["containerd", "moorage"] if _IS_WHOLE else ["containerd"], indirect=True
)


@pytest.fixture(scope="module", params=["containerd", "moorage"])
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """An engine's name and its endpoint."""
    skip_without_kubectl()
    skip_without_runtimes()
    name = str(request.param)
    if name == "containerd":
        skip_without_containerd()
    before = host_resources()
    with running_containerd() if name == "containerd" else running_engine() as endpoint:
        yield name, endpoint
    assert not leftovers(before)


@pytest.fixture(scope="module")
def cluster(
    engine: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningCluster]:
    data = tmp_path_factory.mktemp("cri") / "data"
    with running(data, node_name="n1", cri=engine[1]) as cluster:
        cluster.apply(runtime_class("native", "runc"), runtime_class("none", "none"))
        yield cluster


def test_files_of_the_engine_count_to_ephemeral_storage(cluster: RunningCluster) -> None:
    names = {"fill-hostname": "/etc/hostname", "fill-resolver": "/etc/resolv.conf"}
    limits = {"limits": {"ephemeral-storage": "4Mi"}}
    for name, file in names.items():
        command = ["sh", "-c", f"head -c 8m /dev/zero >> {file}; sleep 1000"]
        cluster.apply(pod(name, container={"command": command, "resources": limits}))
    for name, file in names.items():
        until(partial(_is_evicted, cluster, name), file, 90)
        cluster.kubectl("delete", "pod", name, "--wait=false")


def _is_evicted(cluster: RunningCluster, name: str) -> bool:
    return bool(cluster.get("pod", name)["status"].get("reason") == "Evicted")


def test_pods_run_on_it(cluster: RunningCluster, engine: tuple[str, str]) -> None:
    status = cluster.get("node", "n1")["status"]
    assert status["nodeInfo"]["containerRuntimeVersion"].startswith(f"{engine[0]}://")
    assert {"", "runc"} <= {handler.get("name", "") for handler in status["runtimeHandlers"]}
    container = {"image": NGINX_STAND_IN, "command": ["/usr/bin/serve"]}
    cluster.apply(pod("web", runtime_class="native", container=container))
    cluster.wait_ready("web")
    assert (
        "Stand-in for nginx"
        in cluster.kubectl("exec", "web", "--", "wget", "-q", "-O", "-", "http://127.0.0.1/").stdout
    )
    cluster.kubectl("logs", "web")
    cluster.kubectl("delete", "pod", "web", "--timeout=30s")


def test_its_ports_and_service_addresses_are_guarded(
    cluster: RunningCluster, engine: tuple[str, str]
) -> None:
    listeners = engine_listeners(engine_process(engine[1]), ("127.0.0.1",))
    assert listeners, "an engine listens for its streams"
    decided = json.loads((cluster.data_dir / "cluster.json").read_text())
    chain = f"MOORAGE-{decided['cluster_id']}-PORTS"
    saved = subprocess.run(
        ["iptables-save", "-t", "nat"], capture_output=True, text=True, check=True
    ).stdout
    for listener in listeners:
        rule = (
            f"-A {chain} -d {listener.address}/32 -p tcp -m tcp --dport {listener.port} -j ACCEPT"
        )
        assert rule in saved
    ports = [{"containerPort": 80, "hostPort": listeners[0].port}]
    body = json.dumps(pod("thief", container={"ports": ports}))
    refused = cluster.kubectl("create", "-f", "-", stdin=body, fails=True).stderr
    assert f"hostPort {listeners[0].port} of container" in refused
    assert "is used by the engine" in refused
    with socket.socket() as client:
        client.settimeout(10)
        # Unanswered, it would leave by the default route and wait.
        with pytest.raises(ConnectionRefusedError):
            client.connect((decided["service_network"].replace("0.0/16", "77.77"), 80))


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
    errors = cluster.moor("image", "load", str(Path(MOOR[0])), status=1).stderr
    assert "images are loaded into the cluster's own engine only" in errors


# What happens between clusters and engines


def _sandboxes(endpoint: str) -> dict[str, str]:
    """The sandboxes of an engine that are ready: pod name → sandbox id."""

    async def ask() -> dict[str, str]:
        async with CriClient(endpoint) as cri:
            reply = await cri.call(cri.runtime.ListPodSandbox, pb.ListPodSandboxRequest())
            ready = [sandbox for sandbox in reply.items if sandbox.state == pb.SANDBOX_READY]
            return {obj.metadata.name: obj.id for obj in ready}

    return asyncio.run(ask())


def _stop_sandbox(endpoint: str, sandbox_id: str) -> None:
    async def stop() -> None:
        async with CriClient(endpoint) as cri:
            request = pb.StopPodSandboxRequest(pod_sandbox_id=sandbox_id)
            await cri.call(cri.runtime.StopPodSandbox, request)

    asyncio.run(stop())


@contextlib.contextmanager
def _cluster(directory: Path, **choices: Any) -> Iterator[RunningCluster]:
    with running(directory / "data", node_name="n1", **choices) as cluster:
        yield cluster


@ONE_ENGINE
def test_two_clusters_leave_each_others_pods_alone(
    cluster: RunningCluster, engine: tuple[str, str], tmp_path: Path
) -> None:
    cluster.apply(pod("of-first"))
    cluster.wait_ready("of-first")
    with _cluster(tmp_path, cri=engine[1]) as second:
        second.apply(pod("of-second"))
        second.wait_ready("of-second")
        # An agent looks for orphans when it starts.
        for running_cluster in (cluster, second):
            running_cluster.moor("down", "--keep-pods")
            running_cluster.moor("up", "--detach")
        second.wait_ready("of-second")
        cluster.wait_ready("of-first")
        pods = {name for name in _sandboxes(engine[1]) if not name.startswith("probe-")}
        assert pods == {"of-first", "of-second"}
    # Its end took its own pods only; the first cluster may probe a handler meanwhile.
    assert {n for n in _sandboxes(engine[1]) if not n.startswith("probe-")} == {"of-first"}
    cluster.kubectl("delete", "pod", "of-first", "--timeout=30s")


def test_a_stopped_sandbox_comes_back_under_its_handler_though_the_class_is_gone(
    cluster: RunningCluster, engine: tuple[str, str]
) -> None:
    cluster.apply(runtime_class("passing", "runc"))
    cluster.apply(pod("classed", runtime_class="passing"))
    cluster.wait_ready("classed")
    cluster.kubectl("delete", "runtimeclass", "passing")
    before = _sandboxes(engine[1])["classed"]
    _stop_sandbox(engine[1], before)
    until(lambda: _sandboxes(engine[1]).get("classed", before) != before, "another sandbox")
    cluster.wait_ready("classed")

    async def handler() -> str:
        async with CriClient(engine[1]) as cri:
            request = pb.PodSandboxStatusRequest(pod_sandbox_id=_after)
            reply = await cri.call(cri.runtime.PodSandboxStatus, request)
            return reply.status.runtime_handler

    _after = _sandboxes(engine[1])["classed"]
    assert asyncio.run(handler()) == "runc"
    events = cluster.get("events", "--field-selector", "involvedObject.name=classed")["items"]
    failed = [event["message"] for event in events if event["reason"].startswith("Failed")]
    # Engines end containers before they show the sandbox as stopped: a start in between fails once.
    assert len(failed) <= 1, failed
    cluster.kubectl("delete", "pod", "classed", "--timeout=30s")


# One engine will do: the agent writes volumes by itself, and a Secret's time takes half a minute.
@pytest.mark.parametrize("engine", ["moorage"], indirect=True)
def test_secrets_go_on_rotating_after_keep_pods(
    cluster: RunningCluster, engine: tuple[str, str]
) -> None:
    def secret(value: str) -> dict[str, object]:
        meta = {"name": "turning"}
        return {
            "apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"key": value},
        }  # fmt: skip

    cluster.apply(secret("one"))
    mount = {"volumeMounts": [{"name": "s", "mountPath": "/s"}]}
    volumes = [{"name": "s", "secret": {"secretName": "turning"}}]
    cluster.apply(pod("reader", container=mount, volumes=volumes))
    cluster.wait_ready("reader")
    before = _sandboxes(engine[1])["reader"]

    def value() -> str:
        return cluster.kubectl("exec", "reader", "--", "cat", "/s/key").stdout

    assert value() == "one"
    cluster.moor("down", "--keep-pods")
    assert before in _sandboxes(engine[1]).values()
    cluster.moor("up", "--detach")
    cluster.apply(secret("two"))
    cluster.kubectl("annotate", "pod", "reader", f"look={time.time_ns()}")
    until(lambda: value() == "two", "the new value", within_s=90)
    assert _sandboxes(engine[1])["reader"] == before
    cluster.kubectl("delete", "pod", "reader", "--timeout=30s")


@ONE_ENGINE
def test_down_ends_pods_and_their_volumes_and_the_engine_can_change(
    engine: tuple[str, str], tmp_path: Path
) -> None:
    with _cluster(tmp_path, cri=engine[1]) as cluster:
        cluster.apply(pod("moving"))
        cluster.wait_ready("moving")
        cluster.moor("down", "--keep-pods")
        refused = cluster.moor("up", "--own-engine", status=1).stderr
        assert f"pods of this cluster may still run on the engine at {engine[1]}" in refused
        assert "moving" in _sandboxes(engine[1])
        cluster.moor("down")
        assert "moving" not in _sandboxes(engine[1])
        assert str(cluster.data_dir / "node") not in Path("/proc/mounts").read_text()
        # The same pod on our own engine, and back again; never on both.
        cluster.moor("up", "--detach", "--own-engine")
        cluster.wait_ready("moving")
        assert "moving" not in _sandboxes(engine[1])
        cluster.moor("down", "--keep-pods")
        refused = cluster.moor("up", "--cri", engine[1], status=1).stderr
        assert "may still run on its own engine" in refused
        cluster.moor("down")
        cluster.moor("up", "--detach", "--cri", engine[1])
        # Its status says Ready until the node agent has looked at it.
        until(lambda: "moving" in _sandboxes(engine[1]), "the sandbox", within_s=60)
        cluster.wait_ready("moving")


def test_runtimes_are_the_engines(cluster: RunningCluster) -> None:
    rows = json.loads(cluster.moor("runtimes", "-o", "json").stdout)
    status = cluster.get("node", "n1")["status"]["runtimeHandlers"]
    assert {row["handler"] for row in rows} == {handler.get("name", "") for handler in status}
    assert all(row["available"] for row in rows)


def test_images_made_here_reach_it(
    cluster: RunningCluster, engine: tuple[str, str], tmp_path: Path
) -> None:
    archive = tmp_path / "images.tar"
    answer = cluster.moor("image", "save", BUSYBOX, PAUSE, "-o", str(archive))
    assert answer.stdout.split() == [BUSYBOX, PAUSE]
    assert not answer.stderr
    if engine[0] == "containerd":
        socket_path = engine[1].removeprefix("unix://")
        ctr = ["ctr", "--address", socket_path, "--namespace", "k8s.io"]
        listed = subprocess.run(
            [*ctr, "images", "import", str(archive)],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert BUSYBOX in listed.stdout
    refused = cluster.moor("image", "save", BUSYBOX, "-o", str(archive), status=1).stderr
    assert "--force to replace it" in refused
    refused = cluster.moor("image", "save", "nginx", "-o", str(tmp_path / "x"), status=1).stderr
    assert "image nginx is not one of those built from this machine's programs" in refused
