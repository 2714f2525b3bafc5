"""Kubernetes' own control plane and kubelet, started by the commands of the how-to page."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization

from moorage.cluster import Choices
from moorage.cluster.creation import open_cluster
from moorage.cluster.layout import Layout
from moorage.cluster.settings import host_ip
from tests.containerd import remove_sandboxes
from tests.interchange.programs import Programs, command, kubelet_configuration, programs
from tests.ports import free_port
from tests.running import RunningCluster, until

NODE = "interchange"
# A kubelet ends what it does not know below its own, so those of two runs must differ.
_CGROUP = f"moorage-interchange-{os.getpid()}"
_CGROUPS = Path("/sys/fs/cgroup")
_WITHIN_S = 90.0
KUBELET_API_ADMIN: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "kubelet-api-admin"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "system:kubelet-api-admin",
    },
    "subjects": [
        {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "User",
            "name": "kube-apiserver-kubelet-client",
        }
    ],
}
"""What kubeadm gives the API server's client certificate by a group."""


def start_control_plane(started: Programs, paths: dict[str, str], data: Path) -> None:
    """Start kube-scheduler and kube-controller-manager as the page does, on ports that are free."""
    for name in ("kube-scheduler", "kube-controller-manager"):
        argv = command(name, {"/var/lib/moorage": str(data)})
        started.start(name, [paths[name], *argv[1:], "--secure-port", str(free_port())])


def wait_for_node(cluster: RunningCluster) -> None:
    def is_registered() -> bool:
        return bool(cluster.get("nodes")["items"])

    until(is_registered, "a node", _WITHIN_S)
    cluster.kubectl("wait", "--for=condition=Ready", "nodes", "--all", f"--timeout={_WITHIN_S:g}s")


@contextmanager
def cgroup() -> Iterator[str]:
    """A cgroup for a kubelet's pods, in every hierarchy."""
    version_2 = (_CGROUPS / "cgroup.controllers").exists()
    trees = [_CGROUPS] if version_2 else [tree for tree in _CGROUPS.iterdir() if tree.is_dir()]
    mine = [tree / _CGROUP for tree in trees]
    for path in mine:
        path.mkdir(exist_ok=True)
    try:
        yield f"/{_CGROUP}"
    finally:
        for path in mine:
            below = [below for below in path.rglob("*") if below.is_dir()]
            for directory in sorted(below, key=lambda one: len(one.parts), reverse=True):
                directory.rmdir()
            path.rmdir()


def write_kubelet_configuration(place: Path, data: Path, engine: str, **changes: Any) -> Path:
    text = json.dumps(kubelet_configuration()).replace("/var/lib/moorage", str(data))
    configuration = json.loads(text) | {
        "containerRuntimeEndpoint": engine, "cgroupRoot": f"/{_CGROUP}", "healthzPort": 0,
        "port": free_port(), "address": host_ip(), "podLogsDir": str(place / "pods"),
        "volumePluginDir": str(place / "plugins"),
    } | changes  # fmt: skip
    path = place / "kubelet.json"
    path.write_text(json.dumps({key: value for key, value in configuration.items() if value != ""}))
    return path


def start_kubelet(started: Programs, kubelet: str, place: Path, **replacements: str) -> None:
    argv = command("kubelet", {"$(hostname)": NODE, **replacements})
    more = ["--root-dir", str(place / "kubelet"), "--cert-dir", str(place / "certificates")]
    started.start("kubelet", [kubelet, *argv[1:], *more, "--node-ip", host_ip()])


@contextmanager
def real_api_server(
    place: Path, paths: dict[str, str], *, address: str = "127.0.0.1"
) -> Iterator[RunningCluster]:
    """kube-apiserver and etcd, with certificates as `moor up` makes them."""
    data, port = place / "c", free_port()
    parts = ("scheduler", "controllers", "node")
    layout = Layout(data)
    open_cluster(layout, Choices(has_node=False, without=parts, node_name=NODE, api_port=port))
    pki = layout.pki
    key = serialization.load_pem_private_key(
        (pki / "service-accounts.key").read_bytes(), password=None
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (pki / "service-accounts.pub").write_bytes(public)
    store, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    with programs(place / "server") as started:
        started.start("etcd", [
            paths["etcd"], "--data-dir", str(place / "etcd"), "--unsafe-no-fsync",
            "--listen-client-urls", store, "--advertise-client-urls", store,
            "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
            "--initial-cluster", f"default={peers}",
        ])  # fmt: skip
        options = {
            "etcd-servers": store, "secure-port": port, "bind-address": address,
            "advertise-address": host_ip(), "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "service-cluster-ip-range": "10.96.0.0/16", "client-ca-file": pki / "ca.crt",
            "tls-cert-file": pki / "apiserver.crt", "tls-private-key-file": pki / "apiserver.key",
            "service-account-key-file": pki / "service-accounts.pub",
            "service-account-signing-key-file": pki / "service-accounts.key",
            "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
            "kubelet-certificate-authority": pki / "ca.crt",
            "kubelet-client-certificate": pki / "apiserver-node-client.crt",
            "kubelet-client-key": pki / "apiserver-node-client.key",
            "kubelet-preferred-address-types": "InternalIP",
        }  # fmt: skip
        argv = [f"--{name}={value}" for name, value in options.items()]
        started.start("kube-apiserver", [paths["kube-apiserver"], *argv])
        cluster = RunningCluster(data)
        until(lambda: _is_ready(cluster), "kube-apiserver", _WITHIN_S)
        yield cluster


def _is_ready(cluster: RunningCluster) -> bool:
    try:
        return cluster.kubectl("get", "--raw", "/readyz").stdout == "ok"
    except AssertionError:
        return False


@contextmanager
def _without_sandboxes(engine: str) -> Iterator[None]:
    """Remove the sandboxes that a kubelet leaves at its end: they are in its cgroup."""
    try:
        yield
    finally:
        asyncio.run(remove_sandboxes(engine))


@contextmanager
def whole_kubernetes(
    place: Path, paths: dict[str, str], engine: str
) -> Iterator[tuple[RunningCluster, Programs]]:
    """A cluster of Kubernetes' own programs alone, of one node, on a running engine.

    Pods reach services by kube-proxy, whose rules are in the network namespace of the caller.
    """
    with (
        real_api_server(place, paths, address="0.0.0.0") as cluster,
        cgroup(),
        _without_sandboxes(engine),
        programs(place / "logs") as started,
    ):
        data = cluster.data_dir
        start_control_plane(started, paths, data)
        path = write_kubelet_configuration(place, data, engine)
        start_kubelet(
            started, paths["kubelet"], place,
            **{"/etc/kubernetes/kubelet.json": str(path), "/var/lib/moorage": str(data)},
        )  # fmt: skip
        started.start("kube-proxy", [
            paths["kube-proxy"], "--kubeconfig", str(cluster.kubeconfig),
            "--hostname-override", NODE, "--proxy-mode", "iptables",
            "--conntrack-max-per-core", "0", "--healthz-bind-address", "",
            "--metrics-bind-address", f"127.0.0.1:{free_port()}",
        ])  # fmt: skip
        cluster.apply(KUBELET_API_ADMIN)
        wait_for_node(cluster)
        yield cluster, started
