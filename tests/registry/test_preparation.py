"""What a write may not bring along is put back before validation."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.registry.kinds.namespace import (
    prepare_namespace_create,
    prepare_namespace_finalize,
    prepare_namespace_update,
)
from moorage.registry.kinds.pod.preparation import (
    prepare_ephemeral_containers,
    prepare_pod_create,
    prepare_pod_status,
)
from moorage.registry.kinds.secret import prepare_secret_update
from moorage.registry.kinds.service import prepare_service_create
from moorage.registry.preparation import drop_status, keep_spec, keep_spec_and_labels, keep_status


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": []}, "status": status}


def test_the_main_endpoint_does_not_write_the_status() -> None:
    new, old = pod(phase="Running"), pod(phase="Pending")
    keep_status(new, old)
    assert new["status"] == {"phase": "Pending"}
    del old["status"]
    keep_status(new, old)
    assert "status" not in new


def test_the_status_endpoint_writes_status_and_metadata_only() -> None:
    new = {"metadata": {"labels": {"a": "new"}}, "spec": {"x": 1}, "data": 1, "status": {"s": 1}}
    old = {"metadata": {"labels": {"a": "old"}}, "spec": {"x": 0}, "status": {"s": 0}}
    keep_spec(new, old)
    assert new == {"metadata": {"labels": {"a": "new"}}, "spec": {"x": 0}, "status": {"s": 1}}


def test_a_workloads_status_endpoint_keeps_labels_too() -> None:
    new = {"metadata": {"labels": {"a": "new"}, "annotations": {"n": "1"}}, "status": {}}
    old = {"metadata": {"labels": {"a": "old"}}, "status": {}}
    keep_spec_and_labels(new, old)
    assert new["metadata"] == {"labels": {"a": "old"}, "annotations": {"n": "1"}}


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


def test_a_namespace_is_named_by_a_label_and_held() -> None:
    namespace = {"metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "z"}}}
    prepare_namespace_create(namespace)
    assert namespace == {
        "metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "n"}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def test_finalizers_of_a_namespace_change_through_finalize_only() -> None:
    old = {"metadata": {}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    new: dict[str, Any] = {"metadata": {}, "spec": {}, "status": {"phase": "Other"}}
    prepare_namespace_update(new, old)
    assert new == old
    new = {"metadata": {}, "spec": {}, "status": {}}
    prepare_namespace_finalize(new, old)
    assert new == {"metadata": {}, "spec": {}, "status": {"phase": "Active"}}


def test_a_secret_keeps_its_type() -> None:
    new: dict[str, Any] = {"metadata": {}}
    prepare_secret_update(new, {"type": "Opaque"})
    assert new["type"] == "Opaque"


def test_other_new_objects_have_no_status() -> None:
    deployment = {"status": {"replicas": 3}}
    drop_status(deployment)
    assert deployment == {"status": {}}
    service = {"status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}}
    prepare_service_create(service)
    assert service == {"status": {"loadBalancer": {}}}
