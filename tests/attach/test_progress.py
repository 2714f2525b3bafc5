"""Progress of parts: counted by their workloads, explained by what their pods wait for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from moorage.api.clock import SystemClock
from moorage.api.containers import Container
from moorage.api.events import Event
from moorage.api.meta import ObjectMeta, ObjectReference
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
from moorage.api.workloads import (
    DaemonSet,
    DaemonSetStatus,
    Deployment,
    DeploymentSpec,
    DeploymentStatus,
)
from moorage.attach.errors import AttachError
from moorage.attach.manifests.identity import labels
from moorage.attach.progress import PartProgress, follow, part_progress, pod_reasons
from tests.attach.object_server import running


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


@pytest.mark.parametrize(
    ("reason", "message", "text"),
    [
        ("ContainerCreating", "", None),
        ("PodInitializing", "", None),
        ("PodInitializing", "m", "PodInitializing: m"),
        ("", "", "waiting"),
        ("InvalidImageName", "", "InvalidImageName"),
    ],
)
def test_what_is_on_its_way_is_no_reason(reason: str, message: str, text: str | None) -> None:
    found = [one.text for one in pod_reasons(waiting(reason, message))]
    assert found == ([] if text is None else [text])
    running = ContainerStatus(name="c", state=ContainerState())
    assert not list(pod_reasons(Pod(status=PodStatus(container_statuses=(running,)))))


def test_the_image_that_nodes_cannot_get_is_that_of_the_container() -> None:
    pod = waiting("ErrImageNeverPull")
    spec = PodSpec(containers=(Container(name="b", image="x"), Container(name="c", image="y")))
    (found,) = pod_reasons(msgspec.structs.replace(pod, spec=spec))
    assert found.remedy.startswith("load image y into each node's engine")


@pytest.mark.parametrize(
    ("kind", "reason", "count"),
    [("PodScheduled", "Unschedulable", 1), ("PodScheduled", "SchedulingGated", 0),
     ("Ready", "Unschedulable", 0)],
)  # fmt: skip
def test_only_a_pod_that_no_node_takes_is_said(kind: str, reason: str, count: int) -> None:
    condition = PodCondition(type=kind, status="False", reason=reason)
    found = list(pod_reasons(Pod(status=PodStatus(conditions=(condition,)))))
    assert len(found) == count
    assert all("has room" in one.remedy for one in found)


def test_a_directory_is_missing_only_where_a_pod_has_a_node() -> None:
    event = Event(
        reason="FailedMount", message="hostPath type check failed: x",
        involved_object=ObjectReference(uid="u"),
    )  # fmt: skip
    pod = Pod(metadata=ObjectMeta(name="p", uid="u"))
    assert not list(pod_reasons(pod, [event]))
    placed = msgspec.structs.replace(pod, spec=PodSpec(node_name="n"))
    assert len(list(pod_reasons(placed, [event]))) == 1
    other = msgspec.structs.replace(event, reason="Failed")
    assert not list(pod_reasons(placed, [other]))


def test_a_part_has_its_numbers() -> None:
    assert part_progress(deployment(1), []) == PartProgress("webhook", 2, 1)
    usual = Deployment(status=DeploymentStatus(available_replicas=1, updated_replicas=1))
    assert part_progress(usual, []) == PartProgress("", 1, 1, is_done=True)
    none = msgspec.structs.replace(usual, spec=DeploymentSpec(replicas=0))
    assert part_progress(none, []) == PartProgress("", 0, 1, is_done=True)
    status = DaemonSetStatus(
        desired_number_scheduled=3, number_available=3, updated_number_scheduled=2
    )
    agent = DaemonSet(metadata=ObjectMeta(name="agent"), status=status)
    assert part_progress(agent, []) == PartProgress("agent", 3, 3)
    updated = msgspec.structs.replace(status, updated_number_scheduled=3)
    assert part_progress(msgspec.structs.replace(agent, status=updated), []).is_done


def _workload(kind: str, name: str, namespace: str = "ns", **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": labels(name)},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels(name)}, "template": {}},
        "status": status,
    }


def _pod_of(name: str, reason: str, namespace: str = "ns") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": "m"}}
    statuses = [{"name": "c", "state": state}]
    metadata = {"name": f"{name}-1", "namespace": namespace, "labels": labels(name)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"containers": []}, "status": {"containerStatuses": statuses}}  # fmt: skip


_READY: dict[str, Any] = {"availableReplicas": 1, "updatedReplicas": 1}


async def test_parts_are_followed_until_all_are_ready() -> None:
    reports: list[list[PartProgress]] = []
    async with running() as (server, client):
        workloads = [_workload("Deployment", "b"), _workload("DaemonSet", "a")]
        for one in (*workloads, _workload("Deployment", "other"), _pod_of("b", "ErrImagePull")):
            server.put(one)

        def report(parts: Sequence[PartProgress]) -> None:
            reports.append(list(parts))
            server.put(_workload("Deployment", "b", **_READY))

        await follow(client, "ns", workloads, report, SystemClock(), 20)
    assert [[part.name for part in parts] for parts in reports] == [["a", "b"]] * 2
    assert [[part.is_done for part in parts] for parts in reports] == [[True, False], [True, True]]
    assert [reason.text for reason in reports[0][1].reasons] == ["ErrImagePull: m"]


async def test_parts_that_are_not_there_yet_are_waited_for() -> None:
    workload = _workload("Deployment", "b")
    async with running() as (server, client):
        # Neither of them is the part.
        server.put(_workload("DaemonSet", "b"))
        server.put(_workload("Deployment", "b", "elsewhere", **_READY))
        with pytest.raises(AttachError):
            await follow(client, "ns", [workload], lambda _: None, SystemClock(), 0.1)
        server.put(_workload("Deployment", "b", **_READY))
        await follow(client, "ns", [workload], lambda _: None, SystemClock(), 20)
        await follow(client, "ns", [], lambda _: None, SystemClock(), 20)


async def test_what_parts_wait_for_is_said_when_the_time_is_over() -> None:
    async with running() as (server, client):
        workloads = [_workload("Deployment", name) for name in ("a", "b", "c")]
        for one in workloads:
            server.put(one)
        server.put(_workload("Deployment", "c", **_READY))
        for pod in (_pod_of("a", "InvalidImageName"), _pod_of("b", "Strange"),
                    _pod_of("a", "ErrImagePull", "elsewhere")):  # fmt: skip
            server.put(pod)
        mounts = {
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "ns"},
            "reason": "FailedMount", "message": "hostPath type check failed: /x",
            "involvedObject": {"uid": "u"}, "type": "Warning",
        }  # fmt: skip
        server.put(mounts)
        placed = _pod_of("b", "ContainerCreating")
        placed["metadata"] |= {"name": "b-2", "uid": "u"}
        server.put(placed | {"spec": {"containers": [], "nodeName": "n"}})
        with pytest.raises(AttachError) as failure:
            await follow(client, "ns", workloads, lambda _: None, SystemClock(), 0.8)
        fields = {query.get("fieldSelector", "") for query in server.queries}
    assert "type=Warning,involvedObject.kind=Pod" in fields
    assert str(failure.value).splitlines() == [
        "the parts are not ready after 0.8 s; run it again to go on",
        "  a: 0 of 1 pods are ready",
        "    InvalidImageName: m",
        "    → set image to a valid name",
        "  b: 0 of 1 pods are ready",
        "    ContainerCreating: m",
        "    FailedMount: hostPath type check failed: /x",
        "    → a directory of the node is missing or another one: correct agent.cri or "
        "agent.hostPaths, or make it on the node",
        "    Strange: m",
    ]
