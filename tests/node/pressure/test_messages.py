from __future__ import annotations

from typing import Any

import pytest

from moorage.linux.trees import DiskUse
from moorage.node.pressure.ranking import ContainerUse, PodUse
from moorage.node.pressure.thresholds import EvictionOptions, Observation, thresholds_of
from moorage.node.pressure.tracking import condition_message, eviction_message
from tests.node.objects import a_pod, wire_container

MIB = 1 << 20
SEEN = {
    "memory.available": Observation(90 * MIB, 1024 * MIB),
    "nodefs.available": Observation(5 * MIB, 100 * MIB),
    "nodefs.inodesFree": Observation(40, 1000),
}
DUE = thresholds_of(EvictionOptions())


def message(resource: str, use: PodUse | None, **spec: Any) -> tuple[str, dict[str, str]]:
    containers = [
        wire_container("a", resources={"requests": {"memory": "10Mi"}}),
        wire_container("b"),
    ]
    return eviction_message(a_pod(*containers, **spec), resource, use, DUE, SEEN)


def test_a_pod_is_blamed_for_the_containers_that_use_more_than_they_request() -> None:
    uses = {
        "a": ContainerUse(memory_bytes=10 * MIB),
        "b": ContainerUse(memory_bytes=20 * MIB),
    }
    text, annotations = message("memory", PodUse(memory_bytes=30 * MIB, containers=uses))
    assert text == (
        "The node was low on resource: memory. "
        "Threshold quantity: 100Mi, available: 90Mi. "
        "Container b was using 20Mi, request is 0, has larger consumption of memory. "
    )
    assert annotations == {
        "offending_containers": "b",
        "offending_containers_usage": "20Mi",
        "starved_resource": "memory",
    }


def test_requests_of_the_whole_pod_are_named() -> None:
    text, annotations = message(
        "memory",
        PodUse(memory_bytes=30 * MIB),
        resources={"requests": {"memory": "16Mi"}},
    )
    assert text.endswith(
        "Pod web was using 30Mi, request is 16Mi, has larger consumption of memory. "
    )
    assert annotations["offending_pod"] == "web"
    assert annotations["offending_pod_usage"] == "30Mi"


@pytest.mark.parametrize(
    ("resource", "use", "wanted"),
    [
        ("memory", None, "The node was low on resource: memory. Threshold quantity: 100Mi, "),
        ("pids", PodUse(processes=3), "The node was low on resource: pids. "),
        (
            "inodes",
            PodUse(),
            "The node was low on resource: inodes. Threshold quantity: 50, available: 40. ",
        ),
        (
            "ephemeral-storage",
            PodUse(containers={"a": ContainerUse(disk=DiskUse(3 * MIB, 1))}),
            "The node was low on resource: ephemeral-storage. Threshold quantity: 10Mi, "
            "available: 5Mi. Container a was using 3Mi, request is 0, has larger consumption of "
            "ephemeral-storage. ",
        ),
    ],
)
def test_messages_are_the_kubelets(resource: str, use: PodUse | None, wanted: str) -> None:
    text, _ = message(resource, use)
    assert text.startswith(wanted)


def test_conditions_are_listed_as_go_prints_them() -> None:
    assert condition_message(["MemoryPressure"]) == "The node had condition: [MemoryPressure]. "
    wanted = "The node had condition: [MemoryPressure DiskPressure]. "
    assert condition_message(["MemoryPressure", "DiskPressure"]) == wanted
