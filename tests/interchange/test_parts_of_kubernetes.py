"""Unmodified programs of Kubernetes beside ours, started by the commands of the how-to page."""

from __future__ import annotations

import base64
import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.api.runtime_group import feature_label, handler_label
from moorage.cluster.access.identities import Authority, Subject
from moorage.cluster.access.kubeconfig import Access
from moorage.cluster.access.kubeconfig import write as write_kubeconfig
from moorage.cluster.settings import host_ip
from moorage.runtimeclass.placing import requires_label
from tests.containerd import running_containerd
from tests.interchange.control_plane import (
    NODE,
    cgroup,
    real_api_server,
    start_control_plane,
    start_kubelet,
    wait_for_node,
    write_kubelet_configuration,
)
from tests.interchange.programs import command, manifests, programs, required
from tests.interchange.work import do_work
from tests.own_engine import running_engine
from tests.ports import free_port
from tests.running import RunningCluster, running, until

pytestmark = [pytest.mark.runtime, pytest.mark.slow, pytest.mark.timeout(600)]

_WITHIN_S = 90.0


def test_scheduler_and_controller_manager_work_on_our_api_server(place: Path) -> None:
    paths = required("kube-scheduler", "kube-controller-manager")
    with (
        running(place / "c", without=("scheduler", "controllers")) as cluster,
        programs(place / "logs") as started,
    ):
        start_control_plane(started, paths, cluster.data_dir)
        do_work(cluster, has_volumes=False, has_classes=True)
        started.check()


_ENGINES = {"ours": running_engine, "Debian's containerd": running_containerd}


@pytest.mark.parametrize("engine", _ENGINES)
def test_a_kubelet_works_on_our_api_server_and_an_engine(place: Path, engine: str) -> None:
    kubelet = required("kubelet")["kubelet"]
    choices: dict[str, Any] = {"has_node": False, "without": ("node",), "node_name": NODE}
    with (
        running(place / "c", **choices) as cluster,
        cgroup(),
        _ENGINES[engine]() as endpoint,
        programs(place / "logs") as started,
    ):
        path = write_kubelet_configuration(place, cluster.data_dir, endpoint)
        start_kubelet(
            started, kubelet, place,
            **{"/etc/kubernetes/kubelet.json": str(path),
               "/var/lib/moorage": str(cluster.data_dir)},
        )  # fmt: skip
        wait_for_node(cluster)
        do_work(cluster, has_volumes=False, has_classes=False)
        started.check()


def test_all_others_are_kubernetes_and_the_kubelet_joins_by_a_token(place: Path) -> None:
    paths = required("kube-scheduler", "kube-controller-manager", "kubelet")
    parts = ("scheduler", "controllers", "node")
    choices: dict[str, Any] = {"has_node": False, "without": parts, "node_name": NODE}
    with (
        running(place / "c", **choices) as cluster,
        cgroup(),
        running_engine() as engine,
        programs(place / "logs") as started,
    ):
        start_control_plane(started, paths, cluster.data_dir)
        cluster.apply(*manifests("bootstrap-token-abcdef"))
        path = write_kubelet_configuration(
            place, cluster.data_dir, engine, rotateCertificates=True, serverTLSBootstrap=True,
            tlsCertFile="", tlsPrivateKeyFile="",
        )  # fmt: skip
        start_kubelet(
            started, paths["kubelet"], place,
            **{"/etc/kubernetes/kubelet.json": str(path),
               "/var/lib/moorage/node.kubeconfig":
                   f"{place}/kubeconfig --bootstrap-kubeconfig {token_kubeconfig(place, cluster)}"},
        )  # fmt: skip
        wait_for_node(cluster)
        approve_serving_certificates(cluster)
        do_work(cluster, has_volumes=False, has_classes=False)
        started.check()


def token_kubeconfig(place: Path, cluster: RunningCluster) -> Path:
    """The administrator's kubeconfig with the page's token in the place of the certificate."""
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": "abcdef.0123456789abcdef"}
    path = place / "bootstrap.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def approve_serving_certificates(cluster: RunningCluster) -> None:
    def serving() -> list[dict[str, Any]]:
        items = cluster.get("csr")["items"]
        return [
            one for one in items if one["spec"]["signerName"] == "kubernetes.io/kubelet-serving"
        ]

    until(lambda: bool(serving()), "a request for a serving certificate", _WITHIN_S)
    for request in serving():
        cluster.kubectl("certificate", "approve", request["metadata"]["name"])
    until(
        lambda: all(one.get("status", {}).get("certificate") for one in serving()),
        "serving certificates", _WITHIN_S,
    )  # fmt: skip


def test_our_parts_work_on_a_real_api_server(place: Path) -> None:
    paths = required("kube-apiserver", "etcd")
    with (
        real_api_server(place, paths) as cluster,
        cgroup() as pods,
        running_engine() as engine,
        programs(place / "logs") as started,
    ):
        cluster.apply(*manifests("moorage-scheduler"), storage_class())
        data, pki = cluster.data_dir, cluster.data_dir / "pki"
        places = {
            "/etc/kubernetes/scheduler.conf": str(data / "scheduler.kubeconfig"),
            "/etc/kubernetes/admin.conf": str(data / "kubeconfig"),
            "/etc/kubernetes/kubelet.conf": str(data / "node.kubeconfig"),
            "/etc/kubernetes/pki/node": str(pki / "node-server"),
            "/etc/kubernetes/pki/ca": str(pki / "ca"),
            "unix:///run/moorage-engine/engine.sock": engine,
        }
        started.start("scheduler", command("moor scheduler", places))
        started.start("controllers", command("moor controllers", places))
        more = [
            "--node-name", NODE, "--node-ip", host_ip(), "--port", str(free_port()),
            "--data-dir", str(place / "node"), "--cgroup-root", pods,
        ]  # fmt: skip
        started.start("node", [*command("moor node", places), *more])
        wait_for_node(cluster)
        do_work(cluster, has_volumes=True, has_classes=False)
        started.check()


def storage_class() -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "local-path",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "runtime.moorage.dev/local-path",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


_ISOLATION = {"native": "shared-kernel", "boxed": "user-space-kernel"}


def test_our_webhook_chooses_and_refuses_classes_on_a_real_api_server(place: Path) -> None:
    paths = required("kube-apiserver", "etcd")
    with real_api_server(place, paths) as cluster, programs(place / "logs") as started:
        pki, port = cluster.data_dir / "pki", free_port()
        authority = Authority(pki, datetime.now(UTC))
        served = authority.issue("webhook", Subject("webhook", hosts=("127.0.0.1",)))
        user = authority.issue("moorage-webhook", Subject("moorage-webhook"))
        config = place / "webhook.kubeconfig"
        write_kubeconfig(
            config,
            Access(
                name="webhook",
                server=cluster.kubectl(
                    "config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"
                ).stdout,
                authority=pki / "ca.crt",
                identity=user,
            ),
        )
        places = {
            "/etc/kubernetes/admin.conf": str(cluster.data_dir / "kubeconfig"),
            "/etc/kubernetes/pki/ca": str(pki / "ca"),
            "/etc/kubernetes/moorage-webhook.conf": str(config),
            "webhook.crt": str(served.certificate),
            "webhook.key": str(served.key),
            "9443": str(port),
        }
        cluster.apply(*manifests("moorage-webhook"))
        installing = [*command("moor controllers", places), "--install-definitions"]
        started.start("controllers", installing)
        started.start("webhook", [*command("moor webhook", places), "--place-by-handler"])
        bundle = base64.b64encode((pki / "ca.crt").read_bytes()).decode()
        configurations = manifests("moorage")
        for one in configurations:
            client = one["webhooks"][0]["clientConfig"]
            client["url"] = client["url"].replace("9443", str(port))
            client["caBundle"] = bundle
        until(lambda: _answers(cluster, "runtimeprofiles"), "the definitions", _WITHIN_S)
        for handler, isolation in _ISOLATION.items():
            _make_runtime(cluster, handler, isolation)
        cluster.apply(*configurations)
        needs = {"runtime.moorage.dev/needs": "isolation=kernel"}
        until(lambda: _class_of(cluster, "fits", needs) == "boxed", "a fitted pod", _WITHIN_S)
        fitted = cluster.get("pods", "fits")
        assert fitted["spec"]["overhead"] == {"memory": "32Mi"}
        assert fitted["metadata"]["annotations"]["runtime.moorage.dev/class-choice"] == "fitted"
        unfit = json.dumps(_pod("none", {"runtime.moorage.dev/needs": "gpu"}))
        refusal = cluster.kubectl("create", "-f", "-", stdin=unfit, fails=True).stderr
        assert 'webhook "classes.runtime.moorage.dev" denied the request' in refusal
        assert "no class offers gpu" in refusal
        _check_held(cluster)
        started.check()


def _check_held(cluster: RunningCluster) -> None:
    """A pod that is held keeps what it needs, whatever a user changes."""
    cluster.apply(
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "lost"},
         "handler": "lost"},
    )  # fmt: skip
    needy = _pod("held", {"runtime.moorage.dev/needs": "gpu"})
    needy["spec"]["runtimeClassName"] = "lost"

    def is_held() -> bool:
        cluster.kubectl("delete", "pod", "held", "--ignore-not-found", "--force")
        cluster.kubectl("create", "-f", "-", stdin=json.dumps(needy))
        return bool(cluster.get("pods", "held")["spec"].get("schedulingGates"))

    until(is_held, "a pod that is held", _WITHIN_S)
    key = "runtime.moorage.dev/held-for"
    cluster.kubectl("annotate", "pod", "held", f"{key}-")
    assert cluster.get("pods", "held")["metadata"]["annotations"][key] == "gpu"
    annotation = f"/metadata/annotations/{key.replace('/', '~1')}"
    bare = json.dumps(
        [{"op": "remove", "path": path} for path in ("/spec/schedulingGates", annotation)]
    )
    cluster.kubectl("patch", "pod", "held", "--type=json", "-p", bare)
    spec = cluster.get("pods", "held")["spec"]
    assert "schedulingGates" not in spec
    assert requires_label(spec, handler_label("lost"))
    assert requires_label(spec, feature_label("lost", "gpu"))


def _answers(cluster: RunningCluster, plural: str) -> bool:
    try:
        cluster.kubectl("get", plural)
    except AssertionError:
        return False
    return True


def _make_runtime(cluster: RunningCluster, handler: str, isolation: str) -> None:
    """A node with a handler that probes found working, and its class."""
    node, group = f"n-{handler}", "runtime.moorage.dev/v1alpha1"
    cluster.apply(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}},
        {"apiVersion": group, "kind": "RuntimeProfile", "metadata": {"name": f"{node}.{handler}"},
         "spec": {"nodeName": node, "handler": handler}},
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": handler},
         "handler": handler, "overhead": {"podFixed": {"memory": "32Mi"}}},
    )  # fmt: skip
    working = {
        "type": "Working", "status": "True", "reason": "Tested", "message": "tested",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    found = {"isolation": isolation, "conditions": [working]}
    reported = {
        "runtimeHandlers": [{"name": handler}],
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
    }
    for target, status in ((f"node/{node}", reported),
                           (f"runtimeprofile/{node}.{handler}", found)):  # fmt: skip
        cluster.kubectl(
            "patch", target, "--subresource=status", "--type=merge",
            "-p", json.dumps({"status": status}),
        )  # fmt: skip


def _pod(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "example.com/none"}]},
    }


def _class_of(cluster: RunningCluster, name: str, annotations: dict[str, str]) -> str | None:
    """Create a pod again, and return the class that it got."""
    cluster.kubectl("delete", "pod", name, "--ignore-not-found", "--force")
    done = subprocess.run(
        ["kubectl", "create", "-f", "-"], input=json.dumps(_pod(name, annotations)), text=True,
        capture_output=True, env=cluster.environment, check=False, timeout=_WITHIN_S,
    )  # fmt: skip
    if done.returncode != 0:
        return None
    got: str | None = cluster.get("pod", name)["spec"].get("runtimeClassName")
    return got
