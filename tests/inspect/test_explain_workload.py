"""Workloads explained: verdicts of each kind, pods by state, what stops them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from moorage.api.events import Event
from moorage.api.pods import Pod
from moorage.inspect.explain_workload import WORKLOADS, WorkloadExplanation, explained
from moorage.runtimeclass.start_phases import CONDITION, Measured, format_measured

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_workload(kind: str, spec: Any = None, status: Any = None) -> Any:
    resource = WORKLOADS[kind]
    meta = {"name": "web", "namespace": "shop", "uid": "w"}
    wire = {"metadata": meta, "spec": spec or {}, "status": status or {}}
    return msgspec.convert(wire, resource.type)


def a_pod(name: str, *, node: str = "n1", phase: str = "Running", **status: Any) -> Pod:
    wire = {
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {"nodeName": node, "containers": [{"name": "app"}]},
        "status": {"phase": phase, **status},
    }
    return msgspec.convert(wire, Pod)


def ready(name: str) -> Pod:
    return a_pod(name, conditions=[{"type": "Ready", "status": "True"}])


def crashing(name: str, code: int = 137) -> Pod:
    ended = {"exitCode": code, "reason": "OOMKilled" if code == 137 else "Error"}
    waiting = {"reason": "CrashLoopBackOff", "message": f"back-off 10s restarting pod={name}"}
    state = {"state": {"waiting": waiting}, "lastState": {"terminated": ended}}
    return a_pod(name, containerStatuses=[{"name": "app", **state}])


def unplaced(name: str, message: str) -> Pod:
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    return a_pod(name, node="", phase="Pending", conditions=[condition])


def explain(
    kind: str, workload: Any, pods: Any = (), events: Any = (), owners: Any = None
) -> WorkloadExplanation:
    resource = WORKLOADS[kind]
    return explained(resource.kind, workload, owners or [workload], pods, events, NOW)


@pytest.mark.parametrize(
    ("kind", "spec", "status", "pods", "verdict"),
    [
        ("deployment", {"replicas": 3}, {"readyReplicas": 2, "updatedReplicas": 3}, [],
         "2 of 3 replicas are ready"),
        ("deploy", {"replicas": 3, "paused": True}, {"readyReplicas": 3, "updatedReplicas": 1}, [],
         "3 of 3 replicas are ready, 1 have the latest template; it is paused"),
        ("rs", {}, {}, [], "0 of 1 replicas are ready"),
        ("rc", {"replicas": 2}, {"readyReplicas": 2}, [], "2 of 2 replicas are ready"),
        ("sts", {"replicas": 3}, {"readyReplicas": 1}, [ready("web-0"), a_pod("web-1")],
         "1 of 3 replicas are ready; the next ones wait for web-1"),
        ("sts", {"replicas": 3, "podManagementPolicy": "Parallel"}, {}, [a_pod("web-1")],
         "0 of 3 replicas are ready"),
        ("ds", {}, {}, [], "no node is eligible for its pods"),
        ("ds", {}, {"desiredNumberScheduled": 3, "numberReady": 2, "numberMisscheduled": 1}, [],
         "2 of 3 nodes have a ready pod, 1 have one that they should not have"),
        ("job", {}, {"active": 1, "failed": 2}, [], "goes on: 1 active, 0 succeeded, 2 failed"),
        ("job", {"suspend": True}, {}, [], "is suspended: 0 active, 0 succeeded, 0 failed"),
        ("job", {}, {"failed": 7, "conditions": [
            {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}, [],
         "has failed (BackoffLimitExceeded): 0 active, 0 succeeded, 7 failed"),
        ("job", {}, {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}, [],
         "is complete: 0 active, 1 succeeded, 0 failed"),
        ("cj", {"suspend": True}, {}, [],
         "is suspended: last scheduled never, last succeeded never, 0 active"),
    ],
)  # fmt: skip
def test_verdicts(kind: str, spec: Any, status: Any, pods: Any, verdict: str) -> None:
    assert explain(kind, a_workload(kind, spec, status), pods).verdict == verdict


def test_pods_in_the_same_state_are_one_group_with_one_remedy() -> None:
    pods = [ready("a"), *(crashing(f"c{number}") for number in range(5)), crashing("d", 1)]
    answer = explain("deployment", a_workload("deployment"), pods)
    assert [(group.state, group.count, group.names) for group in answer.groups] == [
        ("container app waits (CrashLoopBackOff) after exit code 137 (SIGKILL), OOMKilled", 5,
         ("c0", "c1", "c2")),
        ("ready", 1, ("a",)),
        ("container app waits (CrashLoopBackOff) after exit code 1", 1, ("d",)),
    ]  # fmt: skip
    assert answer.groups[0].findings == (
        "container app ended with exit code 137 (SIGKILL), OOMKilled",
    )
    assert answer.remedies[0].startswith("raise resources.limits.memory of container app")


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        (unplaced("a", "0/1 nodes are available"), "no node: 0/1 nodes are available"),
        (a_pod("a", node="", phase="Pending"), "no node: the scheduler has not looked at it"),
        (a_pod("a", phase="Failed", reason="Evicted"), "failed (Evicted)"),
        (a_pod("a", phase="Succeeded"), "succeeded"),
        (a_pod("a"), "running, not ready"),
        (a_pod("a", phase="Pending"), "starting"),
        (a_pod("a", phase="Pending", containerStatuses=[
            {"name": "app", "state": {"waiting": {"reason": "ErrImagePull"}}}]),
         "container app waits (ErrImagePull)"),
    ],
)  # fmt: skip
def test_states_of_pods(pod: Pod, state: str) -> None:
    (group,) = explain("deployment", a_workload("deployment"), [pod]).groups
    assert group.state == state


def test_what_stops_a_workload_comes_from_conditions_and_from_refused_pods() -> None:
    condition = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
                 "message": "has timed out"}  # fmt: skip
    deployment = a_workload("deployment", {}, {"conditions": [condition]})
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "q"}
    replica_set = msgspec.convert(
        {"metadata": {"uid": "r"}, "status": {"conditions": [failure]}}, WORKLOADS["rs"].type
    )
    event = msgspec.convert(
        {"reason": "FailedCreate", "message": "exceeded quota", "type": "Warning",
         "involvedObject": {"uid": "r"}, "lastTimestamp": "2025-12-31T23:59:58Z"}, Event,
    )  # fmt: skip
    answer = explain("deployment", deployment, [], [event], [replica_set])
    assert answer.obstacles == (
        "Progressing (ProgressDeadlineExceeded): has timed out",
        "ReplicaFailure (FailedCreate): q",
        "FailedCreate: exceeded quota",
    )
    assert answer.events == ("Warning FailedCreate (2 s ago): exceeded quota",)


@pytest.mark.parametrize(("wanted", "present"), [(0, 0), (2, 2)])
def test_what_a_replica_set_failed_at_is_past_when_it_has_all_its_pods(
    wanted: int, present: int
) -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "q"}
    undone = msgspec.convert(
        {
            "metadata": {"uid": "old"},
            "spec": {"replicas": wanted},
            "status": {"replicas": present, "conditions": [failure]},
        },
        WORKLOADS["rs"].type,
    )
    event = msgspec.convert(
        {"reason": "FailedCreate", "message": "exceeded quota", "type": "Warning",
         "involvedObject": {"uid": "old"}, "lastTimestamp": "2025-12-31T23:59:58Z"}, Event,
    )  # fmt: skip
    answer = explain("deployment", a_workload("deployment"), [], [event], [undone])
    assert answer.obstacles == ()
    assert answer.events == ("Warning FailedCreate (2 s ago): exceeded quota",)


def test_class_and_its_choice_come_from_the_template_or_from_the_pods() -> None:
    template = {"spec": {"runtimeClassName": "gvisor"}}
    answer = explain("deployment", a_workload("deployment", {"template": template}))
    assert (answer.runtime_class, answer.choice) == ("gvisor", "")
    wire = msgspec.to_builtins(ready("a"))
    wire["spec"]["runtimeClassName"] = "kata"
    wire["metadata"]["annotations"] = {"runtime.moorage.dev/class-choice": "kata"}
    pod = msgspec.convert(wire, Pod)
    answer = explain("cronjob", a_workload("cronjob"), [pod])
    assert answer.runtime_class == "none in the template; its pods have kata"
    assert answer.choice == "kata was chosen at admission"
    bare = explain("deployment", a_workload("deployment", {"template": template | {"spec": None}}))
    assert bare.runtime_class == "none: the node's default handler"


def started(name: str, seen: datetime | None = None, **milliseconds: float) -> Pod:
    """Return a ready pod, measured by a node agent that saw it at `seen`."""
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:03Z"},
    ]
    if seen is not None:
        message = format_measured(Measured(seen, milliseconds))
        conditions.append({"type": CONDITION, "status": "True", "message": message})
    pod = a_pod(name, conditions=conditions)
    meta = msgspec.structs.replace(pod.metadata, creation_timestamp="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(pod, metadata=meta)


def test_the_longest_phase_is_one_of_those_that_the_start_consists_of() -> None:
    """What came before is known to a second only, and may look longer than the whole start."""
    seen = datetime(2026, 1, 1, 0, 0, 0, 950_000, tzinfo=UTC)
    pods = [started("a", seen, sandbox=60, start=20), started("b", seen, sandbox=40, start=30)]
    answer = explain("deployment", a_workload("deployment"), pods)
    assert answer.start == "70 ms (median of 2, on the node), slowest 80 ms, sandbox 60 ms of it"


def test_a_start_that_no_agent_measured_is_known_to_a_second() -> None:
    answer = explain("deployment", a_workload("deployment"), [started("a")])
    assert answer.start == (
        "3 s (± 1 s) (median of 1, from creation), slowest 3 s (± 1 s), ready 3 s (± 1 s) of it"
    )
