"""Persistent volumes on a real node: provisioned, mounted, kept, removed with their claims."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.running import BUSYBOX, RunningCluster, pod, until

pytestmark = pytest.mark.runtime


@pytest.fixture
def name(whole_cluster: RunningCluster) -> Iterator[str]:
    name = f"v-{uuid.uuid4().hex[:8]}"
    yield name
    whole_cluster.kubectl("delete", "statefulset,pod", name, f"{name}-2", "--ignore-not-found")
    whole_cluster.kubectl("delete", "pvc", name, f"data-{name}-0", "--ignore-not-found")


def claim(name: str, **spec: Any) -> dict[str, Any]:
    usual = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"storageClassName": "local-path", **usual, **spec},
    }


def using(pod_name: str, claim_name: str, *, runtime_class: str = "", **mount: Any) -> Any:
    container = {"volumeMounts": [{"name": "data", "mountPath": "/data", **mount}]}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}]
    return pod(pod_name, runtime_class=runtime_class, container=container, volumes=volumes)


def run(cluster: RunningCluster, pod_name: str, script: str, *, fails: bool = False) -> str:
    done = cluster.kubectl("exec", pod_name, "--", "sh", "-c", script, fails=fails)
    return done.stdout + done.stderr


def directory(cluster: RunningCluster, claim_name: str) -> Path:
    """Where the data of a claim's volume is on this host."""
    uid = cluster.get("pvc", claim_name)["metadata"]["uid"]
    return cluster.data_dir / "node" / "local-volumes" / str(uid)


def is_there(cluster: RunningCluster, kind: str, name: str) -> bool:
    return bool(cluster.kubectl("get", kind, name, "--ignore-not-found", "-o", "name").stdout)


def events(cluster: RunningCluster, name: str) -> list[str]:
    listed = cluster.get("events", f"--field-selector=involvedObject.name={name}")
    return [event["reason"] for event in listed["items"]]


def test_the_data_of_a_stateful_set_outlives_its_pods(
    whole_cluster: RunningCluster, name: str
) -> None:
    template = claim("data")
    container = {
        "name": "app", "image": BUSYBOX, "command": ["sleep", "3600"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }  # fmt: skip
    labels = {"app": name}
    whole_cluster.apply({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
        "spec": {
            "replicas": 1, "serviceName": name, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
            },
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": template["spec"]}],
        },
    })  # fmt: skip
    member, claim_name = f"{name}-0", f"data-{name}-0"
    until(lambda: is_there(whole_cluster, "pod", member), "the pod")
    whole_cluster.wait_ready(member)
    run(whole_cluster, member, "echo kept > /data/file")
    first = whole_cluster.get("pod", member)["metadata"]["uid"]
    whole_cluster.kubectl("delete", "pod", member)
    until(
        lambda: (
            is_there(whole_cluster, "pod", member)
            and whole_cluster.get("pod", member)["metadata"]["uid"] != first
        ),
        "the pod's successor",
    )
    whole_cluster.wait_ready(member)
    assert run(whole_cluster, member, "cat /data/file") == "kept\n"

    place = directory(whole_cluster, claim_name)
    assert (place / "file").read_text() == "kept\n"
    volume = whole_cluster.get("pvc", claim_name)["spec"]["volumeName"]
    assert whole_cluster.get("pv", volume)["status"]["phase"] == "Bound"
    # A pod may leave anything behind.
    run(whole_cluster, member, "ln -s / /data/root; ln -s ../../.. /data/up; mkdir -p /data/a/b")
    whole_cluster.kubectl("delete", "statefulset", name)
    until(lambda: not is_there(whole_cluster, "pod", member), "the end of the pod")
    whole_cluster.kubectl("delete", "pvc", claim_name)
    until(lambda: not is_there(whole_cluster, "pv", volume), "the end of the volume")
    assert not place.exists()
    assert (whole_cluster.data_dir / "cluster.json").exists()


@pytest.mark.parametrize("runtime_class", ["native", "crun", "gvisor"])
def test_two_pods_share_a_volume_under_every_runtime(
    whole_cluster: RunningCluster, name: str, runtime_class: str
) -> None:
    handlers = whole_cluster.get("node", "n1")["status"]["runtimeHandlers"]
    wanted = {"native": "runc"}.get(runtime_class, runtime_class)
    if wanted not in {handler.get("name") for handler in handlers}:
        pytest.skip(f"no handler {wanted}")
    whole_cluster.apply(claim(name), using(name, name, runtime_class=runtime_class))
    whole_cluster.wait_ready(name)
    run(whole_cluster, name, "mkdir /data/sub; echo one > /data/sub/file; chmod 600 /data/sub/file")
    second = using(f"{name}-2", name, runtime_class=runtime_class, subPath="sub", readOnly=True)
    whole_cluster.apply(second)
    whole_cluster.wait_ready(f"{name}-2")
    assert run(whole_cluster, f"{name}-2", "cat /data/file") == "one\n"
    assert "Read-only" in run(whole_cluster, f"{name}-2", "echo two > /data/file", fails=True)


def test_a_claim_says_what_it_waits_for_and_what_it_got(
    whole_cluster: RunningCluster, name: str
) -> None:
    whole_cluster.apply(claim(name))
    until(lambda: "WaitForFirstConsumer" in events(whole_cluster, name), "the event")
    assert whole_cluster.get("pvc", name)["status"]["phase"] == "Pending"
    whole_cluster.apply(using(name, name))
    whole_cluster.wait_ready(name)
    bound = whole_cluster.get("pvc", name)
    assert bound["status"] == {
        "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Mi"},
    }  # fmt: skip
    annotations = bound["metadata"]["annotations"]
    assert annotations["volume.kubernetes.io/selected-node"] == "n1"
    until(lambda: "ProvisioningSucceeded" in events(whole_cluster, name), "the event of it")


def test_a_pod_reports_a_missing_claim_and_starts_once_it_exists(
    whole_cluster: RunningCluster, name: str
) -> None:
    whole_cluster.apply(using(name, name))

    def message() -> str:
        conditions = whole_cluster.get("pod", name)["status"].get("conditions", [])
        return " ".join(condition.get("message", "") for condition in conditions)

    until(lambda: f'persistentvolumeclaim "{name}" not found' in message(), "the reason")
    explained = whole_cluster.moor("explain", f"pod/{name}").stdout
    assert f'persistentvolumeclaim "{name}" not found' in explained
    whole_cluster.apply(claim(name))
    whole_cluster.wait_ready(name)


def test_a_static_volume_of_the_host_is_mounted_and_stays(
    whole_cluster: RunningCluster, name: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("here\n")
    volume = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "",
            "local": {"path": str(tmp_path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "Exists"}]}]}},
        },
    }  # fmt: skip
    try:
        whole_cluster.apply(volume, claim(name, storageClassName=""), using(name, name))
        whole_cluster.wait_ready(name)
        assert run(whole_cluster, name, "cat /data/file; echo more > /data/more") == "here\n"
        whole_cluster.kubectl("delete", "pod", name)
        whole_cluster.kubectl("delete", "pvc", name)
        until(lambda: whole_cluster.get("pv", name)["status"]["phase"] == "Released", "its release")
        assert (tmp_path / "more").read_text() == "more\n"
    finally:
        whole_cluster.kubectl("delete", "pv", name, "--ignore-not-found")


def test_an_ephemeral_volume_goes_with_its_pod(whole_cluster: RunningCluster, name: str) -> None:
    mounts = {"volumeMounts": [{"name": "scratch", "mountPath": "/data"}]}
    template = {"spec": claim(name)["spec"]}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    whole_cluster.apply(pod(name, container=mounts, volumes=volumes))
    whole_cluster.wait_ready(name)
    run(whole_cluster, name, "echo mine > /data/file")
    claim_name = f"{name}-scratch"
    owner = whole_cluster.get("pvc", claim_name)["metadata"]["ownerReferences"][0]
    assert owner["uid"] == whole_cluster.get("pod", name)["metadata"]["uid"]
    place = directory(whole_cluster, claim_name)
    assert (place / "file").read_text() == "mine\n"
    whole_cluster.kubectl("delete", "pod", name)
    until(lambda: not is_there(whole_cluster, "pvc", claim_name), "the end of the claim")
    until(lambda: not place.exists(), "the end of the data")
