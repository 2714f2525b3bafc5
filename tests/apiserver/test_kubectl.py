"""What kubectl's users do, with the kubectl they have."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.running import EXAMPLES, RunningCluster, pod, runtime_class, until


@pytest.fixture
def namespace(control_plane: RunningCluster) -> Iterator[str]:
    name = f"t-{uuid.uuid4().hex[:8]}"
    control_plane.create_namespace(name)
    yield name
    control_plane.remove("namespace", name)


def _deployment(name: str, image: str = "app:1") -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "app", "image": image}]},
            },
        },
    }


def test_examples_of_every_api_version_apply_as_written(control_plane: RunningCluster) -> None:
    answer = control_plane.kubectl("apply", "-f", str(EXAMPLES))
    assert "Warning: node.k8s.io/v1alpha1 RuntimeClass is deprecated" in answer.stderr
    assert "Warning: extensions/v1beta1 Deployment is deprecated" in answer.stderr
    handlers = {
        obj["metadata"]["name"]: obj["handler"]
        for obj in control_plane.get("runtimeclasses")["items"]
    }
    assert (
        handlers
        | {
            "native": "runc",
            "gvisor": "gvisor",
            "sandboxed": "gvisor",
            "crun": "crun",
            "kata-containers": "kata-containers",
        }
        == handlers
    )
    control_plane.kubectl("delete", "-f", str(EXAMPLES), "--wait=false")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("explain", "pod.spec.runtimeClassName"), "RuntimeClassName refers to a RuntimeClass"),
        (("explain", "runtimeclass.handler"), "FIELD: handler <string>"),
        (("api-resources", "--api-group=node.k8s.io"), "runtimeclasses"),
        (("api-versions",), "node.k8s.io/v1beta1"),
        (("auth", "can-i", "create", "runtimeclasses"), "yes"),
        (("auth", "whoami"), "kubernetes-admin"),
        (("version",), "Server Version: v1.37"),
        (("cluster-info",), "Kubernetes control plane"),
        (("get", "--raw", "/readyz"), "ok"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_commands_that_read_the_api_itself(
    control_plane: RunningCluster, arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in control_plane.kubectl(*arguments).stdout


def test_only_administrators_write_classes_and_everybody_reads_them(
    control_plane: RunningCluster, namespace: str
) -> None:
    user = ("--as", f"system:serviceaccount:{namespace}:default", "--as-group",
            "system:authenticated")  # fmt: skip
    can = control_plane.kubectl("auth", "can-i", "list", "runtimeclasses", *user)
    assert can.stdout.strip() == "yes"
    refused = control_plane.kubectl(
        "create", "-f", "-", *user, stdin=json.dumps(runtime_class("mine", "runc")), fails=True
    )
    assert "forbidden" in refused.stderr
    assert 'cannot create resource "runtimeclasses" in API group "node.k8s.io"' in refused.stderr


def test_apply_changes_and_diff_shows_what_would(
    control_plane: RunningCluster, namespace: str
) -> None:
    wanted = _deployment("web")
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(wanted))
    wanted["spec"]["replicas"] = 3
    diff = control_plane.kubectl(
        "diff", "-n", namespace, "-f", "-", stdin=json.dumps(wanted), fails=True
    )
    assert "-  replicas: 1" in diff.stdout
    assert "+  replicas: 3" in diff.stdout
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(wanted))
    assert control_plane.get("deployment", "web", "-n", namespace)["spec"]["replicas"] == 3


def test_server_side_apply_names_the_manager_in_the_way(
    control_plane: RunningCluster, namespace: str
) -> None:
    def apply(manager: str, replicas: int, *more: str, fails: bool = False) -> str:
        wanted = _deployment("web")
        wanted["spec"]["replicas"] = replicas
        done = control_plane.kubectl(
            "apply", "--server-side", "--field-manager", manager, "-n", namespace, "-f", "-",
            *more, stdin=json.dumps(wanted), fails=fails,
        )  # fmt: skip
        return done.stderr

    apply("first", 1)
    assert 'conflict with "first": .spec.replicas' in apply("second", 2, fails=True)
    apply("second", 2, "--force-conflicts")
    assert 'conflict with "second": .spec.replicas' in apply("first", 1, fails=True)


def test_client_side_applied_objects_move_to_server_side(
    control_plane: RunningCluster, namespace: str
) -> None:
    wanted = json.dumps(_deployment("web"))
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=wanted)
    control_plane.kubectl("apply", "--server-side", "-n", namespace, "-f", "-", stdin=wanted)
    managers = {
        entry["manager"]
        for entry in control_plane.get(
            "deployment", "web", "-n", namespace, "--show-managed-fields"
        )["metadata"]["managedFields"]
    }
    assert "kubectl" in managers
    assert "kubectl-client-side-apply" not in managers


def test_scale_label_annotate_set_patch_and_edit(
    control_plane: RunningCluster, namespace: str
) -> None:
    def run(*arguments: str) -> None:
        control_plane.kubectl(*arguments, "-n", namespace)

    control_plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(_deployment("web")))
    run("scale", "deployment/web", "--replicas=2")
    run("label", "deployment/web", "tier=front")
    run("annotate", "deployment/web", "note=x")
    run("set", "image", "deployment/web", "app=app:2")
    run("patch", "deployment/web", "--type=json", "-p",
        '[{"op":"replace","path":"/spec/minReadySeconds","value":3}]')  # fmt: skip
    edited = subprocess.run(
        ["kubectl", "edit", "deployment/web", "-n", namespace],
        env={
            **control_plane.environment,
            "KUBE_EDITOR": "sed -i s/minReadySeconds:.3/minReadySeconds:\\ 4/",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert edited.returncode == 0, edited.stderr
    web = control_plane.get("deployment", "web", "-n", namespace)
    assert web["spec"]["replicas"] == 2
    assert web["metadata"]["labels"]["tier"] == "front"
    assert web["spec"]["template"]["spec"]["containers"][0]["image"] == "app:2"
    assert web["spec"]["minReadySeconds"] == 4


def test_wait_sees_a_deletion_and_a_condition(
    control_plane: RunningCluster, namespace: str
) -> None:
    gated = pod("waits", schedulingGates=[{"name": "example.com/gate"}])
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(gated))
    control_plane.kubectl(
        "wait", "--for=condition=PodScheduled=false", "pod/waits", "-n", namespace, "--timeout=10s"
    )
    control_plane.kubectl("delete", "pod", "waits", "-n", namespace, "--wait=false")
    control_plane.kubectl("wait", "--for=delete", "pod/waits", "-n", namespace, "--timeout=10s")


def test_tables_show_the_columns_people_know(control_plane: RunningCluster, namespace: str) -> None:
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(pod("shown")))

    def heads(*arguments: str) -> list[str]:
        return (
            control_plane.kubectl("get", *arguments, "-n", namespace).stdout.split("\n")[0].split()
        )

    assert heads("pods") == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert heads("pods", "-o", "wide")[5:8] == ["IP", "NODE", "NOMINATED"]
    control_plane.apply(runtime_class("columned", "runc"))
    assert heads("runtimeclasses") == ["NAME", "HANDLER", "AGE"]


def test_describe_shows_the_class_and_the_events(
    control_plane: RunningCluster, namespace: str
) -> None:
    control_plane.apply(runtime_class("described", "runc"))
    control_plane.kubectl(
        "apply", "-n", namespace, "-f", "-",
        stdin=json.dumps(pod("seen", runtime_class="described")),
    )  # fmt: skip
    control_plane.kubectl(
        "wait", "--for=condition=PodScheduled=false", "pod/seen", "-n", namespace, "--timeout=10s"
    )
    # The event follows the condition, on its own way.
    until(lambda: control_plane.get("events", "-n", namespace)["items"], "an event")
    output = control_plane.kubectl("describe", "pod", "seen", "-n", namespace).stdout
    assert "Runtime Class Name:  described" in output
    assert "no nodes available to schedule pods" in output


def test_a_namespace_goes_with_everything_in_it(control_plane: RunningCluster) -> None:
    control_plane.create_namespace("leaving")
    control_plane.kubectl("create", "configmap", "kept", "-n", "leaving")
    control_plane.kubectl("delete", "namespace", "leaving", "--timeout=30s")
    gone = control_plane.kubectl("get", "configmap", "kept", "-n", "leaving", fails=True)
    assert "not found" in gone.stderr


def test_flow_schemas_and_priority_levels_are_those_of_a_new_cluster(
    control_plane: RunningCluster,
) -> None:
    def shown() -> list[str]:
        return control_plane.kubectl("get", "flowschemas").stdout.splitlines()

    until(lambda: not any(" ? " in f"{line} " for line in shown()[1:]), "conditions")
    header, *rows = (line.split() for line in shown())
    assert header == [
        "NAME", "PRIORITYLEVEL", "MATCHINGPRECEDENCE", "DISTINGUISHERMETHOD", "AGE", "MISSINGPL",
    ]  # fmt: skip
    assert ["probes", "exempt", "2", "<none>", "False"] in [[*row[:4], row[-1]] for row in rows]
    levels = control_plane.kubectl("get", "prioritylevelconfigurations").stdout
    assert {"exempt", "catch-all", "workload-low"} <= {
        row.split()[0] for row in levels.splitlines()
    }
