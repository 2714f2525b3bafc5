from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.pods import PodCondition, PodStatus
from moorage.node.status.writer import status_patch

UID = "u1"


def status(**fields: Any) -> PodStatus:
    return msgspec.convert(fields, PodStatus)


def changes(before: PodStatus, after: PodStatus) -> Any:
    patch = status_patch(UID, before, after)
    if patch is None:
        return None
    assert patch["metadata"] == {"uid": UID}
    return msgspec.json.decode(msgspec.json.encode(patch["status"]))


def test_nothing_to_say() -> None:
    same = status(phase="Running", conditions=[{"type": "Ready", "status": "True"}])
    assert changes(same, same) is None


def test_only_what_differs_is_sent() -> None:
    before = status(phase="Pending", hostIP="10.0.0.1")
    assert changes(before, status(phase="Running", hostIP="10.0.0.1")) == {"phase": "Running"}


def test_what_has_gone_is_sent_as_null() -> None:
    before = status(phase="Pending", reason="Why", containerStatuses=[{"name": "a"}])
    assert changes(before, status(phase="Pending")) == {"reason": None, "containerStatuses": None}


def test_lists_that_merge_are_replaced_by_directive() -> None:
    before = status(podIPs=[{"ip": "10.1.0.5"}])
    after = status(podIPs=[{"ip": "10.1.0.6"}])
    assert changes(before, after) == {"podIPs": [{"ip": "10.1.0.6"}, {"$patch": "replace"}]}
    assert changes(status(), after) == {"podIPs": [{"ip": "10.1.0.6"}]}


def test_lists_that_do_not_are_just_sent() -> None:
    before, after = ({"containerStatuses": [{"name": name}]} for name in "ab")
    assert changes(status(**before), status(**after)) == after


def test_maps_are_replaced_by_directive() -> None:
    before = status(allocatedResources={"cpu": "1"})
    after = status(allocatedResources={"memory": "1Gi"})
    assert changes(before, after) == {"allocatedResources": {"memory": "1Gi", "$patch": "replace"}}


def test_conditions_are_merged_and_what_went_from_one_is_named() -> None:
    before = status(
        conditions=[
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "x"},
            {"type": "Initialized", "status": "True"},
            {"type": "example.com/lb", "status": "False"},
        ]
    )
    after = status(
        conditions=[
            {"type": "Ready", "status": "True"},
            {"type": "Initialized", "status": "True"},
            {"type": "example.com/lb", "status": "True"},
        ]
    )
    assert changes(before, after) == {
        "conditions": [{"type": "Ready", "status": "True", "reason": None, "message": None}]
    }


def test_own_condition_that_disappeared_is_deleted() -> None:
    before = status(conditions=[{"type": "Ready", "status": "True"}, {"type": "x", "status": "1"}])
    assert changes(before, status()) == {"conditions": [{"$patch": "delete", "type": "Ready"}]}


def test_fields_of_others_are_never_touched() -> None:
    before = status(nominatedNodeName="n9", resize="Proposed")
    assert changes(before, status()) is None


simple = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(["Pending", "Running"]),
        "reason": st.sampled_from(["A", "B"]),
        "podIP": st.sampled_from(["10.1.0.5", "10.1.0.6"]),
        "containerStatuses": st.lists(st.fixed_dictionaries({"name": st.sampled_from("ab")})),
    },
)


@given(simple, simple)
def test_applying_the_patch_gives_what_was_wanted(before: Any, after: Any) -> None:
    patch = changes(status(**before), status(**after)) or {}
    merged = {**before, **patch}
    assert status(**{key: value for key, value in merged.items() if value is not None}) == status(
        **after
    )


def test_the_shared_condition_of_a_disruption_is_written_and_never_removed() -> None:
    ours = PodCondition(type="DisruptionTarget", status="True", reason="TerminationByKubelet")
    others = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    patch = status_patch("u", PodStatus(), PodStatus(conditions=(ours,)))
    assert patch is not None
    assert [item["reason"] for item in patch["status"]["conditions"]] == ["TerminationByKubelet"]
    assert status_patch("u", PodStatus(conditions=(others,)), PodStatus()) is None
    assert status_patch("u", PodStatus(), PodStatus(conditions=(others,))) is None
