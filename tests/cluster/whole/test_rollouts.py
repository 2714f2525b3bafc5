"""Rollouts with real pods: runc to crun, and to a runtime that breaks half-way."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.running import BUSYBOX, RunningCluster, runtime_class, until

pytestmark = [pytest.mark.runtime, pytest.mark.slow, pytest.mark.timeout(300)]

_CRUN = shutil.which("crun")


@pytest.fixture
def namespace(whole_cluster: RunningCluster) -> Iterator[str]:
    """A namespace, and the name of a rollout, a handler and a class; all are gone afterwards."""
    name = f"r-{uuid.uuid4().hex[:8]}"
    whole_cluster.create_namespace(name)
    whole_cluster.kubectl("label", "namespace", name, f"rollout={name}")
    yield name
    for kind in ("runtimerollout", "namespace", "runtimeclass"):
        whole_cluster.remove(kind, name)
    _handler_file(whole_cluster, name).unlink(missing_ok=True)


def _handler_file(cluster: RunningCluster, name: str) -> Path:
    return cluster.data_dir / "engine" / "handlers.d" / f"{name}.toml"


def _workload(kind: str, name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "app", "image": BUSYBOX, "command": ["sleep", "3600"]}
    pod = {"runtimeClassName": "native", "terminationGracePeriodSeconds": 0,
           "containers": [container]}  # fmt: skip
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            **spec,
        },
    }


def _apply_workloads(cluster: RunningCluster, namespace: str) -> None:
    cluster.apply(
        *(_workload("Deployment", f"d{one}", namespace, replicas=1) for one in range(4)),
        _workload("StatefulSet", "s", namespace, replicas=1, serviceName="s"),
        _workload("DaemonSet", "every", namespace),
    )
    for one in range(4):
        cluster.kubectl("rollout", "status", f"deployment/d{one}", "-n", namespace)


def _status(cluster: RunningCluster, name: str) -> dict[str, Any]:
    shown = cluster.moor("rollout", "status", name, "-o", "json").stdout
    status: dict[str, Any] = json.loads(shown).get("status", {})
    return status


def _pods(cluster: RunningCluster, namespace: str) -> set[tuple[str, bool]]:
    """The class of each pod, and whether it is ready."""
    return {
        (
            pod["spec"]["runtimeClassName"],
            any(
                one["type"] == "Ready" and one["status"] == "True"
                for one in pod["status"].get("conditions", ())
            ),
        )
        for pod in cluster.get("pods", "-n", namespace)["items"]
        if "deletionTimestamp" not in pod["metadata"]
    }


def _templates(cluster: RunningCluster, namespace: str) -> set[str]:
    kinds = "deployments,statefulsets,daemonsets"
    return {
        one["spec"]["template"]["spec"]["runtimeClassName"]
        for one in cluster.get(kinds, "-n", namespace)["items"]
    }


def _start(cluster: RunningCluster, namespace: str, to: str, *options: str, status: int = 0) -> str:
    return cluster.moor(
        "rollout", "start", "--from", "native", "--to", to, "--name", namespace,
        "--namespace-selector", f"rollout={namespace}", "--watch", *options, status=status,
    ).stdout  # fmt: skip


def test_workloads_go_from_runc_to_crun_by_waves_and_back(
    whole_cluster: RunningCluster, namespace: str
) -> None:
    _apply_workloads(whole_cluster, namespace)
    shown = _start(whole_cluster, namespace, "crun", "--wave", "3")
    assert shown.startswith(f"rollout {namespace} started\n")
    assert shown.splitlines()[-1] == "Completed: 6/6 moved"
    assert _pods(whole_cluster, namespace) == {("crun", True)}
    whole_cluster.moor("rollout", "back", namespace, "--watch")
    assert _templates(whole_cluster, namespace) == {"native"}
    until(lambda: _pods(whole_cluster, namespace) == {("native", True)}, "pods of runc", 60)


def test_a_runtime_that_breaks_half_way_stops_the_rollout_which_goes_back(
    whole_cluster: RunningCluster, namespace: str, tmp_path: Path
) -> None:
    # The canary's containers start; after four, none does.
    starts, program = tmp_path / "starts", tmp_path / "runtime"
    program.write_text(
        f'#!/bin/sh\nif echo "$*" | grep -qw create; then\n  echo >> {starts}\n'
        f'  if [ "$(wc -l < {starts})" -gt 4 ]; then\n'
        f'    echo "the runtime is broken" >&2; exit 1\n  fi\nfi\nexec {_CRUN} "$@"\n'
    )
    program.chmod(0o755)
    scratch = _handler_file(whole_cluster, namespace).with_suffix(".new")
    scratch.write_text(f'adapter = "oci"\nbinary = "{program}"\n')
    scratch.replace(_handler_file(whole_cluster, namespace))
    until(lambda: namespace in _handlers(whole_cluster), "the handler")
    whole_cluster.apply(runtime_class(namespace, namespace))
    _apply_workloads(whole_cluster, namespace)
    options = ("--wave", "2", "--ready-within", "10s", "--on-failure", "rollback")
    _start(whole_cluster, namespace, namespace, *options, status=1)
    assert _status(whole_cluster, namespace)["phase"] == "RolledBack"
    stop = _status(whole_cluster, namespace)["stop"]
    assert stop["reason"] == "NotReady"
    assert stop["rollsBack"]
    assert _templates(whole_cluster, namespace) == {"native"}
    until(lambda: _pods(whole_cluster, namespace) == {("native", True)}, "pods of runc", 60)
    shown = whole_cluster.moor("rollout", "status", namespace).stdout
    assert "no further pod became ready within 10s" in shown


def _handlers(cluster: RunningCluster) -> set[str]:
    status = cluster.get("node", "n1")["status"]
    return {handler.get("name", "") for handler in status["runtimeHandlers"]}
