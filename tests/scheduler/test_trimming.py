from __future__ import annotations

from typing import Any

import msgspec

from moorage.api.nodes import Node
from moorage.api.pods import Pod
from moorage.scheduler.informers import TRIMMED_NODES, TRIMMED_PODS, TrimmedNode, TrimmedPod
from moorage.scheduler.nodes import NodeInfo, claim_keys
from moorage.scheduler.query import template_key
from moorage.wire.client.resources import NODES as NODES_
from moorage.wire.client.resources import PODS as PODS_
from tests.scheduler.objects import ZONE, a_node, a_pod, anti_affinity, spread

PODS = [
    a_pod("plain", cpu="1"),
    a_pod(
        "rich",
        cpu="100m",
        memory="1Gi",
        labels={"app": "web"},
        owner="set",
        host_port=80,
        node="n1",
        priority=5,
        runtimeClassName="kata",
        overhead={"cpu": "250m"},
        affinity=anti_affinity({"app": "web"}, ZONE),
        topologySpreadConstraints=[spread({"app": "web"})],
        tolerations=[{"key": "a", "operator": "Exists"}],
        nodeSelector={"disk": "ssd"},
        schedulingGates=[{"name": "wait"}],
        preemptionPolicy="Never",
        initContainers=[{"name": "i", "image": "init:1", "restartPolicy": "Always"}],
        volumes=[{"name": "v", "image": {"reference": "data:1"}}, {"name": "e", "emptyDir": {}}],
        nominated="n2",
        status={
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
                {"type": "Ready", "status": "False"},
            ]
        },
    ),
]


def lean(pod: Pod) -> TrimmedPod:
    wire: dict[str, Any] = msgspec.to_builtins(pod)
    wire["metadata"]["annotations"] = {"note": "long"}
    return msgspec.json.decode(msgspec.json.encode(wire), type=TrimmedPod)


def test_a_lean_pod_asks_for_the_same() -> None:
    for pod in PODS:
        trimmed = lean(pod)
        assert template_key(trimmed) == template_key(pod)
        for name in ("node_name", "priority", "scheduler_name", "preemption_policy"):
            assert getattr(trimmed.spec, name) == getattr(pod.spec, name)
        assert trimmed.spec.scheduling_gates == pod.spec.scheduling_gates
        assert trimmed.metadata.uid == pod.metadata.uid
        assert trimmed.status.nominated_node_name == pod.status.nominated_node_name


def test_what_scheduling_does_not_read_is_dropped() -> None:
    trimmed = lean(PODS[1])
    assert trimmed.metadata.annotations == {}
    assert [volume.name for volume in trimmed.spec.volumes] == ["v"]
    assert [condition.type for condition in trimmed.status.conditions] == ["PodScheduled"]


def test_pods_of_one_template_share_their_parts() -> None:
    first, second = lean(a_pod("a", cpu="1", node="n1")), lean(a_pod("b", cpu="1", node="n2"))
    assert first.spec.containers is second.spec.containers
    assert (first.spec.node_name, second.spec.node_name) == ("n1", "n2")


def test_a_lean_node_offers_the_same() -> None:
    node = a_node(
        handlers=("", "kata"), taints=("a:NoSchedule",), images={"app:1": 5}, unschedulable=True
    )
    info = NodeInfo(msgspec.json.decode(msgspec.json.encode(node), type=TrimmedNode))
    full = NodeInfo(node)
    for name in ("name", "labels", "allocatable", "hard_taints", "handlers", "images"):
        assert getattr(info, name) == getattr(full, name)
    assert isinstance(info.node, Node)
    assert info.node.spec.unschedulable


def test_the_lean_resources_are_the_plain_ones_in_another_type() -> None:
    for lean, plain, type_ in (
        (TRIMMED_PODS, PODS_, TrimmedPod),
        (TRIMMED_NODES, NODES_, TrimmedNode),
    ):
        assert lean.type is type_
        assert (lean.path(), lean.kind) == (plain.path(), plain.kind)


def test_a_lean_pod_keeps_what_scheduling_reads() -> None:
    wire: dict[str, Any] = msgspec.to_builtins(PODS[1])
    wire["metadata"] |= {
        "resourceVersion": "7",
        "generation": 3,
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [
            {"uid": "other", "kind": "A", "name": "a"},
            {"uid": "set", "kind": "B", "name": "b", "controller": True},
        ],
    }
    wire["spec"]["resources"] = {"requests": {"cpu": "3"}}
    wire["status"] |= {
        "startTime": "2026-01-02T00:00:00Z",
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"},
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
        ],
    }
    full = msgspec.convert(wire, Pod)
    obj = msgspec.convert(wire, TrimmedPod)
    for name in (
        "name", "namespace", "uid", "resource_version", "generation", "deletion_timestamp", "labels"
    ):  # fmt: skip
        assert getattr(obj.metadata, name) == getattr(full.metadata, name)
    assert [reference.uid for reference in obj.metadata.owner_references] == ["set"]
    assert obj.status == msgspec.structs.replace(full.status)
    for name in (
        "init_containers", "containers", "node_selector", "affinity", "scheduler_name",
        "tolerations", "priority", "runtime_class_name", "preemption_policy", "overhead",
        "topology_spread_constraints", "scheduling_gates", "resources", "node_name",
    ):  # fmt: skip
        assert getattr(obj.spec, name) == getattr(full.spec, name), name
        assert getattr(obj.spec, name), name


def test_volumes_with_claims_are_kept_without_their_templates() -> None:
    volumes = [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
        {"name": "c", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["x"]}}}},
    ]
    wire = msgspec.to_builtins(a_pod("p", volumes=volumes))
    trimmed = msgspec.convert(wire, TrimmedPod)
    assert msgspec.to_builtins(trimmed)["spec"]["volumes"] == (
        volumes[1],
        {"name": "c", "ephemeral": {}},
    )
    assert [*claim_keys(trimmed)] == ["default/data", "default/p-c"]
