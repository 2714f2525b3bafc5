"""Volumes as filters: which nodes a pod's claims allow, and what is bound there."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.api.pods import Pod
from moorage.scheduler.cluster_state import ClusterState
from moorage.scheduler.cycle import Cycle, Unschedulable
from moorage.scheduler.query import make_query
from tests.api.claims.objects import a_claim, a_storage_class, a_volume, claim_json
from tests.scheduler.objects import ZONE, a_cluster, a_node, a_pod

DONE = {"pv.kubernetes.io/bind-completed": "yes"}
SELECTED = "volume.kubernetes.io/selected-node"
OURS = "runtime.moorage.dev/local-path"
LATE = a_storage_class("late", provisioner=OURS, is_late=True)
STATIC = a_storage_class("late", provisioner="kubernetes.io/no-provisioner", is_late=True)
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
USED = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
    "in-use by another pod"
)


def using(*claims: str, **more: Any) -> Pod:
    volumes = [
        {"name": f"v{index}", "persistentVolumeClaim": {"claimName": claim}}
        for index, claim in enumerate(claims)
    ]
    return a_pod(volumes=volumes, **more)


def scratch(**more: Any) -> Pod:
    return a_pod("web", volumes=[{"name": "s", "ephemeral": {"volumeClaimTemplate": {}}}], **more)


def state(*objects: Any) -> ClusterState:
    stored = (PersistentVolume, PersistentVolumeClaim, StorageClass)
    made = a_cluster(*(obj for obj in objects if not isinstance(obj, stored)))
    for obj in objects:
        if isinstance(obj, PersistentVolume):
            made.storage.set_volume(obj)
        elif isinstance(obj, PersistentVolumeClaim):
            made.storage.set_claim(obj)
        elif isinstance(obj, StorageClass):
            made.storage.set_class(obj)
    return made


def decide(pod: Pod, made: ClusterState) -> str | Unschedulable:
    return Cycle(made, random.Random(1)).decide(pod, make_query(pod))


def failure(pod: Pod, made: ClusterState) -> str:
    outcome = decide(pod, made)
    assert isinstance(outcome, Unschedulable), outcome
    return outcome.message


def bound(name: str = "data", volume: str = "pv", **more: Any) -> PersistentVolumeClaim:
    return a_claim(name, volume=volume, annotations=DONE, phase="Bound", **more)


def plan(pod: Pod, made: ClusterState, node: str) -> tuple[list[tuple[str, str]], list[str]]:
    result = Cycle(made).volume_plan(pod, node)
    return result.reserved, result.selected


# before any node is looked at


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([], 'persistentvolumeclaim "data" not found'),
        ([a_claim()], "pod has unbound immediate PersistentVolumeClaims"),
        ([a_claim(storage_class="fast"), a_storage_class()],
         "pod has unbound immediate PersistentVolumeClaims"),
        ([a_claim(storage_class="late", volume="pv"), LATE],
         "pod has unbound immediate PersistentVolumeClaims"),
        ([a_claim(volume="pv", phase="Lost")],
         'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"'),
        ([bound()], 'persistentvolume "pv" not found'),
    ],
)  # fmt: skip
def test_claims_that_keep_a_pod_from_every_node(objects: list[Any], why: str) -> None:
    assert failure(using("data"), state(a_node("n1"), *objects)) == (
        f"0/1 nodes are available: {why}. no new claims to deallocate, preemption: 0/1 nodes are "
        "available: 1 Preemption is not helpful for scheduling."
    )


def test_a_claim_that_is_being_deleted_is_not_used() -> None:
    claim = claim_json()
    claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    leaving = msgspec.convert(claim, PersistentVolumeClaim)
    message = failure(using("data"), state(a_node("n1"), leaving))
    assert 'persistentvolumeclaim "data" is being deleted' in message


def test_an_ephemeral_volume_waits_for_its_claim_and_takes_no_other() -> None:
    assert (
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "web-s"'
    ) in failure(scratch(), state(a_node("n1")))
    foreign = state(a_node("n1"), bound("web-s"), a_volume())
    assert "was not created for pod default/web (pod is not owner)" in failure(scratch(), foreign)
    own = bound("web-s", owners=[{"uid": "uid-web", "controller": True}])
    assert decide(scratch(), state(a_node("n1"), own, a_volume())) == "n1"


def test_pods_without_claims_are_not_concerned() -> None:
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "i", "image": {"reference": "x"}}]
    assert decide(a_pod(volumes=volumes), state(a_node("n1"))) == "n1"


# nodes


def test_a_pod_goes_where_its_volume_is() -> None:
    nodes = [a_node(f"n{index}") for index in range(9)]
    assert decide(using("data"), state(*nodes, bound(), a_volume(node="n7"))) == "n7"


def test_a_volume_on_no_node_of_the_cluster_is_said() -> None:
    message = failure(using("data"), state(a_node("n1"), bound(), a_volume(node="gone")))
    assert message.startswith(
        "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity."
    )


def test_zones_of_volume_and_node_must_agree() -> None:
    near, far = a_node("near", labels={ZONE: "a"}), a_node("far", labels={ZONE: "b"})
    volume = a_volume(labels={ZONE: "a"})
    assert decide(using("data"), state(near, far, bound(), volume)) == "near"
    message = failure(using("data"), state(far, bound(), volume))
    assert "1 node(s) had no available volume zone." in message


def test_a_volume_that_is_lost_to_an_ephemeral_claim_is_said() -> None:
    own = bound("web-s", owners=[{"uid": "uid-web", "controller": True}])
    message = failure(scratch(), state(a_node("n1"), own))
    assert "1 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)" in message


def test_late_claims_get_the_smallest_volume_of_the_node() -> None:
    claims = [a_claim("big", storage_class="late", size="5Gi"),
              a_claim("small", storage_class="late", size="1Gi")]  # fmt: skip
    volumes = [a_volume(f"v{size}", size=f"{size}Gi", storage_class="late", node="n2")
               for size in (2, 6, 9)]  # fmt: skip
    made = state(a_node("n1"), a_node("n2"), STATIC, *claims, *volumes)
    pod = using("big", "small")
    assert decide(pod, made) == "n2"
    assert plan(pod, made, "n2") == ([("v2", "default/small"), ("v6", "default/big")], [])


def test_one_volume_is_not_given_to_two_claims_of_a_pod() -> None:
    claims = [a_claim(name, storage_class="late") for name in ("a", "b")]
    made = state(a_node("n1"), STATIC, *claims, a_volume(storage_class="late"))
    assert NO_VOLUME in failure(using("a", "b"), made)


def test_volumes_of_any_affinity_are_found() -> None:
    term = {"matchExpressions": [{"key": "region", "operator": "In", "values": ["r1"]}]}
    region = {"required": {"nodeSelectorTerms": [term]}}
    volume = a_volume(storage_class="late", nodeAffinity=region)
    claim = a_claim(storage_class="late")
    made = state(a_node("n1"), a_node("n2", labels={"region": "r1"}), STATIC, claim, volume)
    assert decide(using("data"), made) == "n2"


def test_a_claim_without_a_volume_is_provisioned() -> None:
    made = state(a_node("n1"), LATE, a_claim(storage_class="late"))
    assert decide(using("data"), made) == "n1"
    assert plan(using("data"), made, "n1") == ([], ["default/data"])


@pytest.mark.parametrize(
    "storage_class",
    [
        STATIC,
        a_storage_class("late", provisioner=OURS, is_late=True, allowedTopologies=[
            {"matchLabelExpressions": [{"key": ZONE, "values": ["elsewhere"]}]}]),
    ],
)  # fmt: skip
def test_a_class_that_provisions_nothing_here(storage_class: StorageClass) -> None:
    made = state(a_node("n1"), storage_class, a_claim(storage_class="late"))
    assert f"1 {NO_VOLUME}." in failure(using("data"), made)


def test_no_volume_of_ours_is_promised_on_a_node_that_cannot_have_one() -> None:
    long_name = "n" * 64
    made = state(a_node(long_name, labels={"kubernetes.io/hostname": "n"}), LATE,
                 a_claim(storage_class="late"))  # fmt: skip
    assert NO_VOLUME in failure(using("data"), made)


def test_a_claim_that_is_being_provisioned_keeps_its_node() -> None:
    claim = a_claim(storage_class="late", annotations={SELECTED: "n2"})
    made = state(a_node("n1"), a_node("n2"), a_node("n3"), LATE, claim)
    assert decide(using("data"), made) == "n2"
    assert NO_VOLUME in failure(using("data"), state(a_node("n1"), LATE, claim))


def test_what_has_just_been_decided_counts_at_once() -> None:
    claims = [a_claim(name, storage_class="late") for name in ("a", "b")]
    made = state(a_node("n1"), a_node("n2"), STATIC, *claims, a_volume(storage_class="late"))
    cycle = Cycle(made)
    first = cycle.volume_plan(using("a"), "n1")
    made.storage.reserve(first.reserved, first.selected, "n1")
    assert NO_VOLUME in failure(using("b"), made)
    assert decide(using("a"), made) in ("n1", "n2")
    made.storage.release(first.reserved, first.selected)
    assert decide(using("b"), made) in ("n1", "n2")


def test_a_node_just_selected_counts_at_once() -> None:
    nodes = [a_node(f"n{index}") for index in range(5)]
    made = state(*nodes, LATE, a_claim(storage_class="late"))
    made.storage.reserve([], ["default/data"], "n3")
    assert decide(using("data"), made) == "n3"


# claims of one pod alone


def exclusive(**more: Any) -> PersistentVolumeClaim:
    return bound(modes=("ReadWriteOncePod",), **more)


def test_a_claim_of_one_pod_alone_is_not_shared() -> None:
    user = using("data", name="user", node="n1")
    made = state(a_node("n1"), a_node("n2"), exclusive(), a_volume(), user)
    assert f"2 {USED}." in failure(using("data"), made)
    made.remove_pod(user)
    assert decide(using("data"), made) in ("n1", "n2")


def test_the_user_of_such_a_claim_is_preempted_on_its_own_node_only() -> None:
    user = using("data", name="user", node="n1", priority=1)
    made = state(a_node("n1"), a_node("n2"), exclusive(), a_volume(), user)
    outcome = decide(using("data", priority=9), made)
    assert isinstance(outcome, Unschedulable)
    assert outcome.preemption is not None
    assert outcome.preemption.node_name == "n1"
    assert [victim.key for victim in outcome.preemption.victims] == ["default/user"]


def test_no_pod_is_preempted_where_the_volume_is_not() -> None:
    victim = a_pod("victim", cpu="4", node="n1", priority=1)
    made = state(a_node("n1"), a_node("n2", cpu="1"), bound(), a_volume(node="n2"), victim)
    outcome = decide(using("data", cpu="2", priority=9), made)
    assert isinstance(outcome, Unschedulable)
    assert outcome.preemption is None


def test_a_shared_claim_may_be_used_by_many() -> None:
    user = using("data", name="user", node="n1")
    assert decide(using("data"), state(a_node("n1"), bound(), a_volume(), user)) == "n1"


def test_a_claim_is_bound_when_its_phase_says_so_too() -> None:
    early = a_claim(volume="pv", annotations=DONE, phase="Pending")
    message = failure(using("data"), state(a_node("n1"), early, a_volume()))
    assert "pod has unbound immediate PersistentVolumeClaims" in message
