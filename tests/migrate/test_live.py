"""Migration of a live cluster: by moor, looked at with kubectl."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.running import BUSYBOX, MOOR, RunningCluster, pod

pytestmark = pytest.mark.timeout(300)

_UNTRUSTED = {"io.kubernetes.cri.untrusted-workload": "true"}


def _workload(namespace: str, kind: str, **annotations: str) -> dict[str, Any]:
    name = kind.lower()
    template: dict[str, Any] = {
        "metadata": {"labels": {"app": name}, "annotations": annotations},
        "spec": {"containers": [{"name": "app", "image": BUSYBOX}]},
    }
    spec: dict[str, Any] = {
        "replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": template,
    }  # fmt: skip
    version = "apps/v1"
    if kind == "CronJob":
        version = "batch/v1"
        template["spec"] |= {"restartPolicy": "Never"}
        job = {"spec": {"template": template}}
        spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": job}
    if kind == "Job":
        version = "batch/v1"
        template["spec"] |= {"restartPolicy": "Never"}
        spec = {"suspend": True, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    if kind == "DaemonSet":
        del spec["replicas"]
    if kind == "ReplicationController":
        version = "v1"
        spec["selector"] = {"app": name}
    metadata = {"name": name, "namespace": namespace}
    if kind == "PodTemplate":
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "template": template}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


_CHANGED = (
    "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "CronJob",
    "PodTemplate",
)  # fmt: skip


@dataclass(frozen=True)
class _Legacy:
    """A cluster, and a namespace whose workloads of each kind have an old annotation."""

    cluster: RunningCluster
    namespace: str

    def template(self, kind: str) -> dict[str, Any]:
        """The pod template of the workload of a kind."""
        item = self.cluster.get(kind.lower(), kind.lower(), "-n", self.namespace)
        if kind == "PodTemplate":
            return dict(item["template"])
        if kind == "CronJob":
            return dict(item["spec"]["jobTemplate"]["spec"]["template"])
        return dict(item["spec"]["template"])

    def migrate(self, *options: str, status: int) -> subprocess.CompletedProcess[str]:
        """Run `moor migrate --live`, which must end with that status."""
        done = subprocess.run(
            self.command(*options),
            capture_output=True,
            text=True,
            timeout=90,
            env=self.cluster.environment,
            check=False,
        )
        assert done.returncode == status, f"{done.stdout}{done.stderr}"
        return done

    @staticmethod
    def command(*options: str) -> list[str]:
        """The command line of a live migration."""
        return [*MOOR, "migrate", "--live", *options]


@pytest.fixture
def legacy(control_plane: RunningCluster) -> Iterator[_Legacy]:
    """A namespace of its own for each test, since one goes away slowly."""
    namespace = f"migration-{uuid.uuid4().hex[:8]}"
    control_plane.create_namespace(namespace)
    kinds = [*_CHANGED, "Job"]
    lone = pod("lone")
    lone["metadata"] |= {"namespace": namespace, "annotations": _UNTRUSTED}
    control_plane.apply(*(_workload(namespace, kind, **_UNTRUSTED) for kind in kinds), lone)
    yield _Legacy(control_plane, namespace)
    control_plane.kubectl("delete", "namespace", namespace)
    control_plane.kubectl("delete", "runtimeclass", "untrusted", "gvisor", "--ignore-not-found")


def test_workloads_are_migrated_once_and_the_second_time_nothing_changes(
    legacy: _Legacy,
) -> None:
    dry = legacy.migrate(status=1)
    assert f"+++ {legacy.namespace}/deployment/deployment\n" in dry.stdout
    assert "+      runtimeClassName: untrusted\n" in dry.stdout
    assert "+handler: untrusted\n" in dry.stdout
    assert "runtimeClassName" not in legacy.template("Deployment")["spec"]
    for place in ("pod/lone", "job/job"):
        assert (
            f"moor migrate: {legacy.namespace}/{place}: note: its class cannot be changed"
            in dry.stderr
        )

    written = legacy.migrate("--write", status=0)
    assert written.stdout.splitlines()[0] == "runtimeclass/untrusted migrated"
    for kind in _CHANGED:
        template = legacy.template(kind)
        assert template["spec"]["runtimeClassName"] == "untrusted", kind
        assert "annotations" not in template["metadata"], kind
        assert f"{legacy.namespace}/{kind.lower()}/{kind.lower()} migrated" in written.stdout
    assert legacy.migrate("--write", status=0).stdout == ""


def test_a_chosen_class_is_used_and_a_missing_one_is_reported(legacy: _Legacy) -> None:
    done = legacy.migrate("--class", "untrusted=gvisor", status=1)
    assert "no RuntimeClass 'gvisor': create it, or no pod can start" in done.stderr
    assert "+      runtimeClassName: gvisor\n" in done.stdout
    assert "handler: untrusted" not in done.stdout


def test_what_the_server_refuses_does_not_keep_the_others_from_going_on(
    legacy: _Legacy,
) -> None:
    labels = {"kubernetes.io/metadata.name": legacy.namespace}
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "frozen"},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": labels},
                "resourceRules": [
                    {
                        "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"],
                        "resources": ["daemonsets"],
                    }
                ],
            },
            "validations": [{"expression": "false", "message": "frozen for the weekend"}],
        },
    }  # fmt: skip
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "frozen"},
        "spec": {"policyName": "frozen", "validationActions": ["Deny"]},
    }
    legacy.cluster.apply(policy, binding)
    try:
        done = legacy.migrate("--write", status=2)
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            legacy.cluster.kubectl("delete", kind, "frozen")
    assert f"{legacy.namespace}/daemonset/daemonset: refused: the server refuses it" in done.stderr
    assert "frozen for the weekend" in done.stderr
    assert f"{legacy.namespace}/statefulset/statefulset migrated" in done.stdout
    rest = legacy.migrate("--write", status=0)
    assert rest.stdout == f"{legacy.namespace}/daemonset/daemonset migrated\n"


def _definition(group: str, version: str, plural: str, kind: str) -> dict[str, Any]:
    """A definition of a cluster-scoped kind whose objects may have any fields."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": plural, "kind": kind},
            "versions": [
                {
                    "name": version, "served": True, "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }  # fmt: skip


def test_a_policy_of_the_cluster_becomes_ours_once(control_plane: RunningCluster) -> None:
    kyverno = _definition("kyverno.io", "v1", "clusterpolicies", "ClusterPolicy")
    ours = _definition(
        "runtime.moorage.dev", "v1alpha1", "clusterruntimepolicies", "ClusterRuntimePolicy"
    )
    name = ours["metadata"]["name"]
    is_there = control_plane.kubectl("get", "crd", name, "--ignore-not-found").stdout != ""
    made = [kyverno["metadata"]["name"], *([] if is_there else [name])]
    control_plane.apply(kyverno, *([] if is_there else [ours]))
    try:
        for definition in made:
            control_plane.kubectl(
                "wait", "--for=condition=Established", f"crd/{definition}", "--timeout=60s"
            )
        rule = {
            "name": "default",
            "match": {"any": [{"resources": {"kinds": ["Pod"], "namespaces": ["agents"]}}]},
            "mutate": {"patchStrategicMerge": {"spec": {"+(runtimeClassName)": "gvisor"}}},
        }
        control_plane.apply(
            {
                "apiVersion": "kyverno.io/v1",
                "kind": "ClusterPolicy",
                "metadata": {"name": "agents"},
                "spec": {"rules": [rule]},
            }
        )
        cluster = _Legacy(control_plane, "")
        assert "+  defaultClassName: gvisor\n" in cluster.migrate(status=1).stdout
        written = cluster.migrate("--write", status=0)
        assert written.stdout == "clusterruntimepolicy/agents migrated\n"
        assert "delete it when that one is" in written.stderr
        policy = control_plane.get(name, "agents")
        assert policy["spec"]["defaultClassName"] == "gvisor"
        assert cluster.migrate("--write", status=0).stdout == ""
        control_plane.kubectl("delete", name, "agents")
    finally:
        control_plane.kubectl("delete", "crd", *made)


def test_migrations_and_other_writers_at_once_lose_nothing(legacy: _Legacy) -> None:
    arguments: dict[str, Any] = {
        "env": legacy.cluster.environment, "text": True,
        "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT,
    }  # fmt: skip
    both = [subprocess.Popen(legacy.command("--write"), **arguments) for _ in range(2)]
    marks = 0
    while any(process.poll() is None for process in both):
        marks += 1
        legacy.cluster.kubectl(
            "annotate", "deployment", "deployment", f"mark={marks}", "--overwrite",
            "-n", legacy.namespace,
        )  # fmt: skip
    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    for kind in _CHANGED:
        assert legacy.template(kind)["spec"]["runtimeClassName"] == "untrusted", outputs
    deployment = legacy.cluster.get("deployment", "deployment", "-n", legacy.namespace)
    assert deployment["metadata"]["annotations"]["mark"] == str(marks)


def test_an_unreachable_server_is_a_failure_with_status_2(tmp_path: Path) -> None:
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(kubeconfig))
    done = subprocess.run(
        [*MOOR, "migrate", "--live", "--kubeconfig", str(path), "--context", "x"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("moor: ")
