"""Runtime agent on programs of Kubernetes: its rights there, and its work beside a kubelet."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from moorage.attach.manifests import agent_policy, definitions, namespace, runtime_agent
from moorage.attach.manifests.runtime_agent import DATA_DIRECTORY, ENGINE_CONFIGURATIONS
from moorage.attach.values import AgentValues, Values
from moorage.cluster.engine.sweep import remove_directory
from moorage.cluster.settings import host_ip
from moorage.wire.client.config import load_kubeconfig
from tests.attach.hostile_agent import assert_confined
from tests.built_image import built_image
from tests.containerd import started_containerd
from tests.interchange.control_plane import (
    KUBELET_API_ADMIN,
    NODE,
    cgroup,
    real_api_server,
    start_control_plane,
    start_kubelet,
    wait_for_node,
    write_kubelet_configuration,
)
from tests.interchange.programs import programs, required
from tests.running import MOOR, RunningCluster, running, until

pytestmark = [pytest.mark.runtime, pytest.mark.slow, pytest.mark.timeout(600)]

_WITHIN_S = 180.0


def test_a_hostile_agent_has_its_own_node_alone_on_kube_apiserver(place: Path) -> None:
    # Service accounts' objects come from the controller manager.
    paths = required("kube-apiserver", "etcd")
    with real_api_server(place, paths) as cluster, programs(place / "logs") as started:
        kubeconfig = str(cluster.data_dir / "kubeconfig")
        started.start("controllers", [*MOOR, "controllers", "--kubeconfig", kubeconfig])
        asyncio.run(assert_confined(load_kubeconfig(cluster.kubeconfig)))


def test_an_agent_finds_what_works_beside_a_kubelet_and_containerd(place: Path) -> None:
    kubelet = required("kubelet")["kubelet"]
    choices: dict[str, Any] = {"has_node": False, "without": ("node",), "node_name": NODE}
    with (
        running(place / "c", **choices) as cluster,
        cgroup(),
        started_containerd() as engine,
        programs(place / "logs") as started,
    ):
        path = write_kubelet_configuration(place, cluster.data_dir, engine.endpoint)
        start_kubelet(
            started, kubelet, place,
            **{"/etc/kubernetes/kubelet.json": str(path),
               "/var/lib/moorage": str(cluster.data_dir)},
        )  # fmt: skip
        wait_for_node(cluster)
        cluster.kubectl("create", "namespace", "moorage-probes")
        started.start("runtime-agent", [
            *MOOR, "runtime-agent", "--kubeconfig", str(cluster.kubeconfig), "--node-name", NODE,
            "--cri", engine.endpoint, "--data-dir", str(place / "agent"), "--log-level", "debug",
            "--restart-command", engine.restart_command,
        ])  # fmt: skip
        until(lambda: _works(cluster, "runc"), "a profile of runc", _WITHIN_S)
        until(lambda: not _probe_classes(cluster), "the probes' classes removed", _WITHIN_S)
        profile = cluster.get("runtimeprofile", f"{NODE}.runc")
        states = {one["name"]: one["state"] for one in profile["status"]["features"]}
        assert states["exec"] == "Supported"
        labels = cluster.get("node", NODE)["metadata"]["labels"]
        assert labels["runtime.moorage.dev/runc"] == "true"
        # The kubelet's status is the kubelet's.
        conditions = cluster.get("node", NODE)["status"]["conditions"]
        assert not [one for one in conditions if "moorage" in one["type"]]
        _install(cluster, place)


def test_the_daemonset_works_with_its_image_and_no_more_rights_than_it_has(place: Path) -> None:
    paths = required(
        "kube-apiserver", "etcd", "kube-scheduler", "kube-controller-manager", "kubelet"
    )
    image = built_image()
    left = [path for path in (Path(DATA_DIRECTORY), *map(Path, ENGINE_CONFIGURATIONS))
            if not path.exists()]  # fmt: skip
    with (
        _removed_afterwards(left),
        real_api_server(place, paths, address="0.0.0.0") as cluster,
        cgroup(),
        started_containerd() as engine,
        programs(place / "logs") as started,
    ):
        data = cluster.data_dir
        start_control_plane(started, paths, data)
        path = write_kubelet_configuration(place, data, engine.endpoint)
        start_kubelet(
            started, paths["kubelet"], place,
            **{"/etc/kubernetes/kubelet.json": str(path), "/var/lib/moorage": str(data)},
        )  # fmt: skip
        cluster.apply(KUBELET_API_ADMIN)
        wait_for_node(cluster)
        socket = engine.endpoint.removeprefix("unix://")
        subprocess.run(
            ["ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", image],
            check=True, capture_output=True, timeout=_WITHIN_S,
        )  # fmt: skip
        values = Values(
            image_pull_policy="Never", agent=AgentValues(cri=engine.endpoint), log_level="debug"
        )
        made = [
            *namespace.objects(values),
            *definitions.objects(values),
            *agent_policy.objects(values),
            *runtime_agent.objects(values),
        ]
        for obj in made:
            if obj["kind"] == "DaemonSet":
                # No service address is routed here.
                (container,) = obj["spec"]["template"]["spec"]["containers"]
                server = urlsplit(load_kubeconfig(cluster.kubeconfig).server)
                container["env"] += [
                    {"name": "KUBERNETES_SERVICE_HOST", "value": host_ip()},
                    {"name": "KUBERNETES_SERVICE_PORT", "value": str(server.port)},
                ]
        cluster.apply(*made)
        try:
            until(lambda: _works(cluster, "runc"), "a profile of runc", _WITHIN_S)
            until(lambda: not _probe_classes(cluster), "the probes' classes removed", _WITHIN_S)
            labels = cluster.get("node", NODE)["metadata"]["labels"]
            assert labels["runtime.moorage.dev/runc"] == "true"
        finally:
            print(cluster.kubectl("get", "pods", "--all-namespaces", "--output", "yaml").stdout)
            print(cluster.kubectl("get", "events", "--all-namespaces").stdout)
            agent = "--selector=app.kubernetes.io/component=runtime-agent"
            print(cluster.kubectl("logs", agent, "-n", values.namespace, "--tail=-1").stdout)


@contextmanager
def _removed_afterwards(directories: Sequence[Path]) -> Iterator[None]:
    """What the agent's pod makes on this machine is gone at the end."""
    yield
    for directory in directories:
        if directory.exists():
            remove_directory(directory)


def _install(cluster: RunningCluster, place: Path) -> None:
    """Have a copy of runc installed, which restarts containerd, and wait until it works."""
    program = shutil.which("runc")
    assert program is not None
    source = {
        "architecture": cluster.get("node", NODE)["status"]["nodeInfo"]["architecture"],
        "path": str(shutil.copy(program, place / "runc-copy")),
        "sha256": hashlib.sha256(Path(program).read_bytes()).hexdigest(),
    }
    cluster.apply(
        {
            "apiVersion": "runtime.moorage.dev/v1alpha1",
            "kind": "RuntimeInstallation",
            "metadata": {"name": "copy"},
            "spec": {"handler": "runc-copy", "adapter": "oci", "sources": [source]},
        }
    )

    def is_installed() -> bool:
        entries = cluster.get("runtimeinstallation", "copy").get("status", {}).get("nodes", [])
        assert "Failed" not in [one["phase"] for one in entries], entries
        return [one["phase"] for one in entries] == ["Installed"]

    until(is_installed, "the installation", _WITHIN_S)

    def is_labelled() -> bool:
        labels = cluster.get("node", NODE)["metadata"]["labels"]
        return "runtime.moorage.dev/runc-copy" in labels

    until(is_labelled, "the label of the installed runtime", _WITHIN_S)


def _works(cluster: RunningCluster, handler: str) -> bool:
    profiles = cluster.get("runtimeprofiles")["items"]
    status = {one["metadata"]["name"]: one.get("status", {}) for one in profiles}
    found = status.get(f"{NODE}.{handler}", {})
    works = any(
        one["type"] == "Working" and one["status"] == "True" for one in found.get("conditions", [])
    )
    return works and bool(found.get("features"))


def _probe_classes(cluster: RunningCluster) -> list[str]:
    items = cluster.get("runtimeclasses")["items"]
    return [name for one in items if (name := one["metadata"]["name"]).startswith("moorage-probe")]
