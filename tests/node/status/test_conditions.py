from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.pods import ContainerStatus, Pod, PodCondition, PodStatus
from moorage.node.status.conditions import conditions_of
from moorage.node.status.inputs import TerminationReason, Waiting
from tests.node.objects import Wire, a_pod, a_view, status_inputs, wire_container

NOW = "2026-01-01T00:00:00Z"


def status(name: str, *, ready: bool = True, started: bool = True, **state: Any) -> ContainerStatus:
    wire = {"name": name, "ready": ready, "started": started, "state": state or {"running": {}}}
    return msgspec.convert(wire, ContainerStatus)


def conditions(
    pod: Pod, *statuses: ContainerStatus, phase: str = "Running", **known: Any
) -> dict[str, PodCondition]:
    conditions_list = conditions_of(status_inputs(pod, a_view(), **known), statuses, phase)
    return {condition.type: condition for condition in conditions_list}


def said(condition: PodCondition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message


def test_all_is_well() -> None:
    by_type = conditions(a_pod(meta={"generation": 4}), status("app"))
    assert {name: by_type[name].status for name in by_type} == dict.fromkeys(
        ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"),
        "True",
    )
    assert {condition.observed_generation for condition in by_type.values()} == {4}
    assert {condition.last_transition_time for condition in by_type.values()} == {NOW}


@pytest.mark.parametrize(
    ("statuses", "phase", "wanted"),
    [
        (
            [status("app", ready=False)],
            "Running",
            ("False", "ContainersNotReady", "containers with unready status: [app]"),
        ),
        (
            [],
            "Pending",
            ("False", "ContainersNotReady", "containers with unknown status: [app]"),
        ),
        ([status("app", ready=False)], "Succeeded", ("False", "PodCompleted", "")),
        ([status("app", ready=False)], "Failed", ("False", "PodFailed", "")),
    ],
    ids=["unready", "unknown", "completed", "failed"],
)
def test_containers_ready_and_ready_agree(
    statuses: list[ContainerStatus], phase: str, wanted: tuple[str, str, str]
) -> None:
    by_type = conditions(a_pod(), *statuses, phase=phase)
    assert said(by_type["ContainersReady"]) == wanted
    assert said(by_type["Ready"]) == wanted


GATED = {"readinessGates": [{"conditionType": "example.com/lb"}]}


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (
            None,
            (
                "False",
                "ReadinessGatesNotReady",
                'corresponding condition of pod readiness gate "example.com/lb" does not exist.',
            ),
        ),
        (
            "False",
            (
                "False",
                "ReadinessGatesNotReady",
                'the status of pod readiness gate "example.com/lb" is not "True", but False',
            ),
        ),
        ("True", ("True", "", "")),
    ],
)
def test_readiness_gates(condition: str | None, wanted: tuple[str, str, str]) -> None:
    others = [{"type": "example.com/lb", "status": condition}] if condition else []
    gated: dict[str, Any] = GATED
    by_type = conditions(a_pod(status={"conditions": others}, **gated), status("app"))
    assert said(by_type["Ready"]) == wanted
    assert by_type["ContainersReady"].status == "True"


def test_conditions_of_others_are_kept_as_they_are() -> None:
    theirs = {"type": "example.com/lb", "status": "True", "lastTransitionTime": "2020"}
    by_type = conditions(a_pod(status={"conditions": [theirs]}), status("app"))
    assert msgspec.to_builtins(by_type["example.com/lb"]) == theirs


@pytest.mark.parametrize(
    ("statuses", "phase", "wanted"),
    [
        ([], "Pending", ("False", "containers with unknown status: [i s]")),
        (
            [status("i", ready=False), status("s", started=False)],
            "Pending",
            ("False", "containers with incomplete status: [i s]"),
        ),
        (
            [status("i"), status("s", started=False)],
            "Pending",
            ("False", "containers with incomplete status: [s]"),
        ),
        ([status("i"), status("s")], "Pending", ("True", "")),
        # A sidecar that restarts does not undo it.
        ([status("i"), status("s", started=False), status("app")], "Running", ("True", "")),
        ([status("i"), status("s", started=False)], "Succeeded", ("True", "")),
    ],
)
def test_initialized(statuses: list[ContainerStatus], phase: str, wanted: tuple[str, str]) -> None:
    pod = a_pod(initContainers=[wire_container("i"), wire_container("s", restartPolicy="Always")])
    initialized = conditions(pod, *statuses, phase=phase)["Initialized"]
    assert (initialized.status, initialized.message) == wanted
    assert initialized.reason == {"False": "ContainersNotInitialized", "True": ""}[
        initialized.status
    ] or (
        phase,
        initialized.reason,
    ) == ("Succeeded", "PodCompleted")


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        ({"is_ready_to_start": True}, ("True", "", "")),
        ({"is_ready_to_start": False}, ("False", "", "")),
        (
            {
                "is_ready_to_start": False,
                "obstacle": Waiting("RuntimeClassNotFound", "no such class"),
            },
            ("False", "RuntimeClassNotFound", "no such class"),
        ),
    ],
)
def test_ready_to_start(known: Wire, wanted: tuple[str, str, str]) -> None:
    assert said(conditions(a_pod(), **known)["PodReadyToStartContainers"]) == wanted


@pytest.mark.parametrize(("before", "since"), [("True", "2020"), ("False", NOW)])
def test_the_time_changes_only_with_the_status(before: str, since: str) -> None:
    wire = {"conditions": [{"type": "Ready", "status": before, "lastTransitionTime": "2020"}]}
    earlier = msgspec.convert(wire, PodStatus)
    assert conditions(a_pod(), status("app"), before=earlier)["Ready"].last_transition_time == since
    stored = conditions(a_pod(status=wire), status("app"))
    assert stored["Ready"].last_transition_time == since


def test_a_pod_that_ends_for_the_nodes_sake_says_so() -> None:
    earlier = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    pod = a_pod(status={"conditions": earlier}, meta={"generation": 3})
    for is_disruption, reason in ((False, "PreemptionByScheduler"), (True, "TerminationByKubelet")):
        why = TerminationReason("Evicted", "low on memory", is_disruption=is_disruption)
        by_type = conditions(pod, phase="Failed", termination=why)
        assert by_type["DisruptionTarget"].reason == reason
    assert by_type["DisruptionTarget"].message == "low on memory"
    assert by_type["DisruptionTarget"].observed_generation == 3
