"""Fields of a pod that a write may not set or change."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.kinds.pod import (
    prepare_ephemeral_containers,
    prepare_pod_create,
    prepare_pod_status,
)

FULL = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"containers": [{}]}, {"phase": "Pending", "qosClass": "BestEffort"}),
        ({"containers": [{"resources": FULL}]}, {"phase": "Pending", "qosClass": "Guaranteed"}),
        ({"containers": [{"resources": FULL}, {}]}, {"phase": "Pending", "qosClass": "Burstable"}),
        (
            {"containers": [{}], "overhead": {"cpu": "1"}},
            {"phase": "Pending", "qosClass": "BestEffort"},
        ),
        (
            {"containers": [{}], "schedulingGates": [{"name": "g"}]},
            {
                "phase": "Pending",
                "qosClass": "BestEffort",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "SchedulingGated",
                        "message": "Scheduling is blocked due to non-empty scheduling gates",
                    }
                ],
            },
        ),
    ],
)
def test_a_new_pod_starts_over(spec: dict[str, Any], status: dict[str, Any]) -> None:
    new = {"metadata": {}, "spec": spec, "status": {"phase": "Running", "podIP": "1.2.3.4"}}
    prepare_pod_create(new)
    assert new["status"] == status


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": []}, "status": status}


def test_a_pods_status_keeps_owners_and_class_of_service() -> None:
    old = pod(qosClass="Burstable") | {"metadata": {"ownerReferences": [{"uid": "1"}]}}
    new = pod(phase="Running") | {"metadata": {}}
    prepare_pod_status(new, old)
    assert new["metadata"]["ownerReferences"] == [{"uid": "1"}]
    assert new["status"] == {"phase": "Running", "qosClass": "Burstable"}


def test_only_ephemeral_containers_are_added_there() -> None:
    old = {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "n"}, "status": {"s": 1}}
    new = {
        "metadata": {"labels": {"x": "y"}, "annotations": {"n": "1"}},
        "spec": {"nodeName": "other", "ephemeralContainers": [{"name": "e"}]},
        "status": {},
    }
    prepare_ephemeral_containers(new, old)
    assert new == {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"nodeName": "n", "ephemeralContainers": [{"name": "e"}]},
        "status": {"s": 1},
    }
    assert old["spec"] == {"nodeName": "n"}
