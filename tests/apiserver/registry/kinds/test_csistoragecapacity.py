"""CSIStorageCapacities."""

from __future__ import annotations

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import KINDS, changed, creations, update_complaint

KIND = "CSIStorageCapacity"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


test_rules = creations(KIND, cases=[
    ({}, None),
    ({"storageClassName": "a_b"},
     'storageClassName: Invalid value: "a_b": a lowercase RFC 1123 subdomain must'),
    ({"storageClassName": ""},
     'storageClassName: Invalid value: "": a lowercase RFC 1123 subdomain must'),
    ({"capacity": "0"}, None),
    ({"capacity": "-1"},
     'capacity: Invalid value: "-1": must be greater than or equal to 0'),
    ({"nodeTopology": {"matchLabels": {"a": "b c"}}},
     'nodeTopology.matchLabels: Invalid value: "b c": a valid label must'),
])  # fmt: skip


def test_nodes_and_class_stay() -> None:
    says = update_complaint(KIND, changed(KIND, {"storageClassName": "t"}), changed(KIND))
    assert says == 'storageClassName: Invalid value: "t": field is immutable'
    new = changed(KIND, {"nodeTopology": {"matchLabels": {"a": "b"}}})
    says = update_complaint(KIND, new, changed(KIND))
    assert says == 'nodeTopology: Invalid value: {"matchLabels":{"a":"b"}}: field is immutable'
    assert update_complaint(KIND, changed(KIND, {"capacity": "5Gi"}), changed(KIND)) is None


def test_deprecated_labels_are_warned_about() -> None:
    topology = {
        "matchLabels": {OLD_ZONE: "a"},
        "matchExpressions": [{"key": OLD_ZONE, "operator": "Exists"}],
    }
    text = 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'
    assert KINDS[KIND].strategy.warn(changed(KIND, {"nodeTopology": topology}), None) == [
        f"nodeTopology.matchExpressions[0].key: {OLD_ZONE} is {text}",
        f"nodeTopology.matchLabels.{OLD_ZONE}: {text}",
    ]


def test_row() -> None:
    assert columns(KIND) == "Name StorageClassName Capacity |"
    assert row(KIND, {"storageClassName": "s"}) == ["x", "s", "<unset>"]
    assert row(KIND, {"storageClassName": "s", "capacity": "1Gi"}) == ["x", "s", "1Gi"]
