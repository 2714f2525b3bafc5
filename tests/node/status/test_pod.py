from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.pods import PodStatus
from moorage.node.runtime.views import PodView
from moorage.node.status.inputs import TerminationReason
from moorage.node.status.pod import ended, refused, status_of
from tests.node.objects import (
    UID,
    Wire,
    a_pod,
    a_sandbox,
    a_view,
    engine_has,
    exited,
    status_inputs,
    wire_container,
)

NOTHING = PodView(UID)
LATE = TerminationReason(
    "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
)


def before(**fields: Any) -> PodStatus:
    return msgspec.convert(fields, PodStatus)


def test_addresses_and_beginnings() -> None:
    view = a_view(a_sandbox(ips=("10.1.0.5", "fd00::5")), engine_has())
    status = status_of(status_inputs(a_pod(meta={"generation": 2}), view))
    wire = msgspec.json.decode(msgspec.json.encode(status))
    assert (wire["phase"], wire["startTime"]) == ("Running", "2026-01-01T00:00:00Z")
    assert (wire["hostIP"], wire["hostIPs"]) == ("10.0.0.1", [{"ip": "10.0.0.1"}])
    assert (wire["podIP"], wire["podIPs"]) == (
        "10.1.0.5",
        [{"ip": "10.1.0.5"}, {"ip": "fd00::5"}],
    )
    assert (wire["observedGeneration"], wire["qosClass"]) == (2, "BestEffort")


def test_on_the_nodes_network_a_pod_has_the_nodes_addresses() -> None:
    view = a_view(a_sandbox(is_host_network=True, ips=()))
    assert status_of(status_inputs(a_pod(hostNetwork=True), view)).pod_ip == "10.0.0.1"
    assert status_of(status_inputs(a_pod(hostNetwork=True), NOTHING)).pod_ip == ""


def test_a_dead_sandbox_has_no_address_and_its_pod_keeps_the_one_it_had() -> None:
    view = a_view(a_sandbox(is_ready=False))
    assert status_of(status_inputs(a_pod(), view)).pod_ip == ""
    had = a_pod(status={"podIP": "10.1.0.5", "podIPs": [{"ip": "10.1.0.5"}, {"ip": "fd00::5"}]})
    kept = status_of(status_inputs(had, view))
    assert (kept.pod_ip, [address.ip for address in kept.pod_ips]) == (
        "10.1.0.5",
        ["10.1.0.5", "fd00::5"],
    )
    other = status_of(status_inputs(had, a_view(a_sandbox(ips=("10.1.0.6",)))))
    assert [address.ip for address in other.pod_ips] == ["10.1.0.6"]


def test_the_start_time_stays() -> None:
    pod = a_pod(status={"startTime": "2020"})
    assert status_of(status_inputs(pod, NOTHING)).start_time == "2020"
    assert (
        status_of(status_inputs(pod, NOTHING, before=before(startTime="2019"))).start_time == "2019"
    )


def test_allocated_resources_are_reported_without_overhead() -> None:
    pod = a_pod(
        wire_container(resources={"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}),
        overhead={"cpu": "200m", "memory": "140Mi"},
    )
    status = status_of(status_inputs(pod, NOTHING))
    assert status.resources is not None
    assert status.resources.requests == {"cpu": "1"}
    assert status.resources.limits == {"memory": "1Gi"}
    assert status.allocated_resources == {"cpu": "1"}
    assert status_of(status_inputs(a_pod(), NOTHING)).resources is None


# The end


@pytest.mark.parametrize(
    ("view", "wanted"),
    [
        (a_view(engine_has()), ("Running", "")),
        (a_view(exited(code=137)), ("Failed", "DeadlineExceeded")),
        (NOTHING, ("Failed", "DeadlineExceeded")),
    ],
    ids=["still runs", "ended", "never ran"],
)
def test_a_pod_has_failed_only_when_nothing_of_it_runs(view: PodView, wanted: Any) -> None:
    status = status_of(
        status_inputs(a_pod(), view, termination=LATE, before=before(phase="Running"))
    )
    assert (status.phase, status.reason) == wanted


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_last_phase_is_never_left(phase: str) -> None:
    old = before(phase=phase, reason="Why", message="because")
    status = status_of(status_inputs(a_pod(), a_view(engine_has()), before=old))
    assert (status.phase, status.reason, status.message) == (phase, "Why", "because")


def test_a_reason_goes_when_the_phase_changes() -> None:
    old = before(phase="Pending", reason="Why", message="because")
    known = status_inputs(a_pod(), a_view(engine_has()), before=old)
    assert (status_of(known).phase, status_of(known).reason) == ("Running", "")
    waiting = status_inputs(a_pod(), a_view(), before=old)
    assert (status_of(waiting).phase, status_of(waiting).reason) == ("Pending", "Why")


def test_a_refused_pod() -> None:
    termination = TerminationReason("OutOfcpu", "Node didn't have enough resource: cpu")
    errors = refused(status_inputs(a_pod(), NOTHING), termination)
    assert (errors.phase, errors.reason, errors.message) == (
        "Failed",
        "OutOfcpu",
        "Pod was rejected: Node didn't have enough resource: cpu",
    )
    assert errors.container_statuses == ()


def accounted(known_before: PodStatus, *init: Wire) -> PodStatus:
    known = status_inputs(
        a_pod(initContainers=list(init)), NOTHING, before=known_before, is_final=True
    )
    return ended(status_of(known), known)


def test_at_the_end_every_container_is_accounted_for() -> None:
    usage = accounted(before(phase="Pending"))
    (status,) = usage.container_statuses
    assert status.state.terminated is not None
    assert (status.state.terminated.exit_code, status.state.terminated.reason) == (
        137,
        "ContainerStatusUnknown",
    )
    assert usage.phase == "Failed"
    ready = next(condition for condition in usage.conditions if condition.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "PodFailed")


def test_main_containers_that_init_never_let_begin_are_left_waiting() -> None:
    usage = accounted(before(phase="Pending"), wire_container("i1"), wire_container("i2"))
    assert [status.state.terminated is not None for status in usage.init_container_statuses] == [
        True,
        False,
    ]
    assert usage.container_statuses[0].state.waiting is not None


def test_a_success_stays_one_at_the_end() -> None:
    pod = a_pod(restartPolicy="Never")
    known = status_inputs(pod, a_view(a_sandbox(is_ready=False), exited()), is_final=True)
    outcome = ended(status_of(known), known)
    assert outcome.phase == "Succeeded"
    assert outcome.container_statuses[0].state.terminated is not None
