"""Traces on objects of others: ours are removed, and what others wrote stays."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.attach.traces import (
    asks_our_labels,
    condition_patch,
    gate_patch,
    is_managed_class,
    is_ours,
    metadata_patch,
)


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        ("runtime.moorage.dev/kata", True),
        ("kata.runtime.moorage.dev/devices", True),
        ("kata.runtime.moorage.dev/Working", True),
        ("runtime.moorage.dev/handler", True),
        ("runtime.moorage.dev/needs", False),
        ("runtime.moorage.dev/default-class", False),
        ("runtime.moorage.dev/node", False),
        ("runtime.moorage.dev/StartPhases", False),
        ("kubernetes.io/os", False),
        ("notruntime.moorage.dev/x", False),
        ("runtime.moorage.dev", False),
    ],
)
def test_keys_of_ours(key: str, ours: bool) -> None:
    assert is_ours(key) == ours


def node(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, **fields}


def test_a_nodes_labels_and_conditions_go() -> None:
    one = node(status={"conditions": [{"type": "Ready"}, {"type": "k.runtime.moorage.dev/W"}]})
    one["metadata"]["labels"] = {"runtime.moorage.dev/runc": "true", "pool": "a"}
    assert metadata_patch(one) == {"metadata": {"labels": {"runtime.moorage.dev/runc": None}}}
    assert condition_patch(one) == {
        "status": {"conditions": [{"$patch": "delete", "type": "k.runtime.moorage.dev/W"}]}
    }


def test_an_object_without_traces_is_not_written() -> None:
    assert metadata_patch(node()) is None
    assert condition_patch(node()) is None


@pytest.mark.parametrize("is_written_by_us", [True, False])
def test_the_label_of_a_floor_goes_unless_a_user_wrote_it(*, is_written_by_us: bool) -> None:
    annotations = {"runtime.moorage.dev/enforced-for": "RuntimePolicy jail/p"}
    namespace = {
        "kind": "Namespace",
        "metadata": {
            "name": "jail",
            "labels": {"runtime.moorage.dev/enforce": "true", "own": "x"},
            "annotations": annotations if is_written_by_us else {"own": "y"},
        },
    }
    removed = {
        "metadata": {
            "labels": {"runtime.moorage.dev/enforce": None},
            "annotations": {"runtime.moorage.dev/enforced-for": None},
        }
    }
    assert metadata_patch(namespace) == (removed if is_written_by_us else None)


def test_a_pods_labels_are_its_owners() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {
            "labels": {"runtime.moorage.dev/trial": "x"},
            "annotations": {
                "runtime.moorage.dev/class-choice": "fitted",
                "runtime.moorage.dev/needs": "isolation=kernel",
            },
        },
    }
    assert metadata_patch(pod) == {
        "metadata": {"annotations": {"runtime.moorage.dev/class-choice": None}}
    }


def test_our_gates_are_lifted_from_the_last_and_others_stay() -> None:
    ours = "runtime.moorage.dev/handler"
    pod = {"spec": {"schedulingGates": [{"name": ours}, {"name": "other/gate"}]}}
    assert gate_patch(pod) == [
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": ours},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ]
    assert gate_patch({"spec": {"schedulingGates": [{"name": "other/gate"}]}}) is None
    assert gate_patch({"spec": {}}) is None


def affine(key: str, **spec: Any) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": ["true"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"spec": {"affinity": {"nodeAffinity": required}, **spec}}


def test_a_pod_that_waits_for_our_labels_is_known() -> None:
    assert asks_our_labels(affine("runtime.moorage.dev/kata"))
    assert not asks_our_labels(affine("runtime.moorage.dev/kata", nodeName="n"))
    assert not asks_our_labels(affine("pool"))
    assert not asks_our_labels({"spec": {}})


def test_managed_classes() -> None:
    labels = {"runtime.moorage.dev/managed": "true"}
    assert is_managed_class({"metadata": {"labels": labels}})
    assert not is_managed_class({"metadata": {}})
