"""Nodes."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.kinds.node import warn_node
from tests.apiserver.registry.kinds.rows import columns, row, rows
from tests.apiserver.registry.rules import (
    KINDS,
    changed,
    complaint,
    decoded,
    updates,
)


def test_what_a_node_can_give_is_what_it_has() -> None:
    status = {"capacity": {"cpu": "4", "memory": "8Gi"}, "allocatable": {"cpu": "3"}}
    node = decoded(KINDS["Node"], changed("Node", {"status": status}))
    assert node["status"]["allocatable"] == {"cpu": "3", "memory": "8Gi"}


test_update = updates("Node", cases=[
    ({"spec.podCIDR": "10.0.0.0/24", "spec.podCIDRs": ["10.0.0.0/24"]},
     {"spec.podCIDR": "10.0.1.0/24", "spec.podCIDRs": ["10.0.1.0/24"]},
     "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid"),
    ({}, {"spec.podCIDR": "10.0.1.0/24", "spec.podCIDRs": ["10.0.1.0/24"]}, ""),
    ({"spec.providerID": "a"}, {"spec.providerID": "b"},
     'spec.providerID: Forbidden: node updates may not change providerID except from "" to '
     "valid"),
])  # fmt: skip


_TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("taints", "says"),
    [
        ([_TAINT, _TAINT | {"effect": "NoExecute"}, _TAINT | {"key": "l"}], ""),
        ([_TAINT | {"effect": ""}], "metadata.taints[0].effect: Required value"),
        ([_TAINT, {"key": "k", "effect": "X"}],
         'metadata.taints[1].effect: Unsupported value: "X": supported values: "NoSchedule", '
         '"PreferNoSchedule", "NoExecute"'),
        ([_TAINT, _TAINT], "taints must be unique by key and effect pair"),
        ([_TAINT | {"key": "a b"}], 'metadata.taints[0].key: Invalid value: "a b": '),
        ([_TAINT | {"value": "a b"}], 'metadata.taints[0].value: Invalid value: "a b": '),
    ],
)  # fmt: skip
def test_taints(taints: list[dict[str, str]], says: str) -> None:
    error = complaint("Node", changed("Node", {"spec.taints": taints}))
    assert (says in (error or "")) if says else error is None


def test_a_node_with_fields_of_old() -> None:
    node = {"spec": {"configSource": {}, "externalID": "x"}}
    assert warn_node(node, None) == [
        "spec.configSource: the feature is no longer supported",
        "spec.externalID: this field is deprecated, and is unused by Kubernetes",
    ]
    assert warn_node(node, node) == []


READY = {"conditions": [{"type": "Ready", "status": "True"}]}
NODE_INFO = {
    "kubeletVersion": "v1.36.0", "osImage": "Debian", "kernelVersion": "6.1",
    "architecture": "amd64", "containerRuntimeVersion": "containerd://2.1",
}  # fmt: skip


test_row = rows("Node", cases=[
    ({"status": {**READY, "nodeInfo": NODE_INFO, "addresses": [
        {"type": "InternalIP", "address": "10.0.0.1"}]}},
     ["x", "Ready", "<none>", "90s", "v1.36.0", "10.0.0.1", "<none>", "Debian", "6.1 (amd64)",
      "containerd://2.1"]),
])  # fmt: skip


def test_columns() -> None:
    assert columns("Node") == (
        "Name Status Roles Age Version | Internal-IP External-IP OS-Image "
        "Kernel-Version Container-Runtime"
    )


@pytest.mark.parametrize(
    ("labels", "spec", "conditions", "status", "roles"),
    [
        ({}, {}, [], "Unknown", "<none>"),
        ({}, {"unschedulable": True}, READY["conditions"], "Ready,SchedulingDisabled", "<none>"),
        ({}, {}, [{"type": "Ready", "status": "Unknown"}], "NotReady", "<none>"),
        ({"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": ""}, {},
         READY["conditions"], "Ready", "control-plane,worker"),
        ({"kubernetes.io/role": "old"}, {}, READY["conditions"], "Ready", "old"),
    ],
)  # fmt: skip
def test_a_nodes_status_and_roles(
    labels: dict[str, str],
    spec: dict[str, Any],
    conditions: list[dict[str, str]],
    status: str,
    roles: str,
) -> None:
    node = {"metadata": {"name": "n", "labels": labels}, "spec": spec,
            "status": {"conditions": conditions}}  # fmt: skip
    assert row("Node", node)[1:3] == [status, roles]
