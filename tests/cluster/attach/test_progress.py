"""Progress of parts: counted by their workloads, explained by what their pods wait for."""

from __future__ import annotations

import msgspec
import pytest

from moorage.api.events import Event
from moorage.api.meta import ObjectMeta
from moorage.api.pods import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
)
from moorage.api.references import ObjectReference
from moorage.api.workloads import (
    DaemonSet,
    DaemonSetStatus,
    Deployment,
    DeploymentSpec,
    DeploymentStatus,
)
from moorage.cluster.attach.progress import part_progress, pod_reasons


def deployment(available: int, *, updated: int = 2, observed: int = 1) -> Deployment:
    return Deployment(
        metadata=ObjectMeta(name="webhook", generation=1),
        spec=DeploymentSpec(replicas=2),
        status=DeploymentStatus(
            observed_generation=observed, available_replicas=available, updated_replicas=updated
        ),
    )


def waiting(reason: str, message: str = "") -> Pod:
    state = ContainerState(waiting=ContainerStateWaiting(reason=reason, message=message))
    return Pod(
        metadata=ObjectMeta(name="p", namespace="ns"),
        status=PodStatus(container_statuses=(ContainerStatus(name="c", state=state),)),
    )


@pytest.mark.parametrize(
    ("workload", "is_done"),
    [
        (deployment(2), True),
        (deployment(1), False),
        (deployment(2, updated=1), False),
        (deployment(2, observed=0), False),
        (DaemonSet(status=DaemonSetStatus(desired_number_scheduled=0)), True),
        (
            DaemonSet(
                status=DaemonSetStatus(
                    desired_number_scheduled=2, number_available=1, updated_number_scheduled=2
                )
            ),
            False,
        ),
    ],
)
def test_a_part_is_done_when_all_its_present_pods_are(
    workload: Deployment | DaemonSet, is_done: bool
) -> None:
    assert part_progress(workload, []).is_done == is_done


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("ErrImagePull", "push it to a registry"),
        ("ErrImageNeverPull", "load image"),
        ("CrashLoopBackOff", "kubectl logs --previous -n ns p"),
        ("ContainerCreating", ""),
    ],
)
def test_what_a_pod_waits_for_is_said_with_the_remedy(reason: str, remedy: str) -> None:
    (found,) = part_progress(deployment(0), [waiting(reason, "because")]).reasons
    assert found.text == f"{reason}: because"
    assert (remedy in found.remedy) if remedy else found.remedy == ""


def test_pods_that_wait_for_the_same_are_said_once() -> None:
    pods = [waiting("ErrImagePull"), waiting("ErrImagePull")]
    assert len(part_progress(deployment(0), pods).reasons) == 1


def test_a_pod_that_no_node_takes_is_said() -> None:
    condition = PodCondition(
        type="PodScheduled", status="False", reason="Unschedulable", message="0/1 nodes"
    )
    pod = Pod(status=PodStatus(conditions=(condition,)))
    (found,) = part_progress(deployment(0), [pod]).reasons
    assert found.text == "no node takes its pod: 0/1 nodes"


def test_a_part_that_is_done_waits_for_nothing() -> None:
    assert part_progress(deployment(2), [waiting("ErrImagePull")]).reasons == ()


def test_a_part_that_is_started_again_and_again_says_its_last_words() -> None:
    ended = ContainerStateTerminated(exit_code=1, message="started\nno engine answers at x\n")
    status = ContainerStatus(
        name="c",
        state=ContainerState(waiting=ContainerStateWaiting("CrashLoopBackOff", "back-off 10s")),
        last_state=ContainerState(terminated=ended),
    )
    pod = Pod(
        metadata=ObjectMeta(name="p", namespace="ns"),
        status=PodStatus(container_statuses=(status,)),
    )
    (reason,) = pod_reasons(pod)
    assert reason.text == "CrashLoopBackOff: no engine answers at x"
    assert "kubectl logs --previous -n ns p" in reason.remedy


def test_a_directory_that_a_node_lacks_is_named() -> None:
    pod = Pod(metadata=ObjectMeta(name="p", uid="u"), spec=PodSpec(node_name="n"))
    directory = "hostPath type check failed: {} is not a directory"
    events = [
        Event(
            reason="FailedMount", message=message.format(number),
            involved_object=ObjectReference(uid=uid), last_timestamp=f"2026-01-01T00:00:0{number}Z",
        )
        for number, (uid, message) in enumerate(
            (("u", directory), ("u", directory), ("other", directory), ("u", "secret {} not found"))
        )
    ]  # fmt: skip
    (reason,) = pod_reasons(pod, events)
    assert reason.text == f"FailedMount: {directory.format(1)}"
    assert "agent.cri" in reason.remedy
    ready = PodStatus(conditions=(PodCondition(type="Ready", status="True"),))
    assert not list(pod_reasons(msgspec.structs.replace(pod, status=ready), events))
