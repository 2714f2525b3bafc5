from __future__ import annotations

import msgspec

from moorage.api.workloads import ReplicaSet
from moorage.controllers.pods import next_available_s, pod_of
from moorage.controllers.replicasets import observed_status
from moorage.wire.client.resources import REPLICA_SETS
from tests.controllers.objects import NOW, TEMPLATE, pod, replica_set


def asking(replicas: int, min_ready_s: int = 0) -> ReplicaSet:
    base = replica_set("rs", replicas)
    spec = msgspec.structs.replace(base.spec, min_ready_seconds=min_ready_s)
    return msgspec.structs.replace(base, spec=spec)


def test_pods_are_counted_by_label_readiness_and_availability() -> None:
    pods = [
        pod("a", ready_for=60),
        pod("b", ready_for=5),
        pod("c", ready_for=None),
        pod("d", labels={"app": "old"}, ready_for=60),
    ]
    status = observed_status(asking(4, min_ready_s=10), pods, 2, None, NOW)
    assert status.replicas == 4
    assert status.fully_labeled_replicas == 3
    assert status.ready_replicas == 3
    assert status.available_replicas == 2
    assert status.terminating_replicas == 2
    assert status.conditions == ()
    assert next_available_s(pods, 10, NOW) == 5


def test_nothing_to_wait_for_when_all_ready_pods_are_available() -> None:
    assert next_available_s([pod("a"), pod("b", ready_for=None)], 10, NOW) is None


def test_failure_is_reported_once_and_removed_when_over() -> None:
    wanted = asking(3)
    failed = observed_status(wanted, [pod("a")], 0, "quota", NOW)
    (condition,) = failed.conditions
    assert (condition.type, condition.status) == ("ReplicaFailure", "True")
    assert (condition.reason, condition.message) == ("FailedCreate", "quota")
    again = msgspec.structs.replace(wanted, status=failed)
    assert observed_status(again, [pod("a")], 0, "other words", NOW).conditions == (condition,)
    assert observed_status(again, [pod("a")], 0, None, NOW).conditions == ()


def test_too_many_pods_fail_to_be_deleted() -> None:
    failed = observed_status(asking(0), [pod("a")], 0, "why", NOW)
    assert failed.conditions[0].reason == "FailedDelete"


def test_a_pod_has_the_templates_labels_and_its_set_as_controller() -> None:
    made = pod_of(REPLICA_SETS, replica_set("web-1", 1).metadata, TEMPLATE)
    assert made["metadata"]["generateName"] == "web-1-"
    assert made["metadata"]["labels"] == {"app": "web"}
    assert made["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "web-1",
            "uid": "web-1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert made["spec"] == {"containers": [{"name": "c"}]}
