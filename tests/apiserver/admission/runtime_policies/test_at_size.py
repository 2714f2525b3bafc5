"""A hundred nodes with different handlers: pods are fitted, placed, refused and counted.

Nodes and profiles are created through the API as node agents do it; no program runs on them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from moorage.api.runtime_group import API_VERSION, feature_label
from tests.running import RunningCluster, runtime_class, until

pytestmark = pytest.mark.slow


_NODES = 100
_RUNC, _RUNSC, _KATA = _ALL = ("sim-runc", "sim-runsc", "sim-kata")
_HANDLERS = ((_RUNC,), (_RUNC, _RUNSC), _ALL, (_KATA,))
_LEVELS = {_RUNC: "shared-kernel", _RUNSC: "user-space-kernel", _KATA: "virtual-machine"}
_CLASSES = {"size-native": _RUNC, "size-gvisor": _RUNSC, "size-kata": _KATA}
_NAMESPACE = "at-size"


def _handlers(number: int) -> tuple[str, ...]:
    return _HANDLERS[number % len(_HANDLERS)]


def _has_gpu(number: int) -> bool:
    """Every eighth node's Kata passes a GPU through; the others' does not."""
    return number % 8 == 3


def _node(number: int) -> dict[str, Any]:
    labels = {"at-size": "true"}
    if _has_gpu(number):
        labels[feature_label(_KATA, "gpu")] = "true"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"size-{number}", "labels": labels},
        "status": {
            "allocatable": {"cpu": "4", "memory": "64Gi" if number % 10 == 7 else "8Gi",
                            "pods": "110"},
            "runtimeHandlers": [{"name": handler} for handler in _handlers(number)],
            "conditions": [{"type": "Ready", "status": "True", "reason": "Simulated"}],
        },
    }  # fmt: skip


def _profiles(number: int) -> Iterator[dict[str, Any]]:
    for handler in _handlers(number):
        has_gpu = handler == _KATA and _has_gpu(number)
        features = {"terminal": True, "host-network": handler == _RUNC, "gpu": has_gpu}
        yield {
            "apiVersion": API_VERSION,
            "kind": "RuntimeProfile",
            "metadata": {"name": f"size-{number}.{handler}"},
            "spec": {"nodeName": f"size-{number}", "handler": handler},
            "status": {
                "isolation": _LEVELS[handler],
                "conditions": [{
                    "type": "Working", "status": "True", "reason": "Simulated", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
                "features": [
                    {"name": name, "state": "Supported" if has else "Unsupported"}
                    for name, has in features.items()
                ],
            },
        }  # fmt: skip


def _pod(name: str, needs: str = "", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", **spec.pop("container", {})}
    annotations = {"runtime.moorage.dev/needs": needs} if needs else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": _NAMESPACE, "annotations": annotations},
        "spec": {"containers": [container], "nodeSelector": {"at-size": "true"}, **spec},
    }


def _listed(objects: list[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


@pytest.fixture(scope="module")
def cluster(control_plane: RunningCluster) -> Iterator[RunningCluster]:
    kubectl = control_plane.kubectl
    plurals = ("runtimeprofiles", "runtimeclassquotas", "runtimepolicies")
    for plural in plurals:
        name = f"crd/{plural}.runtime.moorage.dev"
        until(lambda: _is_there(control_plane, name), f"{name} exists")  # noqa: B023
        kubectl("wait", "--for=condition=Established", name, "--timeout=30s")
    nodes = [_node(number) for number in range(_NODES)]
    profiles = [profile for number in range(_NODES) for profile in _profiles(number)]
    classes = [
        runtime_class("size-native", _RUNC),
        runtime_class("size-gvisor", _RUNSC, overhead={"podFixed": {"memory": "32Mi"}}),
        runtime_class("size-kata", _KATA, overhead={"podFixed": {"memory": "160Mi"}}),
    ]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
    # Handlers that work get classes of their own name too: pods of the test get none of these.
    policy = {
        "apiVersion": API_VERSION,
        "kind": "RuntimePolicy",
        "metadata": {"name": "own", "namespace": _NAMESPACE},
        "spec": {"allowedClasses": list(_CLASSES)},
    }
    control_plane.apply(namespace, *classes)
    control_plane.apply(policy)
    everything = _listed([*nodes, *profiles])
    kubectl("create", "-f", "-", stdin=everything)
    kubectl(
        "apply", "--server-side", "--subresource=status", "--force-conflicts", "-f", "-",
        stdin=everything,
    )  # fmt: skip
    try:
        yield control_plane
    finally:
        # No agent ends these pods.
        kubectl("delete", "pods", "--all", "-n", _NAMESPACE, "--force", "--grace-period=0")
        rest = _listed([*classes, namespace, *nodes, *profiles])
        kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", stdin=rest)
        kubectl("delete", "runtimeclass", *_ALL, "--ignore-not-found")


def _is_there(cluster: RunningCluster, name: str) -> bool:
    return bool(cluster.kubectl("get", name, "--ignore-not-found").stdout)


_CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "plain": ("isolation=shared-kernel", {}, "size-native"),
    "kernel": ("isolation=kernel", {}, "size-gvisor"),
    "vm": ("isolation=virtual-machine", {}, "size-kata"),
    "gpu": ("gpu", {}, "size-kata"),
    "host": ("host-network", {}, "size-native"),
    "large": (
        "isolation=kernel",
        {"container": {"resources": {"requests": {"memory": "20Gi"}}}},
        "size-gvisor",
    ),
}
"""Name → needs, more of the specification, the class that fits."""


def test_pods_are_fitted_and_placed_where_their_class_works(cluster: RunningCluster) -> None:
    pods = [
        _pod(f"{name}-{copy}", needs, **json.loads(json.dumps(spec)))
        for name, (needs, spec, _) in _CASES.items()
        for copy in range(5)
    ]
    cluster.kubectl("create", "-f", "-", stdin=_listed(pods))

    def placed() -> dict[str, str]:
        items = cluster.get("pods", "-n", _NAMESPACE)["items"]
        return {item["metadata"]["name"]: item["spec"].get("nodeName", "") for item in items}

    until(lambda: all(placed().values()), "all pods are placed", within_s=60)
    for item in cluster.get("pods", "-n", _NAMESPACE)["items"]:
        case = item["metadata"]["name"].rpartition("-")[0]
        number = int(item["spec"]["nodeName"].removeprefix("size-"))
        name = item["spec"]["runtimeClassName"]
        assert name == _CASES[case][2]
        assert _CLASSES[name] in _handlers(number)
        assert case != "gpu" or _has_gpu(number)
        assert case != "large" or number % 10 == 7
        assert item["metadata"]["annotations"]["runtime.moorage.dev/class-choice"] == "fitted"


def test_what_no_node_has_is_a_refusal(cluster: RunningCluster) -> None:
    huge = {"container": {"resources": {"requests": {"memory": "100Gi"}}}}
    refused = cluster.kubectl(
        "create", "-f", "-", stdin=json.dumps(_pod("huge", "isolation=kernel", **huge)), fails=True
    )
    assert "size-gvisor: no node has room for memory 102432Mi, overhead included" in refused.stderr
    refused = cluster.kubectl(
        "create", "-f", "-", stdin=json.dumps(_pod("both", "gpu, host-network")), fails=True
    )
    assert "size-native: it lacks gpu" in refused.stderr
    assert "size-kata: it lacks host-network" in refused.stderr


def test_warnings_reach_kubectl(cluster: RunningCluster) -> None:
    pod = _pod("warned", runtimeClassName="size-gvisor", hostNetwork=True)
    created = cluster.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    assert created.stderr.startswith(
        "Warning: spec.hostNetwork: class size-gvisor lacks host-network; classes that would do: "
    )
    assert "size-native" in created.stderr


def test_a_quota_of_a_class_is_counted_and_enforced(cluster: RunningCluster) -> None:
    quota = {
        "apiVersion": API_VERSION,
        "kind": "RuntimeClassQuota",
        "metadata": {"name": "vms", "namespace": _NAMESPACE},
        "spec": {"className": "size-kata", "hard": {"pods": 12}},
    }
    before = [item for item in cluster.get("pods", "-n", _NAMESPACE)["items"]
              if item["spec"].get("runtimeClassName") == "size-kata"]  # fmt: skip
    cluster.apply(quota)

    def used() -> str:
        found = cluster.get("runtimeclassquota", "vms", "-n", _NAMESPACE)
        return str(found.get("status", {}).get("used", {}).get("pods", ""))

    until(lambda: used() == str(len(before)), "the quota is counted")
    template = {
        "metadata": {"labels": {"app": "vms"}},
        "spec": _pod("x", runtimeClassName="size-kata")["spec"],
    }
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "vms", "namespace": _NAMESPACE},
        "spec": {"replicas": 20, "selector": {"matchLabels": {"app": "vms"}},
                 "template": template},
    }  # fmt: skip
    cluster.apply(replica_set)
    until(lambda: used() == "12", "the quota is used up")
    pods = cluster.get("pods", "-n", _NAMESPACE)["items"]
    assert sum(item["spec"].get("runtimeClassName") == "size-kata" for item in pods) == 12
    said = "exceeded class quota: vms (class size-kata), requested: pods=1, used: pods=12"
    until(
        lambda: said in cluster.kubectl("get", "events", "-n", _NAMESPACE).stdout,
        "the ReplicaSet says why it has fewer pods",
    )
    cluster.kubectl("delete", "replicaset", "vms", "-n", _NAMESPACE, "--cascade=orphan")
    cluster.kubectl(
        "delete", "pods", "-n", _NAMESPACE, "-l", "app=vms", "--force", "--grace-period=0"
    )
    until(lambda: used() == str(len(before)), "pods that are gone are not counted")
