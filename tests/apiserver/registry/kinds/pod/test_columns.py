"""The one word that says where a pod stands, and the cells beside it."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.clock import parse_time
from moorage.apiserver.registry.kinds.pod.columns import PRINTER
from tests.apiserver.registry.kinds.rows import columns

CREATED = "2026-01-01T00:00:00Z"
NOW = parse_time(CREATED).timestamp() + 3 * 86400

READY = {"type": "Ready", "status": "True"}
INITIALIZED = {"type": "Initialized", "status": "True"}


def running(name: str = "c", *, ready: bool = True, **more: Any) -> dict[str, Any]:
    return {"name": name, "ready": ready, "state": {"running": {}}, **more}


def waiting(reason: str, **more: Any) -> dict[str, Any]:
    return {"name": "c", "ready": False, "state": {"waiting": {"reason": reason}}, **more}


def ended(code: int = 0, reason: str = "", signal: int = 0, **more: Any) -> dict[str, Any]:
    state: dict[str, Any] = {"exitCode": code}
    if reason:
        state["reason"] = reason
    if signal:
        state["signal"] = signal
    return {"name": "c", "ready": False, "state": {"terminated": state}, **more}


def cells(
    *statuses: dict[str, Any],
    phase: str = "Running",
    init: list[dict[str, Any]] | None = None,
    spec: dict[str, Any] | None = None,
    **more: Any,
) -> list[Any]:
    """Name, Ready, Status, Restarts, Age and the wide ones of a pod."""
    metadata = {"name": "p", "creationTimestamp": CREATED, **more.pop("metadata", {})}
    status = {"phase": phase, "containerStatuses": list(statuses), **more}
    if init is not None:
        status["initContainerStatuses"] = init
    pod_spec = {"containers": [{"name": f"c{n}"} for n, _ in enumerate(statuses or [1])]}
    return PRINTER.cells({"metadata": metadata, "spec": {**pod_spec, **(spec or {})},
                       "status": status}, NOW)  # fmt: skip


@pytest.mark.parametrize(
    ("statuses", "more", "ready", "status"),
    [
        ([running()], {"conditions": [READY]}, "1/1", "Running"),
        ([running(), running("d", ready=False)], {}, "1/2", "Running"),
        ([waiting("ContainerCreating")], {"phase": "Pending"}, "0/1", "ContainerCreating"),
        ([waiting("CrashLoopBackOff")], {}, "0/1", "CrashLoopBackOff"),
        ([ended(0, "Completed")], {"phase": "Succeeded"}, "0/1", "Completed"),
        ([ended(7, "Error")], {"phase": "Failed"}, "0/1", "Error"),
        ([ended(7)], {"phase": "Failed"}, "0/1", "ExitCode:7"),
        ([ended(0, signal=9)], {"phase": "Failed"}, "0/1", "Signal:9"),
        ([running(), ended(0, "Completed")], {"conditions": [READY]}, "1/2", "Running"),
        ([running(), ended(0, "Completed")], {}, "1/2", "NotReady"),
        ([], {"phase": "Failed", "reason": "Evicted"}, "0/1", "Evicted"),
        ([], {"phase": "Failed", "reason": "OutOfcpu"}, "0/1", "OutOfcpu"),
        ([], {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]},
         "0/1", "SchedulingGated"),
    ],
)  # fmt: skip
def test_the_containers_say_how_it_goes(
    statuses: list[dict[str, Any]], more: dict[str, Any], ready: str, status: str
) -> None:
    assert cells(*statuses, **more)[1:3] == [ready, status]


DELETED = {"deletionTimestamp": CREATED}


@pytest.mark.parametrize(
    ("phase", "reason", "status"),
    [
        ("Running", "", "Terminating"),
        ("Running", "NodeLost", "Unknown"),
        ("Pending", "", "Terminating"),
        ("Succeeded", "", "Succeeded"),
        ("Failed", "Evicted", "Evicted"),
    ],
)
def test_deletion_has_the_last_word_but_for_what_has_ended(
    phase: str, reason: str, status: str
) -> None:
    assert cells(phase=phase, reason=reason, metadata=DELETED)[2] == status


INIT = {"initContainers": [{"name": "i0"}, {"name": "i1"}]}
SIDECAR = {"initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}]}


@pytest.mark.parametrize(
    ("init", "spec", "expected"),
    [
        ([running("i0"), waiting("PodInitializing")], INIT, "Init:0/2"),
        ([ended(0), running("i1")], INIT, "Init:1/2"),
        ([ended(0), waiting("PodInitializing")], INIT, "Init:1/2"),
        ([ended(3)], INIT, "Init:ExitCode:3"),
        ([ended(3, "Error")], INIT, "Init:Error"),
        ([ended(137, signal=9)], INIT, "Init:Signal:9"),
        ([waiting("CrashLoopBackOff")], INIT, "Init:CrashLoopBackOff"),
        ([waiting("ImagePullBackOff")], INIT, "Init:ImagePullBackOff"),
        ([{**running("s"), "started": True}, running("i")], SIDECAR, "Init:1/2"),
        ([{**running("s"), "started": False}], SIDECAR, "Init:0/2"),
    ],
)
def test_initialisation_is_counted(
    init: list[dict[str, Any]], spec: dict[str, Any], expected: str
) -> None:
    waits = waiting("PodInitializing")
    assert cells(waits, phase="Pending", init=init, spec=spec)[2] == expected


def test_a_sidecar_counts_as_a_container() -> None:
    sidecar = {**running("s"), "started": True}
    row = cells(running(), init=[sidecar, ended(0)], spec=SIDECAR, conditions=[INITIALIZED, READY])
    assert row[1:3] == ["2/2", "Running"]


@pytest.mark.parametrize(
    ("count", "last", "text"),
    [
        (0, None, "0"),
        (3, None, "3"),
        (3, "2026-01-03T23:55:00Z", "3 (5m ago)"),
        (0, "2026-01-03T23:55:00Z", "0"),
    ],
)
def test_restarts_and_the_last_of_them(count: int, last: str | None, text: str) -> None:
    before: dict[str, Any] = {}
    if last:
        before = {"lastState": {"terminated": {"finishedAt": last}}}
    assert cells(running(restartCount=count, **before))[3] == text


def test_the_wide_cells() -> None:
    gates = [{"conditionType": "a"}, {"conditionType": "b"}]
    row = cells(
        running(),
        spec={"nodeName": "n1", "readinessGates": gates},
        podIPs=[{"ip": "10.0.0.7"}],
        nominatedNodeName="n2",
        conditions=[{"type": "a", "status": "True"}],
    )
    assert row[4:] == ["3d", "10.0.0.7", "n1", "n2", "1/2"]
    assert cells()[5:] == ["<none>"] * 4


def test_a_bookmark_has_blank_cells() -> None:
    assert len(PRINTER.cells({"metadata": {"resourceVersion": "7"}}, 0)) == len(PRINTER.columns)


@pytest.mark.parametrize(("phase", "count"), [("Succeeded", 1), ("Failed", 1), ("Running", 0)])
def test_rows_of_pods_that_have_ended_say_so(phase: str, count: int) -> None:
    assert PRINTER.conditions is not None
    conditions = PRINTER.conditions({"status": {"phase": phase}})
    assert len(conditions) == count
    if conditions:
        assert conditions[0]["type"] == "Completed"
        assert conditions[0]["reason"] == phase


def test_columns() -> None:
    assert columns("Pod") == (
        "Name Ready Status Restarts Age | IP Node Nominated_Node Readiness_Gates"
    )
