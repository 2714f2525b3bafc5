"""Rules of StatefulSets: identity, claims and their owners, what a reconcile does, the status."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.meta import ObjectMeta, OwnerReference
from moorage.api.workloads import (
    ClaimRetentionPolicy,
    RollingUpdateStatefulSet,
    StatefulSet,
    StatefulSetOrdinals,
    StatefulSetSpec,
    StatefulSetStatus,
    StatefulSetUpdateStrategy,
)
from moorage.controllers.objects import Pod
from moorage.controllers.statefulsets.controller import observed_status
from moorage.controllers.statefulsets.planning import (
    REVISION,
    Plan,
    make_plan,
    max_unavailable,
    member_pod,
    ordinals_of,
    parent_and_ordinal,
    sort_members,
    uses_current,
)
from moorage.controllers.statefulsets.requests import (
    claims_of,
    has_conflict,
    is_claim_of,
    is_stale,
    owners_after,
)
from tests.controllers import objects
from tests.controllers.objects import NOW, TEMPLATE

CLAIM = {
    "metadata": {"name": "data", "labels": {"a": "b"}},
    "spec": {"accessModes": ["ReadWriteOnce"]},
}


def stateful_set(
    replicas: int | None = 3,
    *,
    policy: str = "",
    strategy: str = "RollingUpdate",
    partition: int | None = 0,
    unavailable: int | str | None = None,
    start: int = 0,
    min_ready_s: int = 0,
    deleted: str = "Retain",
    scaled: str = "Retain",
    current_replicas: int = 0,
) -> StatefulSet:
    rolling = RollingUpdateStatefulSet(partition=partition, max_unavailable=unavailable)
    return StatefulSet(
        metadata=ObjectMeta(name="web", namespace="default", uid="set", generation=2),
        spec=StatefulSetSpec(
            replicas=replicas,
            selector={"matchLabels": {"app": "web"}},
            template=TEMPLATE,
            volume_claim_templates=(CLAIM,),
            service_name="svc",
            pod_management_policy=policy,
            update_strategy=StatefulSetUpdateStrategy(
                type=strategy, rolling_update=rolling if partition is not None else None
            ),
            min_ready_seconds=min_ready_s,
            persistent_volume_claim_retention_policy=ClaimRetentionPolicy(
                when_deleted=deleted, when_scaled=scaled
            ),
            ordinals=StatefulSetOrdinals(start=start),
        ),
        status=StatefulSetStatus(current_replicas=current_replicas),
    )


def member(ordinal: int, state: str = "ok", revision: str = "new") -> Pod:
    """A pod that is ok, pending, unready, ended, leaving, or ready for five seconds (`fresh`)."""
    return objects.pod(
        f"web-{ordinal}",
        phase={"pending": "Pending", "ended": "Failed"}.get(state, "Running"),
        ready_for={"ok": 3600, "leaving": 3600, "fresh": 5}.get(state),
        is_deleting=state == "leaving",
        labels={"app": "web", REVISION: revision},
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web-0", ("web", 0)),
        ("a-b-12", ("a-b", 12)),
        ("web", ("", None)),
        ("web-", ("", None)),
        ("web-2147483647", ("web", 2**31 - 1)),
        ("web-2147483648", ("web", None)),
    ],
)
def test_names_end_in_the_ordinal(name: str, expected: tuple[str, int | None]) -> None:
    assert parent_and_ordinal(name) == expected


def test_ordinals_start_where_the_set_says() -> None:
    assert list(ordinals_of(stateful_set(2, start=5))) == [5, 6]
    assert list(ordinals_of(stateful_set(None))) == [0]


def test_a_pod_has_the_identity_of_its_ordinal() -> None:
    template = {
        **TEMPLATE,
        "spec": {
            "containers": [{"name": "c"}],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
        },
    }
    pod = member_pod(stateful_set(), template, 4, "web-abc")
    assert pod["metadata"]["name"] == "web-4"
    assert pod["metadata"]["labels"] == {
        "app": "web",
        "statefulset.kubernetes.io/pod-name": "web-4",
        "apps.kubernetes.io/pod-index": "4",
        "controller-revision-hash": "web-abc",
    }
    assert pod["spec"] == {
        "containers": [{"name": "c"}],
        "hostname": "web-4",
        "subdomain": "svc",
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-4"}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def test_claims_have_the_selectors_labels_and_the_owner_that_the_policy_names() -> None:
    retained = claims_of(stateful_set(), 1)
    assert retained == {
        "data-web-1": {
            "metadata": {
                "name": "data-web-1",
                "namespace": "default",
                "labels": {"a": "b", "app": "web"},
            },
            "spec": CLAIM["spec"],
        }
    }
    owned = claims_of(stateful_set(deleted="Delete"), 1)["data-web-1"]["metadata"]
    assert [one["uid"] for one in owned["ownerReferences"]] == ["set"]


def test_claims_are_known_by_their_names() -> None:
    assert is_claim_of(stateful_set(), "data-web-7")
    assert not is_claim_of(stateful_set(), "other-web-7")
    assert not is_claim_of(stateful_set(), "data-web")


def reference(kind: str, name: str, uid: str, *, controls: bool | None = True) -> OwnerReference:
    version = {"StatefulSet": "apps/v1", "Pod": "v1"}.get(kind, "x/v1")
    return OwnerReference(api_version=version, kind=kind, name=name, uid=uid, controller=controls)


SET, POD = reference("StatefulSet", "web", "set"), reference("Pod", "web-1", "pod")
OTHER = reference("Thing", "other", "other")


@pytest.mark.parametrize(
    ("deleted", "scaled", "replicas", "present", "expected"),
    [
        ("Retain", "Retain", 3, (), None),
        ("Retain", "Retain", 3, (SET, OTHER), ["other"]),
        ("Delete", "Retain", 3, (), ["set"]),
        ("Delete", "Retain", 3, (SET,), None),
        ("Delete", "Retain", 1, (SET,), None),
        ("Retain", "Delete", 3, (), None),
        ("Retain", "Delete", 1, (), ["pod"]),
        ("Retain", "Delete", 3, (POD,), []),
        ("Delete", "Delete", 3, (), ["set"]),
        ("Delete", "Delete", 1, (SET,), ["pod"]),
        ("Delete", "Delete", 3, (POD,), ["set"]),
        ("Delete", "Retain", 3, (reference("StatefulSet", "web", "set", controls=None),), ["set"]),
        # An earlier set's or pod's claims are left alone.
        ("Delete", "Retain", 3, (reference("StatefulSet", "web", "earlier"),), None),
        ("Delete", "Delete", 1, (reference("Pod", "web-1", "earlier"),), None),
        # Another controller keeps its claim.
        ("Delete", "Retain", 3, (OTHER,), None),
        ("Delete", "Retain", 3, (OTHER, SET), ["other"]),
    ],
)
def test_claims_are_owned_as_the_policy_says(
    deleted: str,
    scaled: str,
    replicas: int,
    present: tuple[OwnerReference, ...],
    expected: list[str] | None,
) -> None:
    claim = ObjectMeta(name="data-web-1", owner_references=present)
    pod = ObjectMeta(name="web-1", uid="pod")
    owners = owners_after(claim, stateful_set(replicas, deleted=deleted, scaled=scaled), pod)
    assert (owners if owners is None else [one["uid"] for one in owners]) == expected


def test_a_claim_that_goes_with_an_earlier_pod_blocks_the_next() -> None:
    claim = ObjectMeta(name="data-web-1", owner_references=(POD,))
    assert is_stale(stateful_set(scaled="Delete"), 1, [claim])
    assert not is_stale(stateful_set(scaled="Delete"), 2, [claim])
    assert not is_stale(stateful_set(), 1, [claim])


def test_a_controller_conflicts_only_where_claims_are_deleted() -> None:
    claim = ObjectMeta(owner_references=(OTHER,))
    pod = ObjectMeta(name="web-1", uid="pod")
    assert has_conflict(claim, stateful_set(deleted="Delete"), pod)
    assert not has_conflict(claim, stateful_set(), pod)


def plan(wanted: StatefulSet, *pods: Pod, blocked: tuple[int, ...] = ()) -> Plan:
    return make_plan(wanted, sort_members(wanted, pods), "new", blocked, NOW)


def shown(made: Plan) -> dict[str, Any]:
    """What a plan does, by ordinals; established pods aside."""
    shown = {
        "create": list(made.creations),
        "delete": [parent_and_ordinal(pod.metadata.name)[1] for pod in made.deletions],
        "replace": [parent_and_ordinal(pod.metadata.name)[1] for pod in made.replaced],
        "claims": [parent_and_ordinal(pod.metadata.name)[1] for pod in made.pending],
    }
    return {what: ordinals for what, ordinals in shown.items() if ordinals}


ok, old = member, [member(number, revision="old") for number in range(5)]
ORDERED: dict[str, tuple[StatefulSet, list[Pod], dict[str, Any]]] = {
    "the first pod comes first": (stateful_set(), [], {"create": [0]}),
    "the next follows an available one": (stateful_set(), [ok(0)], {"create": [1]}),
    "a gap is filled first": (stateful_set(), [ok(0), ok(2)], {"create": [1]}),
    "from the start ordinal": (stateful_set(start=5), [], {"create": [5]}),
    "a pending pod holds up": (stateful_set(), [member(0, "pending")], {"claims": [0]}),
    "an unready pod holds up": (stateful_set(), [member(0, "unready")], {}),
    "a leaving pod holds up": (stateful_set(), [ok(0), member(1, "leaving")], {}),
    "a fresh pod holds up": (stateful_set(min_ready_s=10), [member(0, "fresh")], {}),
    "a pod fresh enough does not": (
        stateful_set(min_ready_s=5), [member(0, "fresh")], {"create": [1]},
    ),
    "an ended pod goes": (stateful_set(), [ok(0), member(1, "ended")], {"delete": [1]}),
    "surplus goes from the end": (stateful_set(1), [ok(0), ok(1), ok(2)], {"delete": [2]}),
    "surplus waits for the others": (stateful_set(1), [member(0, "unready"), ok(1)], {}),
    "one at a time": (stateful_set(1), [ok(0), ok(1), member(2, "leaving")], {}),
    "an unready one goes if it is the first": (
        stateful_set(1), [ok(0), ok(1), member(2, "unready")], {"delete": [2]},
    ),
    "an unready one behind another waits": (
        stateful_set(1), [ok(0), member(1, "unready"), member(2, "unready")], {},
    ),
    "all well": (stateful_set(), [ok(0), ok(1), ok(2)], {}),
    "the last old pod is replaced first": (stateful_set(), old[:3], {"replace": [2]}),
    "then the one before": (stateful_set(), [*old[:2], ok(2)], {"replace": [1]}),
    "down to the partition": (stateful_set(partition=2), [*old[:2], ok(2)], {}),
    "several at once": (stateful_set(unavailable=2), old[:3], {"replace": [2, 1]}),
    "by share": (stateful_set(unavailable="70%"), old[:3], {"replace": [2, 1]}),
    "never on deletion": (stateful_set(strategy="OnDelete", partition=None), old[:3], {}),
    "a broken update waits": (stateful_set(), [*old[:2], member(2, "unready")], {}),
    "scaling comes before": (stateful_set(2), old[:3], {"delete": [2]}),
}  # fmt: skip


@pytest.mark.parametrize("case", ORDERED)
def test_ordered_pods(case: str) -> None:
    wanted, pods, expected = ORDERED[case]
    assert shown(plan(wanted, *pods)) == expected


def parallel(replicas: int = 3, **more: Any) -> StatefulSet:
    return stateful_set(replicas, policy="Parallel", **more)


PARALLEL: dict[str, tuple[StatefulSet, list[Pod], dict[str, Any]]] = {
    "all at once": (parallel(), [], {"create": [0, 1, 2]}),
    "whatever the others do": (
        parallel(), [member(1, "pending")], {"create": [0, 2], "claims": [1]},
    ),
    "surplus goes at once": (
        parallel(1), [member(0, "unready"), ok(1), member(2, "leaving"), ok(3)], {"delete": [3, 1]},
    ),
    "ended pods go": (parallel(), [ok(0), ok(1), member(2, "ended")], {"delete": [2]}),
    "old pods one at a time": (parallel(), old[:3], {"replace": [2]}),
    "useless old pods at once": (
        parallel(),
        [old[0], member(1, "unready", "old"), member(2, "pending", "old")],
        {"replace": [2, 1], "claims": [2]},
    ),
    "within the budget": (
        parallel(5, unavailable=3),
        [*old[:4], member(4, "unready", "old")],
        {"replace": [4, 3, 2]},
    ),
    "a useless new pod uses it up": (parallel(), [*old[:2], member(2, "unready")], {}),
}  # fmt: skip


@pytest.mark.parametrize("case", PARALLEL)
def test_parallel_pods(case: str) -> None:
    wanted, pods, expected = PARALLEL[case]
    assert shown(plan(wanted, *pods)) == expected


def test_blocked_pods_are_not_created() -> None:
    assert shown(plan(stateful_set(), blocked=(0,))) == {}
    assert shown(plan(parallel(), blocked=(1,))) == {"create": [0, 2]}


STATES = st.sampled_from(["ok", "pending", "unready", "ended", "leaving", "none"])


@given(
    st.lists(st.tuples(STATES, st.sampled_from(["old", "new"])), max_size=7),
    st.integers(0, 6),
    st.sampled_from(["OrderedReady", "Parallel"]),
)
def test_a_plan_names_each_pod_once(
    states: list[tuple[str, str]], replicas: int, policy: str
) -> None:
    pods = [
        member(ordinal, state, revision)
        for ordinal, (state, revision) in enumerate(states)
        if state != "none"
    ]
    made = plan(stateful_set(replicas, policy=policy), *pods)
    touched = [pod.metadata.name for pod in (*made.deletions, *made.replaced)]
    assert len(touched) == len(set(touched))
    assert not any(pod.metadata.deletion_timestamp for pod in (*made.deletions, *made.replaced))
    assert not {f"web-{ordinal}" for ordinal in made.creations} & {
        pod.metadata.name for pod in pods
    }
    if policy == "OrderedReady":
        assert len(touched) + len(made.creations) <= 1


@pytest.mark.parametrize(
    ("wanted", "current"),
    [
        (stateful_set(partition=0), []),
        (stateful_set(partition=2), [0, 1]),
        (stateful_set(partition=2, start=5), [5, 6]),
        (stateful_set(partition=None, current_replicas=1), [0]),
        (stateful_set(strategy="OnDelete", partition=None, current_replicas=1), []),
        (stateful_set(strategy="", partition=None, current_replicas=1), []),
    ],
)
def test_pods_below_the_partition_keep_the_current_template(
    wanted: StatefulSet, current: list[int]
) -> None:
    assert [one for one in ordinals_of(wanted) if uses_current(wanted, one)] == current


@pytest.mark.parametrize(
    ("value", "expected"), [(None, 1), (2, 2), ("50%", 1), ("100%", 3), ("10%", 1)]
)
def test_an_update_may_make_at_least_one_pod_unavailable(
    value: int | str | None, expected: int
) -> None:
    assert max_unavailable(stateful_set(unavailable=value)) == expected


def test_the_status_counts_pods_and_revisions() -> None:
    pods = [member(0, revision="old"), member(1), member(2, "unready"), member(3, "leaving")]
    status = observed_status(stateful_set(4), pods, ("old", "new"), 0, set(), NOW)
    assert status == StatefulSetStatus(
        observed_generation=2, replicas=4, ready_replicas=3, available_replicas=3,
        current_replicas=1, updated_replicas=2, current_revision="old", update_revision="new",
        collision_count=0,
    )  # fmt: skip
    replaced = observed_status(stateful_set(4), pods, ("old", "new"), 0, {"web-0"}, NOW)
    assert replaced == msgspec.structs.replace(status, current_replicas=0)


def test_an_update_is_complete_when_all_pods_are_new_and_ready() -> None:
    pods = [member(0), member(1)]
    status = observed_status(stateful_set(2), pods, ("old", "new"), 1, set(), NOW)
    assert (status.current_revision, status.current_replicas) == ("new", 2)
    waiting = observed_status(
        stateful_set(2), [member(0), member(1, "unready")], ("old", "new"), 1, set(), NOW
    )
    assert (waiting.current_revision, waiting.current_replicas) == ("old", 0)


def test_pods_are_available_after_their_time() -> None:
    wanted = stateful_set(2, min_ready_s=10)
    status = observed_status(wanted, [member(0), member(1, "fresh")], ("n", "n"), 0, set(), NOW)
    assert (status.ready_replicas, status.available_replicas) == (2, 1)
