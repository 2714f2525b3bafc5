"""Pods on a full node: each waits for the room of its predecessors, and none fails."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.running import RunningCluster, pod, until

pytestmark = [pytest.mark.runtime, pytest.mark.timeout(900)]

_PORT = 28_180
PODS = int(os.environ.get("MOORAGE_SHORT_PODS", "20"))


@pytest.fixture
def namespace(whole_cluster: RunningCluster) -> Iterator[str]:
    name = f"full-{uuid.uuid4().hex[:8]}"
    whole_cluster.create_namespace(name)
    yield name
    whole_cluster.remove("namespace", name)


def short(name: str, namespace: str, *, runtime_class: str = "", **more: Any) -> dict[str, Any]:
    """A pod that ends by itself at once."""
    container = {"command": ["true"], **more.pop("container", {})}
    body = pod(name, runtime_class=runtime_class, container=container, **more)
    body["spec"]["restartPolicy"] = "Never"
    body["metadata"]["namespace"] = namespace
    return body


def most(cluster: RunningCluster, resource: str, share: int) -> str:
    """Return the amount of a resource of which the node has room for `share` pods."""
    (node,) = cluster.get("nodes")["items"]
    text = node["status"]["allocatable"][resource]
    if resource == "cpu":
        return f"{int(float(text) * 1000) // share}m"
    units = {"Ki": 1024, "Mi": 1024**2}
    amount = int(text[:-2]) * units[text[-2:]] if text[-2:] in units else int(text)
    return str(amount // share)


def phases(cluster: RunningCluster, namespace: str) -> Counter[tuple[str, str]]:
    return Counter(
        (pod["status"]["phase"], pod["status"].get("reason", ""))
        for pod in cluster.get("pods", "-n", namespace)["items"]
    )


def wait_ended(cluster: RunningCluster, namespace: str, count: int, within_s: float) -> None:
    wanted = {("Succeeded", ""): count}
    seen: Counter[tuple[str, str]] = Counter()

    def has_ended() -> bool:
        nonlocal seen
        seen = phases(cluster, namespace)
        return seen == wanted or any(phase == "Failed" for phase, _ in seen)

    try:
        until(has_ended, "the pods have ended", within_s=within_s)
    finally:
        print(seen)
    assert seen == wanted


def test_pods_wait_for_each_resource_under_each_handler(
    whole_cluster: RunningCluster, namespace: str
) -> None:
    """Of each group two fit at once, of that with a host port one."""
    handlers = ["native", "crun", "gvisor" if shutil.which("runsc") else "crun"]
    resources = ["cpu", "memory", "ephemeral-storage"]
    bodies = [
        short(
            f"port-{n}", namespace, container={"ports": [{"containerPort": 80, "hostPort": _PORT}]}
        )
        for n in range(4)
    ]
    for resource, runtime_class in zip(resources, handlers, strict=True):
        requests = {"requests": {resource: most(whole_cluster, resource, 2)}}
        bodies += [
            short(
                f"{resource}-{n}",
                namespace,
                runtime_class=runtime_class,
                container={"resources": requests},
            )
            for n in range(6)
        ]
    whole_cluster.apply(*bodies)
    wait_ended(whole_cluster, namespace, len(bodies), 180)


def test_pods_wait_for_those_that_are_deleted_by_force(
    whole_cluster: RunningCluster, namespace: str
) -> None:
    requests = {"requests": {"cpu": most(whole_cluster, "cpu", 1)}}
    for number in range(3):
        name = f"p{number}"
        stubborn = short(name, namespace, container={"resources": requests})
        script = "trap : TERM; while :; do sleep 1; done"
        stubborn["spec"]["containers"][0]["command"] = ["sh", "-c", script]
        whole_cluster.apply(stubborn)
        whole_cluster.wait_ready(name, namespace=namespace)
        whole_cluster.kubectl("delete", "pod", name, "-n", namespace, "--force", "--grace-period=0")


def test_a_job_whose_pods_do_not_fit_at_once_completes(
    whole_cluster: RunningCluster, namespace: str
) -> None:
    container = {
        "name": "app",
        "image": pod("x")["spec"]["containers"][0]["image"],
        "command": ["true"],
        "resources": {"requests": {"cpu": most(whole_cluster, "cpu", 2)}},
    }
    spec = {"containers": [container], "restartPolicy": "Never"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "many", "namespace": namespace},
        "spec": {"completions": 12, "parallelism": 12, "template": {"spec": spec}},
    }
    whole_cluster.apply(job)
    whole_cluster.kubectl(
        "wait", "-n", namespace, "--for=condition=complete", "job/many", "--timeout=180s"
    )
    status = whole_cluster.get("job", "many", "-n", namespace)["status"]
    assert (status["succeeded"], status.get("failed", 0)) == (12, 0)


@pytest.mark.slow
def test_no_short_pod_on_a_full_node_is_lost(whole_cluster: RunningCluster, namespace: str) -> None:
    """`make soak` runs 500 of them."""
    requests = {"requests": {"cpu": most(whole_cluster, "cpu", 4)}}
    classes = ("native", "crun")
    bodies = [
        short(
            f"p{number}",
            namespace,
            runtime_class=classes[number % 2],
            container={"resources": requests},
        )
        for number in range(PODS)
    ]
    whole_cluster.kubectl("create", "-f", "-", stdin=json.dumps({
        "apiVersion": "v1", "kind": "List", "items": bodies
    }))  # fmt: skip
    wait_ended(whole_cluster, namespace, PODS, 60 + PODS)
