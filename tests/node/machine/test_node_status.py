from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.nodes import (
    NodeCondition,
    NodeRuntimeHandler,
    NodeRuntimeHandlerFeatures,
    NodeStatus,
)
from moorage.node.machine.facts import MachineFacts
from moorage.node.machine.node_object import status_changes
from moorage.node.machine.node_status import (
    PRESSURE_EVENTS,
    NodeStatusInputs,
    allocatable_of,
    capacity_of,
    images_of,
    node_status,
)
from moorage.node.pressure.thresholds import EvictionOptions
from moorage.wire.cri import pb

FACTS = MachineFacts(
    max_pids=32768,
    cpu_count=4,
    memory_bytes=8 << 30,
    swap_bytes=0,
    disk_bytes=100 << 30,
    huge_pages={"hugepages-2Mi": 1 << 30},
    machine_id="m",
    system_uuid="",
    boot_id="b",
    kernel="6.1",
    os_image="Debian",
    architecture="amd64",
    hostname="host",
    address="10.0.0.1",
)
NOW = "2026-01-01T00:00:00Z"


def status(**fields: Any) -> NodeStatus:
    usual: dict[str, Any] = {
        "facts": FACTS,
        "capacity": {"cpu": "4"},
        "allocatable": {"cpu": "3"},
        "addresses": ["10.0.0.1"],
        "hostname": "host",
        "port": 10250,
        "engine_name": "containerd",
        "engine_version": "2.1",
        "problems": [],
        "handlers": [],
        "has_groups_policy": None,
        "images": [],
        "pressure": (),
        "before": [],
        "stamp": NOW,
    }
    return node_status(NodeStatusInputs(**(usual | fields)))


def conditions(reported: NodeStatus) -> dict[str, NodeCondition]:
    return {condition.type: condition for condition in reported.conditions}


def test_capacity_and_what_pods_may_have_of_it() -> None:
    capacity = capacity_of(FACTS, 110)
    assert capacity == {
        "cpu": "4",
        "memory": "8388608Ki",
        "ephemeral-storage": "104857600Ki",
        "pods": "110",
        "hugepages-2Mi": "1Gi",
    }
    allocatable = allocatable_of(capacity, {"cpu": "500m", "memory": "1Gi", "pods": "200"})
    assert (allocatable["cpu"], allocatable["memory"], allocatable["pods"]) == ("3500m", "6Gi", "0")


def test_a_node_that_is_well() -> None:
    by_type = conditions(status())
    assert {type_: condition.status for type_, condition in by_type.items()} == {
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "Ready": "True",
    }
    assert by_type["Ready"].reason == "KubeletReady"
    assert by_type["Ready"].message == "kubelet is posting ready status"


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        (["container runtime is down: x"], "container runtime is down: x"),
        (["a", "b"], "[a, b]"),
    ],
)
def test_a_node_that_is_not_ready(problems: list[str], message: str) -> None:
    ready = conditions(status(problems=problems))["Ready"]
    assert (ready.status, ready.reason, ready.message) == ("False", "KubeletNotReady", message)


def test_pressure_conditions_have_the_kubelets_reasons() -> None:
    by_type = conditions(status(pressure=("MemoryPressure", "DiskPressure", "PIDPressure")))
    assert {by_type[name].reason for name in by_type if name != "Ready"} == {
        "KubeletHasInsufficientMemory",
        "KubeletHasDiskPressure",
        "KubeletHasInsufficientPID",
    }
    assert all(
        (condition.type, condition.status) in PRESSURE_EVENTS for condition in by_type.values()
    )


@pytest.mark.parametrize(("before", "since"), [("True", "2020"), ("False", NOW)])
def test_the_time_changes_only_with_the_status(before: str, since: str) -> None:
    earlier = NodeCondition(type="Ready", status=before, last_transition_time="2020")
    ready = conditions(status(before=[earlier]))["Ready"]
    assert (ready.last_transition_time, ready.last_heartbeat_time) == (since, NOW)


def test_handlers_and_features_are_those_of_the_engine() -> None:
    features = NodeRuntimeHandlerFeatures(recursive_read_only_mounts=True, user_namespaces=False)
    handlers = [NodeRuntimeHandler(name="", features=features), NodeRuntimeHandler(name="crun")]
    wire = msgspec.to_builtins(status(handlers=handlers, has_groups_policy=False))
    assert [handler.get("name", "") for handler in wire["runtimeHandlers"]] == ["", "crun"]
    assert wire["features"] == {"supplementalGroupsPolicy": False}
    assert status().features is None


def test_who_it_is() -> None:
    info = status().node_info
    assert info is not None
    assert info.container_runtime_version == "containerd://2.1"
    assert info.kubelet_version.startswith("v1.37.0+moorage.")
    assert (info.system_uuid, info.swap) == ("m", None)


def test_the_largest_images_come_first_and_the_nameless_not_at_all() -> None:
    images = [
        pb.Image(id="small", repo_tags=["s:1"], size=1),
        pb.Image(id="big", repo_tags=[f"b:{index}" for index in range(9)], size=9),
        pb.Image(id="nameless", size=99),
        *(pb.Image(id=f"i{index}", repo_tags=[f"i{index}:1"], size=2) for index in range(60)),
    ]
    result = images_of(images)
    assert (len(result), result[0].size_bytes, len(result[0].names)) == (50, 9, 5)


def test_the_engines_order_of_images_and_their_names_makes_no_difference() -> None:
    tags = [f"name{index}:1" for index in range(7)]
    digests = [f"name{index}@sha256:{index}" for index in range(2)]

    def images(step: int) -> list[pb.Image]:
        listed = [
            pb.Image(id="i", repo_tags=tags[::step], repo_digests=digests[::step], size=1),
            pb.Image(id="j", repo_tags=["other:1"], size=1),
        ]
        return listed[::step]

    assert images_of(images(1)) == images_of(images(-1))


def test_the_patch_names_what_differs_and_always_the_heartbeats() -> None:
    before = status(capacity={"cpu": "4", "old": "1"}, handlers=[NodeRuntimeHandler(name="runc")])
    after = status(addresses=["10.0.0.2"])
    changes = status_changes(before, after)
    assert set(changes) == {"conditions", "capacity", "addresses", "runtimeHandlers"}
    assert changes["capacity"] == {"cpu": "4", "$patch": "replace"}
    assert changes["addresses"][-1] == {"$patch": "replace"}
    assert changes["runtimeHandlers"] is None
    assert set(status_changes(before, before)) == {"conditions"}


def test_what_hard_thresholds_keep_free_is_not_allocatable() -> None:
    capacity = {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "100Gi", "pods": "110"}
    allocatable = allocatable_of(capacity, {"memory": "1Gi"}, EvictionOptions())
    assert allocatable == {**capacity, "memory": "7068Mi", "ephemeral-storage": "90Gi"}
