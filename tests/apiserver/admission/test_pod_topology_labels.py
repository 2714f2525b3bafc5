"""Zones and regions as labels of pods."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.nodes import Node
from moorage.apiserver.admission.pod_topology_labels import PodTopologyLabels
from tests.apiserver.admission.writes import admit, pod, write

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
NODES = {
    name: msgspec.convert({"metadata": {"name": name, "labels": labels}}, Node)
    for name, labels in {
        "far": {ZONE: "z", REGION: "r", "topology.kubernetes.io/rack": "1"},
        "plain": {"a": "b"},
    }.items()
}
PLUGIN = PodTopologyLabels(NODES.get)


def test_a_pod_created_on_a_node_gets_its_zone_and_region() -> None:
    bound = pod({"nodeName": "far"}, labels={"app": "a", ZONE: "other"})
    after = admit(PLUGIN, write(obj=bound))
    assert after["metadata"]["labels"] == {"app": "a", ZONE: "z", REGION: "r"}


@pytest.mark.parametrize(
    ("target", "labels"),
    [
        ({"kind": "Node", "name": "far"}, {"app": "a", ZONE: "z", REGION: "r"}),
        ({"kind": "Node", "name": "plain"}, {"app": "a"}),
        ({"kind": "Pod", "name": "far"}, {"app": "a"}),
        ({}, {"app": "a"}),
    ],
)
def test_a_binding_gets_the_zone_and_region_of_its_node(
    target: dict[str, str], labels: dict[str, str]
) -> None:
    binding = {"metadata": {"name": "p", "labels": {"app": "a"}}, "target": target}
    after = admit(PLUGIN, write(obj=binding, subresource="binding"))
    assert after["metadata"]["labels"] == labels


@pytest.mark.parametrize("node_name", ["plain", "gone", None])
def test_without_labels_to_copy_a_pod_stays(node_name: str | None) -> None:
    before = pod({"nodeName": node_name} if node_name else {})
    after = admit(PLUGIN, write(obj=before))
    assert "labels" not in after["metadata"]


def test_updates_of_a_pod_that_runs_leave_its_labels() -> None:
    assert not PLUGIN.scope.covers("pods", "", "UPDATE")
    assert not PLUGIN.scope.covers("pods", "binding", "UPDATE")
